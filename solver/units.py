"""Time inside the solver: an integer count of 100 ps ticks; energy: of 100 pJ ticks.

One constant, so that every table handed to the prover is integral and 64 bits hold
the largest problem (m·n·k ≤ 2^60).
"""

from __future__ import annotations

TICKS_PER_US = 10_000


def us_from_ticks(ticks: int) -> float:
    """Microseconds of a tick count, exact to the tick."""
    return ticks / TICKS_PER_US


JOULES_PER_TICK = 1e-10
"""Energy inside the solver: an integer count of watts times ticks of time, 100 pJ each."""
ENERGY_TICKS_PER_MJ = 10_000_000
ENERGY_MAX = 2**52
"""Bound on every energy, 450 kJ, so that power is exact in 64 bits too, with a
margin of at most as much again (``solver.device.AT_MOST_ONE``)."""


def joules_from_ticks(ticks: int) -> float:
    """Joules of a count of energy ticks."""
    return ticks * JOULES_PER_TICK
