"""Races between candidates on a GPU whose clock the test sets."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("cupy")

from kernels.protocol import CHOICE, FEWEST_ROUNDS
from kernels.race import race, still_running
from tests.kernels.fake_gpu import fake_session, side


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = fake_session(monkeypatch)
    made.warm = True
    return made


def noisy(rng: random.Random, time_us: float, noise: float) -> Any:
    return lambda: time_us * rng.gauss(1.0, noise)


def test_one_round_decides_nothing() -> None:
    assert still_running([[1.0], [9.0]], [0, 1]) == [0, 1]


def test_a_wide_gap_takes_two_rounds_and_a_narrow_one_all_the_fewest() -> None:
    assert still_running([[1.0, 1.0], [1.3, 1.3], [1.2, 1.2]], [0, 1, 2]) == [0, 2]
    times = [[1.0] * FEWEST_ROUNDS, [1.01] * FEWEST_ROUNDS]
    assert still_running(times, [0, 1]) == [0]
    assert still_running([t[:-1] for t in times], [0, 1]) == [0, 1]


def test_who_was_as_fast_in_any_round_stays() -> None:
    times = [[1.0] * 8, [1.1] * 7 + [0.9]]
    assert still_running(times, [0, 1]) == [0, 1]


def test_who_is_out_stays_out_and_the_leader_stays() -> None:
    times = [[2.0] * 5, [1.0] * 5, [0.1]]
    assert still_running(times, [0, 1]) == [1]


def test_the_fastest_wins_and_the_slow_ones_run_few_rounds(session: Any) -> None:
    times_us = [60.0, 10.0, 12.0, 30.0]
    sides = [side(session, str(index), time_us, 3) for index, time_us in enumerate(times_us)]
    raced = race(session, sides, CHOICE)
    assert raced.winner == 1
    assert [lap.median_us for lap in raced.laps] == pytest.approx(times_us)
    assert max(lap.rounds for lap in raced.laps) <= 8


def test_every_candidate_runs_in_turn_in_alternating_order(session: Any) -> None:
    sides = [side(session, name, 200.0, 1) for name in "abc"]
    race(session, sides, replace(CHOICE, max_rounds=8))
    assert session.stream.log[-24:] == ["a*1", "b*1", "c*1", "c*1", "b*1", "a*1"] * 4


def test_a_race_costs_less_than_timing_each_and_finds_what_is_there(session: Any) -> None:
    rng = random.Random(3)
    regrets = []
    for _ in range(20):
        spans = [100.0 * (1 + 0.005 * place) for place in range(30)]
        rng.shuffle(spans)
        before_us = session.stream.now_us
        sides = [side(session, "x", noisy(rng, span, 0.02), 2) for span in spans]
        raced = race(session, sides, CHOICE)
        regrets.append(spans[raced.winner] / 100.0 - 1)
        least_alone_us = len(spans) * (CHOICE.warmup_ms * 1e3 + CHOICE.min_rounds * 200.0)
        assert session.stream.now_us - before_us < 2.5 * least_alone_us
    assert sum(regrets) / len(regrets) < 0.005
    assert max(regrets) <= 0.015


def test_slow_candidates_end_with_the_least_rounds(session: Any) -> None:
    rng = random.Random(1)
    sides = [side(session, "x", noisy(rng, 14_000.0, 0.05), 2) for _ in range(30)]
    raced = race(session, sides, CHOICE)
    assert max(lap.rounds for lap in raced.laps) == CHOICE.min_rounds
    assert min(lap.rounds for lap in raced.laps) >= FEWEST_ROUNDS


def test_a_flush_comes_before_each_replay(session: Any) -> None:
    race(session, [side(session, name, 2.0, 50) for name in "ab"], CHOICE, flush=True)
    assert session.stream.log[-4::2] == ["flush", "flush"]


def test_one_candidate_wins_at_once_and_none_is_an_error(session: Any) -> None:
    assert race(session, [side(session, "a", 10.0, 1)], CHOICE).winner == 0
    with pytest.raises(ValueError, match="needs a candidate"):
        race(session, [], CHOICE)
