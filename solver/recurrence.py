"""The event recurrence of a persistent, warp-specialised CTA, and its closed form.

A CTA works through u units (an output tile, or one split of it) of n k-iterations each.
For iteration i of unit j, with load occupancy b, load latency λ, compute time C, epilogue
E, Q usable slots and early release e (all in ticks, e ≤ C):

    load_issue[j,i] = max(load_issue before it + b, slot[j,i])          first load: 0
    load_end[j,i]   = load_issue[j,i] + λ + b
    math_start[j,i] = max(math_end before it (+ E where i = 0, j > 0), load_end[j,i])
    math_end[j,i]   = math_start[j,i] + C
    slot[j,i]       = math_end[j,i-Q] - e                 for i ≥ Q
                    = math_end of unit j-1 - e            for i = Q-1, j > 0
                    = no bound                            otherwise
    end  = last math_end                wait = Σ (math_start - (math_end before it (+ E)))

Inside a unit this is the recurrence of Liu and Grover (arXiv 2506.11209). Across units the
DMA warp runs on: of the Q loads that reach into the next unit, the one that closes the ring
waits for the unit before to end; the Q-1 before it are let go ahead. (Gating each of those
too leaves 19 launches of 20 as they are and has no closed form; a test measures both.)

The closed form is a longest path. With Λ = λ+b+C, g = max(b, C), d = max(0, Λ-e-Q·g):

    LM(s) = Λ + s·g + floor(s/Q)·d                 first load    → s-th math_end
    LL(s) = max(s·b, LM(s-Q) - e)                  first load    → s-th load_issue
    MM(s) = max(s·C, LM(s-Q) - e)                  first math_end → s-th math_end
    ML(s) = max((s-Q)·g - e, LM(s-2Q) - 2e)        first math_end → s-th load_issue

(a term whose argument is negative is absent), from which the two states carried over a
boundary, the last load_issue and the last math_end, follow by a 2x2 max-plus matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

ABSENT = -(2**60)
"""Weight of a path that does not exist; far below any time, far from overflow."""

Ticks = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Parameters of the recurrence for R rows: integer arrays of shape [R], times in ticks."""

    load: Ticks
    latency: Ticks
    math: Ticks
    early: Ticks
    epilogue: Ticks
    slots: Ticks
    iterations: Ticks
    units: Ticks

    def take(self, rows: Any) -> Pipeline:
        """The rows selected by an index or mask."""
        return Pipeline(*(getattr(self, name)[rows] for name in self.__slots__))


class Algebra(Protocol):
    """The operations the closed form needs, so that numpy and Z3 evaluate one text."""

    def maximum(self, a: Any, b: Any) -> Any:
        """Larger of two integers."""

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """``a`` where the condition holds, else ``b``."""

    def quotient(self, a: Any, b: Any) -> Any:
        """Floor of a / b for a ≥ 0, b > 0."""


class _Numpy:
    maximum = staticmethod(np.maximum)
    where = staticmethod(np.where)
    quotient = staticmethod(np.floor_divide)


class _Integers:
    maximum = staticmethod(max)

    @staticmethod
    def where(condition: bool, a: int, b: int) -> int:
        return a if condition else b

    @staticmethod
    def quotient(a: int, b: int) -> int:
        return a // b


NUMPY: Algebra = _Numpy()
INTEGERS: Algebra = _Integers()


def first_unit_end(p: Any, ops: Algebra) -> Any:
    """LM(n-1): the last math_end of a CTA's first unit. ``p`` has Pipeline's fields."""
    ramp = p.latency + p.load + p.math
    pace = ops.maximum(p.load, p.math)
    stall = ops.maximum(0, ramp - p.early - p.slots * pace)
    last = p.iterations - 1
    return ramp + last * pace + ops.quotient(last, p.slots) * stall


def several_units_end(p: Any, first_end: Any, ops: Algebra) -> Any:
    """The last math_end of a CTA of at least two units, given its first unit's end."""
    ramp = p.latency + p.load + p.math
    pace = ops.maximum(p.load, p.math)
    stall = ops.maximum(0, ramp - p.early - p.slots * pace)
    n, s, q, e = p.iterations, p.iterations - 1, p.slots, p.early
    turns = ops.quotient(s, q)
    step = q * pace + stall + e  # LM(s) - (LM(s-Q) - e)

    # LM(s-Q) - e and LM(s-2Q) - 2e; then the same from the slot gate, Q-1 loads further on.
    lm1 = ops.where(turns >= 1, first_end - step, ABSENT)
    lm2 = ops.where(turns >= 2, first_end - 2 * step, ABSENT)
    gate_turns = ops.quotient(n, q)
    gate = ramp + n * pace + gate_turns * stall
    gate1 = ops.where(gate_turns >= 1, gate - step, ABSENT)
    gate2 = ops.where(gate_turns >= 2, gate - 2 * step, ABSENT)
    gate_loads = ops.where(gate_turns >= 1, (n - q) * p.load - e, ABSENT)

    load_load = ops.maximum(s * p.load, lm1)
    math_math = ops.maximum(s * p.math, lm1)
    math_load = ops.maximum(ops.where(turns >= 1, (s - q) * pace - e, ABSENT), lm2)

    # From (last load_issue, last math_end) of one unit to those of the next.
    restart = p.epilogue + p.math
    load_to_load = p.load + load_load
    load_to_math = p.load + first_end
    math_to_load = ops.maximum(restart + math_load, ops.maximum(gate_loads, gate2))
    math_to_math = ops.maximum(restart + math_math, gate1)

    more = p.units - 1
    best = ops.maximum(load_to_load, math_to_math)
    straight = ops.maximum(
        first_end + more * math_to_math, load_load + load_to_math + (more - 1) * best
    )
    detour = first_end + math_to_load + load_to_math + (more - 2) * best
    return ops.maximum(straight, ops.where(more >= 2, detour, ABSENT))


def end_ticks(p: Pipeline) -> Ticks:
    """Last math_end of each row, by the closed form. Shape [R], ticks."""
    end: Ticks = first_unit_end(p, NUMPY)
    several = np.flatnonzero(p.units > 1)
    if several.size:
        end[several] = several_units_end(p.take(several), end[several], NUMPY)
    return end


def run_end(p: Any, ops: Algebra) -> Any:
    """The last math_end of a CTA, however many units it has."""
    first = first_unit_end(p, ops)
    return ops.where(p.units > 1, several_units_end(p, first, ops), first)


def busy_ticks(p: Any) -> Any:
    """Time in which a CTA's MATH warps multiply or store between units; in any algebra."""
    return p.units * p.iterations * p.math + (p.units - 1) * p.epilogue


def chain_ticks(p: Any, ops: Algebra) -> Any:
    """A bound never above the end: the load chain alone, or the MATH chain alone."""
    steps = p.units * p.iterations - 1
    math_chain = steps * p.math + (p.units - 1) * p.epilogue
    return p.latency + p.load + p.math + ops.maximum(steps * p.load, math_chain)


def wait_ticks(p: Pipeline, end: Ticks) -> Ticks:
    """MATH-warp idle time before ``end``: what is neither multiplying nor epilogue."""
    wait: Ticks = end - busy_ticks(p)
    return wait
