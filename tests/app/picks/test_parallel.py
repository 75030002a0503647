"""Calls in several processes: in order, counted, and as few as there are calls."""

from __future__ import annotations

import os

import pytest

from app.picks.parallel import JOBS_USUAL_MAX, run_all, usual_jobs


@pytest.mark.parametrize("jobs", [1, 2])
def test_values_come_in_the_order_of_their_calls(jobs: int) -> None:
    told: list[tuple[int, int]] = []
    values = run_all(divmod, [(9, 2), (7, 3), (5, 4)], jobs, lambda *at: told.append(at))
    assert values == [(4, 1), (2, 1), (1, 1)]
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_a_single_call_needs_no_process() -> None:
    assert run_all(os.getpid, [()], 8, lambda *_: None) == [os.getpid()]


def test_by_default_there_is_a_process_a_core_within_reason() -> None:
    assert 1 <= usual_jobs() <= JOBS_USUAL_MAX
