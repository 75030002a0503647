"""Pauses grow, and are bounded."""

from __future__ import annotations

from app.restarts import FIRST_S, MOST_S, pause_s


def test_pauses_double_up_to_the_longest() -> None:
    pauses = [pause_s(failures) for failures in range(8)]
    assert pauses == [0.0, FIRST_S, 2.0, 4.0, 8.0, 16.0, MOST_S, MOST_S]
    assert pause_s(10**6) == MOST_S
