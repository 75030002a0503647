"""The pick raced against alternatives, on a GPU whose clock the test sets."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cupy")

import kernels.checking as checking
import kernels.session as sessions
import kernels.sides as making
from kernels.contest import Contest, ContestTask, run_contest
from kernels.errors import CompileFailed
from kernels.protocol import VERIFY
from solver.config import Config
from solver.problem import Problem
from tests.kernels.fake_gpu import fake_session, side

PROBLEM = Problem(512, 512, 512)
CONFIGS = tuple(Config("sm90_gemm", 64, 64, 64, stages) for stages in (2, 3, 4, 5))
Racer = Callable[..., Contest]


@pytest.fixture
def contest(monkeypatch: pytest.MonkeyPatch) -> Racer:
    """Runs a contest of configurations that take so many µs, with 1 % of noise; None: it does not
    compile; negative: its result is wrong."""

    def run(*times_us: float | None, cache: str = "cold", seed: int = 5) -> Contest:
        session, rng = fake_session(monkeypatch), random.Random(seed)
        session.warm, session.sms, session.l2_bytes = True, 132, 60 << 20
        time_of = dict(zip(CONFIGS, times_us, strict=False))

        def kernel_of(_: Any, problem: Problem, config: Config, device: str) -> Any:
            if time_of[config] is None:
                raise CompileFailed("k", "ptxas refused", "log")

        def check_config(_: Any, kernel: Any, problem: Any, config: Config, *rest: Any) -> Any:
            wrong = (time_of[config] or 0) < 0
            return SimpleNamespace(passed=not wrong, details=("3 elements wrong",))

        def own_side(_: Any, problem: Any, config: Config, *rest: Any) -> Any:
            span_us = time_of[config] or 0.0
            return side(session, "x", lambda: span_us * rng.gauss(1, 0.01), 3)

        monkeypatch.setattr(sessions, "session", lambda: session)
        monkeypatch.setattr(making, "kernel_of", kernel_of)
        monkeypatch.setattr(making, "own_side", own_side)
        monkeypatch.setattr(making, "input_sets", lambda *_: ([None], False))
        monkeypatch.setattr(checking, "check_config", check_config)
        configs = CONFIGS[: len(times_us)]
        protocol = VERIFY.with_cache(cache)
        return run_contest(ContestTask(PROBLEM, configs, "h200", 7, protocol))

    return run


def test_a_faster_alternative_is_found_and_timed_afresh_next_to_the_pick(contest: Racer) -> None:
    found = contest(100.0, 120.0, 90.0, 101.0)
    assert (found.winner, found.beats_pick) == (2, True)
    assert found.fresh is not None
    assert found.fresh.low <= 0.9 <= found.fresh.high + 0.005
    assert found.beaten == (0, 1, 3)
    slow = found.entrants[1]
    assert slow.ratio == pytest.approx(1.2, abs=0.03)
    assert slow.ratio_low is not None
    assert slow.ratio_high is not None
    assert slow.ratio_low <= 1.2 <= slow.ratio_high + 0.01


def test_clear_losers_drop_out_early_and_the_record_says_when(contest: Racer) -> None:
    found = contest(100.0, 200.0, 100.1)
    assert found.entrants[1].dropped_at == found.entrants[1].rounds
    assert found.entrants[1].rounds < found.entrants[0].rounds
    assert found.winner != 1
    assert found.entrants[0].dropped_at is None


def test_where_the_pick_wins_nothing_is_timed_again(contest: Racer) -> None:
    found = contest(90.0, 100.0, 101.0)
    assert (found.winner, found.fresh, found.beats_pick) == (0, None, False)
    assert 0 not in found.beaten


def test_an_alternative_that_is_no_faster_does_not_beat_the_pick(contest: Racer) -> None:
    beats = [contest(100.0, 100.0, 100.0, seed=seed).beats_pick for seed in range(40)]
    assert sum(beats) <= 3  # the interval holds at 95 %, and of two sides one is a false gain


def test_a_wrong_or_uncompiled_alternative_is_a_failure_and_never_the_winner(
    contest: Racer,
) -> None:
    found = contest(100.0, -50.0, None, 95.0)
    assert found.winner == 3
    assert found.entrants[1].failure == "3 elements wrong"
    assert str(found.entrants[2].failure).startswith("CompileFailed: ")
    assert found.entrants[1].time_us is None


def test_where_the_pick_is_wrong_no_alternative_is_said_to_beat_it(contest: Racer) -> None:
    found = contest(-1.0, 90.0, 95.0)
    assert (found.fresh, found.beats_pick) == (None, False)
    assert found.entrants[1].ratio is None


def test_where_none_runs_there_is_no_winner(contest: Racer) -> None:
    found = contest(None, -1.0)
    assert found.winner is None
    assert found.to_dict()["candidates"][1]["failure"] == "3 elements wrong"
