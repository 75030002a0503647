"""How long to wait before a process that ended, or did not start, is started again."""

from __future__ import annotations

FIRST_S = 1.0
MOST_S = 30.0


def pause_s(failures: int) -> float:
    """The pause after so many failures one after another: none after none, then twice as long each
    time, up to MOST_S."""
    if failures == 0:
        return 0.0
    doublings = min(failures - 1, 30)  # a float has its bounds too
    return min(MOST_S, FIRST_S * 2.0**doublings)
