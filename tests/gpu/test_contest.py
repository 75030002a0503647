"""A pick raced against alternatives on the GPU: each is checked, the winner is timed afresh."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernels.contest import Contest, ContestTask, run_contest
from kernels.process import OutcomeKind, Worker
from kernels.protocol import VERIFY
from solver.config import Config
from solver.problem import Problem

PROBLEM = Problem(1024, 4096, 4096)
FAST = Config("sm90_gemm", 128, 128, 64, 5, mma_in_flight=1, math_warpgroups=2)
SLOW = Config("sm90_gemm", 64, 64, 64, 3)


def contest(worker: Worker, device: str, *configs: Config, cache: str = "cold") -> Contest:
    task = ContestTask(PROBLEM, configs, device, 1, VERIFY.with_cache(cache))
    outcome = worker.call(run_contest, (task,), 300.0)
    assert outcome.kind is OutcomeKind.OK, outcome
    found: Contest = outcome.value
    return found


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_a_faster_alternative_is_found_and_surely_beats_a_slow_pick(
    worker: Worker, device: str, cache: str
) -> None:
    found = contest(worker, device, SLOW, replace(SLOW, stages=4), FAST, cache=cache)
    assert found.winner == 2
    assert found.beats_pick
    assert found.fresh is not None
    assert found.fresh.ratio == pytest.approx(found.entrants[2].ratio, rel=0.05)
    assert 1 in found.beaten
    assert found.entrants[0].dropped_at is not None
    assert found.entrants[0].rounds <= found.entrants[2].rounds < VERIFY.max_rounds
    assert all(entrant.failure is None for entrant in found.entrants)


def test_a_pick_that_is_the_fastest_keeps_its_place(worker: Worker, device: str) -> None:
    found = contest(worker, device, FAST, SLOW)
    assert (found.winner, found.fresh, found.beats_pick) == (0, None, False)
    assert found.beaten == (1,)


def test_an_alternative_that_is_the_pick_again_does_not_surely_beat_it(
    worker: Worker, device: str
) -> None:
    found = contest(worker, device, FAST, FAST, FAST)
    if found.fresh is not None:
        assert found.fresh.ratio == pytest.approx(1.0, abs=0.01)
    for entrant in found.entrants:
        assert entrant.ratio == pytest.approx(1.0, abs=0.01)
