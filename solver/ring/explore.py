"""Bounded check of barrier programs: every order in which their steps can happen.

Any programs of ``solver.ring.steps`` can be checked, the description's or those taken from a
compiled kernel. What is found: a deadlock; a slot, buffer or flag that is read before it is
written, or overwritten before or while it is read; an arrival beyond a phase's count; a barrier
used before it is initialised; a unit's sum that is not its own products'; a CTA that leaves while
its peer, or TMA, still needs it. Each comes with the steps that lead there.

The ring and the epilogue meet in the order of a MATH warp's steps alone, and are searched one
after the other, each with the barriers of the whole block and cluster; that no warp waits in the
one for a warp that waits in the other is part of the induction (``solver.z3_ring``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import groupby
from typing import Protocol, TypeVar

from solver.ring.cta import WHOLE_BLOCK, Cta
from solver.ring.epilogue import REDUCE_BARRIER, Unit
from solver.ring.machine import Machine
from solver.ring.program import WARPGROUP_WARPS
from solver.ring.state import Fault, Move, Warps
from solver.ring.steps import (
    ASYNC_FENCE,
    INIT_FENCE,
    RING,
    ClusterArrive,
    ClusterWait,
    Fill,
    Init,
    LoadFlag,
    Op,
    Program,
    ReadFilled,
    ReadStaged,
    Stage,
    Store,
    StoreCommit,
    StoreFlag,
    StoreWait,
    Sync,
)

STATES_MAX = 500_000
Programs = Mapping[str, Program]
"""Every warp's program of a CTA, by name: ``math0`` …, ``dma0`` …"""


class TooManyStates(Exception):
    """The bounded check is larger than STATES_MAX states."""


S = TypeVar("S", bound=Hashable)


class Searchable(Protocol[S]):
    """What can be searched: states and what can happen in each."""

    @property
    def start(self) -> S: ...
    def moves(self, state: S) -> Iterable[tuple[Move, S | Fault]]: ...
    def end(self, state: S) -> Fault | None: ...


def search(machine: Searchable[S]) -> Fault | int:
    """The first fault in any order of steps, by the shortest trace, or the number of states.

    Raises TooManyStates.
    """
    before: dict[S, tuple[S, Move] | None] = {machine.start: None}
    queue = deque([machine.start])
    while queue:
        state = queue.popleft()
        moved = False
        for move, result in machine.moves(state):
            moved = True
            if isinstance(result, Fault):
                return replace(result, trace=_trace(before, state, move))
            if result not in before:
                before[result] = (state, move)
                queue.append(result)
        if len(before) > STATES_MAX:
            raise TooManyStates(f"more than {STATES_MAX} states")
        if not moved and (fault := machine.end(state)) is not None:
            return replace(fault, trace=_trace(before, state))
    return len(before)


def _trace(before: Mapping[S, tuple[S, Move] | None], state: S, *last: Move) -> tuple[str, ...]:
    """The steps that lead to a state, and more after it: a line for each run of one actor's."""
    steps = list(last)
    while (previous := before[state]) is not None:
        state, move = previous
        steps.insert(0, move)
    return tuple(
        f"{who}: {'; '.join(move.words for move in run)}"
        for who, run in groupby(steps, key=lambda move: move.who)
    )


def explore_cta(cta: Cta, units: Sequence[Unit]) -> Fault | int:
    """Both searches of the description's own programs, of its CTA or of both of its cluster."""
    iterations = [unit.iterations for unit in units]
    return explore([cta.programs(units)] * cta.ring.ctas, cta.ring.copies, iterations)


def explore(
    ctas: Sequence[Programs],
    copies: int,
    units: Sequence[int] | None = None,
    *,
    every_order: bool = False,
) -> Fault | int:
    """The first fault of either search, or the number of states of both.

    ``ctas`` are the programs of the one CTA, or of both of a cluster; ``copies`` land in a slot of
    one on each visit; ``units`` are the k-iterations of each unit, without which sums are not
    looked at. ``every_order`` leaves out none that ``Machine`` can tell to show nothing new. Raises
    TooManyStates.
    """
    found = explore_epilogue(ctas[0], every_order=every_order)
    if isinstance(found, Fault):
        return found
    more = explore_ring(ctas, copies, units, every_order=every_order)
    return more if isinstance(more, Fault) else found + more


def explore_epilogue(programs: Programs, *, every_order: bool = False) -> Fault | int:
    """A CTA's search without the ring. Warpgroups meet at the barriers that they share; within
    one, each warp counts. Raises TooManyStates."""
    states = 0
    for warpgroup in sorted({w for w in map(warpgroup_of, programs) if w is not None}):
        found = search(Machine(_epilogue(programs, warpgroup), 1, every_order=every_order))
        if isinstance(found, Fault):
            return found
        states += found
    return states


def explore_ring(
    ctas: Sequence[Programs],
    copies: int,
    units: Sequence[int] | None = None,
    *,
    every_order: bool = False,
) -> Fault | int:
    """The search of the ring alone, of one CTA or both of a cluster. Raises TooManyStates."""
    groups = [
        group for rank, programs in enumerate(ctas) for group in _ring(programs, rank, len(ctas))
    ]
    return search(Machine(groups, copies, units=units, every_order=every_order))


def _ring(programs: Programs, rank: int, ctas: int) -> list[Warps]:
    """A CTA's warps at the ring. MATH warps that do the same are taken together, but for the
    first of a CTA that is alone: it is free to lag or to lead. A cluster's CTAs are free to."""
    kept: list[Warps] = []
    apart = 1 if ctas == 1 else 0
    for name, program in programs.items():
        math = warpgroup_of(name) is not None
        steps = tuple(step for step in program if _works_ring(step.op, math))
        if len(kept) > apart and math and kept[-1].steps == steps:
            kept[-1] = replace(kept[-1], count=kept[-1].count + 1)
        else:
            kept.append(Warps(name if ctas == 1 else f"CTA {rank} {name}", steps, cta=rank))
    return kept


def _epilogue(programs: Programs, warpgroup: int) -> list[Warps]:
    """A CTA's warps without the ring: a warpgroup's storing warp, another one, its last two
    together, and all others at what they have in common with them: together, but for the first of
    a warpgroup that takes one of this one's own barriers."""
    own = {name for name in programs if warpgroup_of(name) == warpgroup}
    shared = {WHOLE_BLOCK, REDUCE_BARRIER}
    named = {
        step.op.id for name in own for step in programs[name] if isinstance(step.op, Sync)
    } - shared
    kept: list[Warps] = []
    for name, program in programs.items():
        steps = tuple(step for step in program if _stores(step.op, named | shared, name in own))
        mixes = any(isinstance(step.op, Sync) and step.op.id in named for step in steps)
        apart = 2 if name in own else int(mixes)
        of = warpgroup_of(name)
        together = sum(warps.warpgroup == of for warps in kept) > apart
        if together and kept[-1].steps == steps:
            kept[-1] = replace(kept[-1], count=kept[-1].count + 1)
        else:
            kept.append(Warps(name, steps, warpgroup=of))
    return kept


def _works_ring(op: Op, math: bool) -> bool:
    common = isinstance(op, Sync) and op.id == WHOLE_BLOCK
    parts = isinstance(op, (*RING, Init, ClusterArrive, ClusterWait))
    return common or parts or op == INIT_FENCE or (op == ASYNC_FENCE and not math)


def _stores(op: Op, barriers: Set[int], everything: bool) -> bool:
    if isinstance(op, Sync):
        return op.id in barriers
    if isinstance(op, ClusterArrive | ClusterWait | StoreFlag | LoadFlag):
        return True
    buffers = (Fill, ReadFilled, Stage, ReadStaged, Store, StoreCommit, StoreWait)
    return everything and (op == ASYNC_FENCE or isinstance(op, buffers))


def warpgroup_of(name: str) -> int | None:
    """The warpgroup of a MATH warp, from its name."""
    role, _, number = name.partition("math")
    return None if role else int(number) // WARPGROUP_WARPS
