"""Time inside the solver: an integer count of 100 ps ticks.

One constant, so that every table handed to the prover is integral and 64 bits hold
the largest problem (m·n·k ≤ 2^60).
"""

from __future__ import annotations

TICKS_PER_US = 10_000


def us_from_ticks(ticks: int) -> float:
    """Microseconds of a tick count, exact to the tick."""
    return ticks / TICKS_PER_US
