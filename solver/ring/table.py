"""Who waits on what: the barriers of a CTA as a table, worked out from its description.

``python -m solver.ring.table`` prints it as it stands in docs/kernels.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from solver.ring.cta import WHOLE_BLOCK, Cta
from solver.ring.epilogue import REDUCE_BARRIER, Epilogue, Unit
from solver.ring.program import Copy, Ring
from solver.ring.steps import (
    Arrive,
    ClusterArrive,
    ClusterWait,
    Init,
    LetNextLaunchBegin,
    Op,
    Sync,
    Wait,
    WaitForLaunchBefore,
)

HEAD = ("barrier", "a phase takes", "in a cluster of two", "arrive", "wait", "how often")
WARPGROUPS = 2  # of the CTA that is shown; it has two DMA warps
CLUSTER, WARPGROUP = "the cluster's", "a warpgroup's"
NEXT, BEFORE = "the next launch's start", "the launch before's end"
TIMES = {1: "once", 2: "twice"}
ROLES = {"dma": "DMA", "math": "MATH"}


@dataclass(slots=True)
class _Barrier:
    """What is seen of one barrier, or of the one that each slot has."""

    takes: str = ""
    arrive: set[str] = field(default_factory=set)
    wait: set[str] = field(default_factory=set)
    times: int = 0


def barrier_table() -> str:
    """The table as Markdown: for two DMA warps and two MATH warpgroups, alone and in a cluster."""
    rows = (HEAD, ("---",) * len(HEAD), *_rows())
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _rows() -> Iterator[tuple[str, ...]]:
    alone, clustered, adding = _seen(1), _seen(2), _seen(1, adds=True)
    for name in dict.fromkeys((*alone, *clustered)):
        one, two = alone.get(name), clustered.get(name)
        seen = two or alone[name]
        more = adding[name].times if name in adding else seen.times
        how_often = f"{TIMES[seen.times]} {_occasion(name)}"
        if more != seen.times:
            how_often = f"{how_often}, {TIMES[more]} where C is added to"
        takes = (barrier.takes if barrier else "" for barrier in (one, two))
        yield (name, *takes, _roles(seen.arrive), _roles(seen.wait), how_often)


def _seen(ctas: int, adds: bool = False) -> dict[str, _Barrier]:
    """Every barrier in the programs of one unit of one iteration and one piece."""
    loads = ((Copy(1),), (Copy(1, shared=ctas > 1),))
    cta = Cta(Ring(1, WARPGROUPS, loads, False, ctas), Epilogue(2, adds=adds))
    programs = cta.programs([Unit(1, (1,) * WARPGROUPS)])
    barriers: dict[str, _Barrier] = {}
    for warp, program in programs.items():
        role = ROLES[warp.rstrip("0123456789")]
        times: Counter[str] = Counter()
        for op in (step.op for step in program):
            name = _name(op)
            if name is None:
                continue
            barrier = barriers.setdefault(name, _Barrier())
            match op:
                case Init(_, count):
                    barrier.takes = f"{count} arrivals"
                case Sync(_, warps):
                    barrier.takes = f"{warps} warps"
                case ClusterArrive():
                    barrier.takes = f"{ctas * len(programs)} warps"
                case LetNextLaunchBegin():
                    barrier.takes = "every CTA"
                case WaitForLaunchBefore():
                    barrier.takes = "that launch"
            if isinstance(op, Arrive) and op.tx_bytes and "bytes" not in barrier.takes:
                barrier.takes += " and a slot's bytes"
            if isinstance(op, Arrive | ClusterArrive | LetNextLaunchBegin | Sync):
                peer = isinstance(op, Arrive) and op.peer
                barrier.arrive.add(f"the peer's {role}" if peer else role)
            if isinstance(op, Wait | ClusterWait | WaitForLaunchBefore | Sync):
                barrier.wait.add(role)
            if not isinstance(op, Init | Arrive | ClusterArrive):
                times[name] += 1
                barrier.times = times[name]
    return barriers


def _name(op: Op) -> str | None:
    match op:
        case Init() | Arrive() | Wait():
            return f"`{op.barrier.partition('[')[0]}[slot]`"
        case ClusterArrive() | ClusterWait():
            return CLUSTER
        case LetNextLaunchBegin():
            return NEXT
        case WaitForLaunchBefore():
            return BEFORE
        case Sync(number):
            whose = {WHOLE_BLOCK: "the block's", REDUCE_BARRIER: "all MATH warps'"}
            return f"{whose.get(number, WARPGROUP)}, {number}"
    return None


def _occasion(name: str) -> str:
    if name == CLUSTER:
        return "a launch: at its start and its end"
    if name == NEXT:
        return "a launch, first of all"
    if name == BEFORE:
        return "a launch, before memory is touched"
    if name.endswith(f", {WHOLE_BLOCK}"):
        return "a launch, at its start"
    if name.endswith(f", {REDUCE_BARRIER}"):
        return "a unit with split-K"
    return "a k-iteration" if "slot" in name else "a piece of C"


def _roles(roles: set[str]) -> str:
    return "all" if roles == set(ROLES.values()) else " and ".join(sorted(roles))


if __name__ == "__main__":
    print(barrier_table(), end="")
