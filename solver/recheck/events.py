"""The event recurrence of a CTA, taken from its definition in ``docs/model.md``.

No closed form. A run that is short is played event by event. A long one rests on the
recurrence being made of maxima and sums alone: one k-iteration whose load is gated by the
MATH of Q iterations before maps the state (last load_issue, last Q math_ends) linearly in
max-plus algebra, and one whole unit maps the two times a unit hands to the next (last
load_issue, last math_end) likewise, since of all that went before a unit its events name no
others. Powers by squaring then take any number of either, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add

ABSENT = -(1 << 100)
"""An event that does not bound another: far below any time, whatever is added to it."""

PLAYED_MAX = 768
"""Iterations up to which playing is faster than squaring."""

Vector = Sequence[int]
Matrix = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Parameters of the recurrence, times in ticks; slots, iterations and units from 1."""

    load: int
    latency: int
    math: int
    early: int
    epilogue: int
    slots: int
    iterations: int
    units: int

    @property
    def ramp(self) -> int:
        """From a load's issue to the end of the MATH that waits for nothing but it."""
        return self.latency + self.load + self.math


def last_math_end(p: Pipeline) -> int:
    """When the CTA's last MATH ends, in ticks from its first load."""
    if p.iterations * p.units <= PLAYED_MAX:
        return _played(p)
    issue, ready = _unit(p, -p.load, 0, ABSENT)
    if p.units == 1:
        return ready
    # A unit is told by what it makes of each of its two inputs alone, the last math_end being
    # both when its MATH may start and, less early, when its closing slot is free.
    from_issue = _unit(p, 0, ABSENT, ABSENT)
    from_ready = _unit(p, ABSENT, p.epilogue, 0)
    rows = tuple(zip(from_issue, from_ready, strict=True))
    ((_, end),) = _advance(rows, p.units - 1, [(issue, ready)])
    return end


def math_wait(p: Pipeline, end: int) -> int:
    """MATH-warp idle time of a run that ends at ``end``: neither multiplying nor storing."""
    return end - p.units * p.iterations * p.math - (p.units - 1) * p.epilogue


def path_bound(p: Pipeline) -> int:
    """A time that the last MATH does not end before: weights of a few paths through the events.

    All loads in a row; all MATH and epilogues in a row; or slot by slot, each load waiting
    for the MATH before it in its slot, with what is left of the ring walked by loads or MATH.
    """
    n, more = p.iterations, p.units - 1
    turn = p.ramp - p.early
    pace = max(p.load, p.math)
    turns, rest = divmod(n - 1, p.slots)
    loads = (p.units * n - 1) * p.load
    ring = turns * turn + rest * pace
    gated_turns, gated_rest = divmod(n, p.slots)
    by_gate = gated_turns * turn + gated_rest * pace if gated_turns else 0
    by_math = p.epilogue + p.math + turns * turn + rest * (pace if turns else p.math)
    math_alone = p.epilogue + n * p.math
    first = max(ring, (n - 1) * p.math)
    return p.ramp + max(loads, first + more * max(by_gate, by_math, math_alone))


def _played(p: Pipeline) -> int:
    issue, ready = _unit(p, -p.load, 0, ABSENT, play=True)
    for _ in range(p.units - 1):
        issue, ready = _unit(p, issue, ready + p.epilogue, ready, play=True)
    return ready


def _unit(p: Pipeline, issue: int, ready: int, gate: int, *, play: bool = False) -> tuple[int, int]:
    """(last load_issue, last math_end) of a unit.

    ``issue`` is the load_issue before its first, ``ready`` when its first MATH may start,
    ``gate`` the last math_end of the unit before. Without ``play`` a long unit's iterations
    are taken by powers of one.
    """
    ends: list[int] = []
    load, slots, early = p.load, p.slots, p.early
    to_ready, math = p.latency + p.load, p.math
    played = p.iterations if play or p.iterations <= PLAYED_MAX else min(slots, p.iterations)
    for i in range(played):
        issue += load
        if i >= slots:
            issue = max(issue, ends[i - slots] - early)
        elif i == slots - 1:
            issue = max(issue, gate - early)
        ready = max(ready, issue + to_ready) + math
        ends.append(ready)
    left = p.iterations - played
    if left:
        (state,) = _advance(_gated_iteration(p), left, [(issue, *reversed(ends))])
        return state[0], state[1]
    return issue, ready


def _gated_iteration(p: Pipeline) -> Matrix:
    """The map of (last load_issue, last Q math_ends, latest first) by one gated iteration."""
    size = p.slots + 1
    issue, end = [ABSENT] * size, [ABSENT] * size
    issue[0] = p.load
    issue[-1] = -p.early
    end[0] = p.load + p.ramp
    end[-1] = p.ramp - p.early
    end[1] = max(end[1], p.math)
    older = [[0 if to == row else ABSENT for to in range(size)] for row in range(1, size - 1)]
    return [issue, end, *older]


def _advance(matrix: Matrix, count: int, states: Sequence[Vector]) -> list[tuple[int, ...]]:
    """Each state after ``count`` applications of a max-plus linear map, by squaring."""
    moved = [tuple(state) for state in states]
    while count:
        if count & 1:
            moved = [tuple(max(map(add, row, state)) for row in matrix) for state in moved]
        count >>= 1
        if count:
            columns = list(zip(*matrix, strict=True))
            matrix = [[max(map(add, row, column)) for column in columns] for row in matrix]
    return moved
