"""Bounded check of split-K: the CTAs of one tile count themselves in any order.

Each writes its partial sums to global memory and counts; the one that the counter tells to be the
last reads them all. What a thread can see of the others' sums is played as PTX's memory model has
it: a barrier shows the warps of a CTA what each of them has seen; a fence before an atomic
publishes what its thread has seen, a fence after it shows what was published by those that counted
before.

Found are sums that are read before they can be seen, more or fewer than one CTA that is the last,
and a counter that is not zero again at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from solver.ring.cta import WHOLE_BLOCK, Cta
from solver.ring.epilogue import Unit
from solver.ring.explore import Programs, search, warpgroup_of
from solver.ring.state import Fault, Move, Warps, parties, replaced
from solver.ring.steps import (
    GPU_FENCE,
    CountTile,
    LoadFlag,
    LoadPartial,
    Op,
    Program,
    Step,
    StoreFlag,
    StorePartial,
    Sync,
    words,
)


@dataclass(frozen=True, slots=True)
class _Both:
    """What a group of a CTA's warps does where the CTA is the last of its tile, and where not."""

    warps: Warps
    otherwise: Program


class _Group(NamedTuple):
    """Where a group of warps is. ``seen`` are the groups whose sums it can see, as a mask,
    ``taken`` those that its next fence will show it, ``fenced`` those that a count publishes."""

    at: int
    last: bool
    seen: int
    taken: int
    fenced: int


class _State(NamedTuple):
    """``flags`` are the CTAs' flags, and ``found`` what their atomics returned, None before."""

    groups: tuple[_Group, ...]
    counter: int
    published: int
    found: tuple[bool | None, ...]
    flags: tuple[bool | None, ...]


def explore_split(cta: Cta, ctas: int) -> Fault | int:
    """The check of the description's own programs, for a tile of so many CTAs."""
    one = [cta.programs([Unit(1, (), last)]) for last in (True, False)]
    return explore_tile([one] * ctas)


def explore_tile(ctas: Sequence[Sequence[Programs]]) -> Fault | int:
    """The first fault, or the number of states. Each CTA's programs of one unit of the tile:
    as the last of its tile, and not. Raises TooManyStates."""
    groups: list[_Both] = []
    for rank, (last, otherwise) in enumerate(ctas):
        first = len(groups)
        for name in last:
            steps, others = (
                tuple(step for step in programs[name] if _counts(step.op))
                for programs in (last, otherwise)
            )
            warps = Warps(f"CTA {rank} {name}", steps, 1, rank, warpgroup_of(name))
            before = groups[-1].warps if len(groups) > first + 1 else None
            if before and before.steps == steps and before.warpgroup == warps.warpgroup:
                more = replace(before, count=before.count + 1)
                groups[-1] = _Both(more, groups[-1].otherwise)
            elif steps:
                groups.append(_Both(warps, others))
    return search(_Machine(groups))


def _counts(op: Op) -> bool:
    named = isinstance(op, Sync) and op.id != WHOLE_BLOCK
    parts = (StorePartial, LoadPartial, CountTile, StoreFlag, LoadFlag)
    return named or op == GPU_FENCE or isinstance(op, parts)


class _Machine:
    def __init__(self, groups: Sequence[_Both]) -> None:
        self._groups = groups
        self._ctas = 1 + max(both.warps.cta for both in groups)
        none = (None,) * self._ctas
        self.start = _State((_Group(0, True, 0, 0, 0),) * len(groups), 0, 0, none, none)

    def end(self, state: _State) -> Fault | None:
        waits = [
            f"{both.warps.name} can't {words(program[group.at])}"
            for both, group in zip(self._groups, state.groups, strict=True)
            if group.at < len(program := self._program(both, group))
        ]
        if waits:
            return Fault("deadlock", "; ".join(waits))
        last = sum(flag is True for flag in state.flags)
        if last != 1:
            return Fault("no sum" if not last else "summed twice", f"{last} CTAs are the last")
        return Fault("not zero", "the counter, for the next launch") if state.counter else None

    def moves(self, state: _State) -> Iterator[tuple[Move, _State | Fault]]:
        # All but the count concerns one CTA alone: any whose next steps are none is played first.
        ranks = [self._at_count(state, rank) for rank in range(self._ctas)]
        alone = [rank for rank, (can_move, counts) in enumerate(ranks) if can_move and not counts]
        for i, both in enumerate(self._groups):
            if alone and both.warps.cta != alone[0]:
                continue
            yield from self._moves_of(state, i)

    def _at_count(self, state: _State, rank: int) -> tuple[bool, bool]:
        """Whether the CTA can move, and whether it may count next."""
        can_move = counts = False
        for i, both in enumerate(self._groups):
            program = self._program(both, state.groups[i])
            if both.warps.cta == rank and state.groups[i].at < len(program):
                counts |= isinstance(program[state.groups[i].at].op, CountTile)
                can_move |= next(self._moves_of(state, i), None) is not None
        return can_move, counts

    @staticmethod
    def _program(both: _Both, group: _Group) -> Program:
        return both.warps.steps if group.last else both.otherwise

    def _moves_of(self, state: _State, i: int) -> Iterator[tuple[Move, _State | Fault]]:
        both, group = self._groups[i], state.groups[i]
        program = self._program(both, group)
        if group.at == len(program):
            return
        step = program[group.at]
        if isinstance(step.op, Sync):
            yield from self._sync(state, i, step.op)
        else:
            yield self._move(state, i, step)

    def _move(self, state: _State, i: int, step: Step) -> tuple[Move, _State | Fault]:
        both, group = self._groups[i], state.groups[i]
        cta = both.warps.cta
        move = Move(both.warps.name, words(step))
        after = group._replace(at=group.at + 1)
        match step.op:
            case StorePartial():
                after = after._replace(seen=group.seen | 1 << i)
            case LoadPartial():
                hidden = [j for j in range(len(self._groups)) if not group.seen >> j & 1]
                if hidden:
                    whose = self._groups[hidden[0]].warps.name
                    return move, Fault("read before written", f"the partial sums of {whose}")
            case CountTile(last):
                is_last = state.counter == last
                state = state._replace(
                    counter=0 if state.counter >= last else state.counter + 1,
                    published=state.published | group.fenced,
                    found=replaced(state.found, cta, is_last),
                )
                after = after._replace(taken=group.taken | state.published)
            case StoreFlag():
                state = state._replace(flags=replaced(state.flags, cta, state.found[cta]))
            case LoadFlag():
                flag = state.flags[cta]
                if flag is None:
                    return move, Fault("read before written", f"the flag of CTA {cta}")
                after = after._replace(last=flag)
                move = Move(both.warps.name, words(Step(LoadFlag(flag))))
            case _:
                seen = group.seen | group.taken
                after = after._replace(seen=seen, taken=0, fenced=seen)
        return move, state._replace(groups=replaced(state.groups, i, after))

    def _sync(self, state: _State, i: int, op: Sync) -> Iterator[tuple[Move, _State | Fault]]:
        cta = self._groups[i].warps.cta
        here = {
            j: both.warps.count
            for j, (both, group) in enumerate(zip(self._groups, state.groups, strict=True))
            if both.warps.cta == cta
            and group.at < len(program := self._program(both, group))
            and program[group.at].op == op
        }
        move = Move(f"{op.warps} warps", f"leave barrier {op.id} of CTA {cta}")
        for party in parties(i, here, op.warps):
            seen = 0
            for j in party:
                seen |= state.groups[j].seen
            groups = tuple(
                group._replace(at=group.at + 1, seen=group.seen | seen) if j in party else group
                for j, group in enumerate(state.groups)
            )
            yield move, state._replace(groups=groups)
