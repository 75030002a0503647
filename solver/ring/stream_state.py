"""What the search of norm_activation's blocks is made of: where warps are, and what each has done
before each of its steps, whatever the others do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from solver.ring.state import Barrier
from solver.ring.steps import ASYNC_FENCE, Arrive, Fence, Load, Op, Program, StoreCommit, Sync, Wait
from solver.ring.stream_steps import (
    READS,
    ArriveLoaded,
    ReadScratch,
    ReadSlot,
    Rewrite,
    ScratchOp,
    SyncArrive,
    WriteScratch,
    WriteSlot,
)

LOCAL = (ReadSlot, Rewrite, WriteSlot, WriteScratch, ReadScratch, Fence, StoreCommit)
"""What is taken at once or late, by whichever shows more."""

_Key = tuple[str, int]


class Flight(NamedTuple):
    """Copies of a group of warps on their way into ``slots``, and the arrivals and bytes with
    which they are told to ``barrier``; without one nobody is ever told. Copies that an arrival
    waits for land with it: earlier they would only do less harm."""

    warps: int
    slots: tuple[int, ...]
    barrier: str
    arrivals: int
    tx_bytes: int


class StreamState(NamedTuple):
    """``at`` is how many steps each group of warps has taken, but for local ones since its last of
    another kind; ``waiting`` whether it has arrived at the named barrier it is at; ``named`` the
    warps that have arrived at each; ``stores`` the slots that its bulk stores may still read."""

    at: tuple[int, ...]
    waiting: tuple[bool, ...]
    barriers: tuple[Barrier | None, ...]
    named: tuple[int, ...]
    flights: tuple[Flight, ...]
    stores: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class StreamWarps:
    """``count`` warps of one team or role that walk the same program in step."""

    name: str
    steps: Program
    team: int | None = None
    count: int = 1


class StreamHistory:
    """Of one program, before each of its steps: ``done``, how often it has filled and begun the
    visits of each slot, written and read each line, put results into each slot and of those fenced;
    ``reading``, the slots of which it has yet to read the visit that it has begun; ``following``,
    the place of the next step that is not local. ``full_ids`` are the named barriers that tell of
    full slots."""

    def __init__(self, steps: Program, full_ids: Mapping[int, int]) -> None:
        self._full_ids = full_ids
        self.done = self._history(steps)
        self.reading = self._reads_to_come(steps)
        self.following = _next_played(steps)

    def told_full(self, op: Op) -> int | None:
        """The slot that a step waits for to be full."""
        if isinstance(op, Wait) and op.barrier.startswith("full["):
            return int(op.barrier[5:-1])
        return self._full_ids.get(op.id) if isinstance(op, Sync) else None

    def _tells_full(self, op: Op) -> int | None:
        """The slot that a step says to be full, as far as its warp is concerned."""
        if isinstance(op, Load):
            return op.slot
        if isinstance(op, ArriveLoaded) or (isinstance(op, Arrive) and not op.tx_bytes):
            return int(op.barrier[5:-1]) if op.barrier.startswith("full[") else None
        return self._full_ids.get(op.id) if isinstance(op, SyncArrive) else None

    def _history(self, steps: Program) -> list[Counter[_Key]]:
        """Before each step: visits that were filled and begun, sums written and read, results
        put into slots, and of those how many are fenced."""
        seen: Counter[_Key] = Counter()
        found = [Counter(seen)]
        for step in steps:
            op = step.op
            for name, slot in (("filled", self._tells_full(op)), ("begun", self.told_full(op))):
                if slot is not None:
                    seen[name, slot] += 1
            if isinstance(op, ScratchOp):
                seen[type(op).__name__, op.line] += 1
            if isinstance(op, Rewrite):
                seen["put", op.slot] += 1
            if op == ASYNC_FENCE:
                seen |= Counter(
                    {("fenced", s): n for (name, s), n in seen.items() if name == "put"}
                )
            found.append(Counter(seen))
        return found

    def _reads_to_come(self, steps: Program) -> list[frozenset[int]]:
        """Before each step: the slots of which the visit that was begun is still to be read."""
        reading: set[int] = set()
        found = [frozenset(reading)]
        for step in reversed(steps):
            if isinstance(step.op, READS):
                reading.add(step.op.slot)
            if (slot := self.told_full(step.op)) is not None:
                reading.discard(slot)
            found.append(frozenset(reading))
        return found[::-1]


def _next_played(steps: Program) -> list[int]:
    """For each number of steps taken, the place of the next that is not local."""
    following = [len(steps)] * (len(steps) + 1)
    for at in range(len(steps) - 1, -1, -1):
        following[at] = following[at + 1] if isinstance(steps[at].op, LOCAL) else at
    return following
