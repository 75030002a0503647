"""Summaries, intervals and the rule that ends a measurement."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernels.protocol import BENCH, OVERSPENT, Protocol, finished, rotation_sets
from kernels.statistics import (
    Interval,
    median_interval,
    rank_correlation,
    ratio_interval,
    summarise,
)

L2_BYTES = 50 << 20


def test_a_summary_gives_median_and_tails() -> None:
    timing = summarise([float(x) for x in range(1, 101)], 4)
    assert (timing.median_us, timing.replays, timing.launches_per_replay) == (50.5, 100, 4)
    assert timing.p95_us == pytest.approx(95.05)
    assert timing.p99_us == pytest.approx(99.01)
    assert (timing.low_us, timing.high_us) == (40.0, 61.0)


def test_the_interval_of_a_median_holds_it_as_often_as_promised() -> None:
    generator = np.random.default_rng(7)
    hits = 0
    for _ in range(2000):
        low, high = median_interval(generator.lognormal(0, 0.3, 25).tolist(), 0.95)
        hits += low <= 1 <= high
    assert hits >= 0.94 * 2000


def test_the_interval_narrows_with_more_values() -> None:
    generator = np.random.default_rng(7)
    few = ratio_interval(generator.normal(1, 0.1, 20).tolist(), 0.95)
    many = ratio_interval(generator.normal(1, 0.1, 2000).tolist(), 0.95)
    assert many.half_width < few.half_width / 3


def test_a_quotient_is_between_its_extremes_and_says_what_is_shown() -> None:
    slowdown = Interval(11.0, 10.9, 11.2).over(Interval(10.0, 9.9, 10.1))
    assert slowdown.value == pytest.approx(1.1)
    assert (slowdown.low, slowdown.high) == (10.9 / 10.1, 11.2 / 9.9)
    assert [slowdown.within(most) for most in (1.2, 1.1, 1.05)] == [True, None, False]
    assert slowdown.inverse == Interval(1 / slowdown.value, 1 / slowdown.high, 1 / slowdown.low)


def test_too_few_values_give_their_extremes() -> None:
    assert median_interval([3.0, 1.0, 2.0], 0.95) == (1.0, 3.0)
    assert median_interval([2.0], 0.95) == (2.0, 2.0)


def test_a_narrow_interval_ends_a_comparison_after_the_fewest_rounds() -> None:
    ratios = [1.0, 1.001] * 8
    assert not finished(BENCH, BENCH.min_rounds - 1, 1.0, ratios)[0]
    stop, interval = finished(BENCH, 16, 1.0, ratios)
    assert stop
    assert interval is not None
    assert interval.note is None


def test_a_wide_interval_goes_on_until_the_budget_and_says_so() -> None:
    ratios = [0.8, 1.2] * 20
    assert finished(BENCH, 40, 1.0, ratios)[0] is False
    stop, interval = finished(BENCH, 40, BENCH.budget_ms, ratios)
    assert stop
    assert interval is not None
    assert interval.note is not None
    assert "half-width" in interval.note


def test_slow_rounds_end_before_the_fewest_are_done() -> None:
    spent_ms = OVERSPENT * BENCH.budget_ms
    assert not finished(BENCH, 4, spent_ms, [])[0]
    assert finished(BENCH, 5, spent_ms, [])[0]


def test_a_single_side_ends_with_enough_rounds_and_time() -> None:
    assert not finished(BENCH, 16, 1.0, [])[0]
    assert finished(BENCH, 16, BENCH.budget_ms / 2, []) == (True, None)
    assert finished(BENCH, BENCH.max_rounds, 1.0, []) == (True, None)


@pytest.mark.parametrize(
    ("set_bytes", "sets", "flushed"),
    [
        (200 << 20, 2, False),
        (100 << 20, 2, False),
        (10 << 20, 15, False),
        (150 << 20, 2, False),
        (24 << 10, BENCH.max_sets, True),
    ],
)
def test_cold_inputs_rotate_over_three_times_the_l2_or_the_l2_is_flushed(
    set_bytes: int, sets: int, flushed: bool
) -> None:
    assert rotation_sets(set_bytes, L2_BYTES, BENCH) == (sets, flushed)


@pytest.mark.parametrize(
    ("most", "expected"), [(20, (15, False)), (15, (15, False)), (3, (3, True)), (0, (1, True))]
)
def test_sets_that_memory_cannot_hold_are_made_up_for_by_flushing(
    most: int, expected: tuple[int, bool]
) -> None:
    assert rotation_sets(10 << 20, L2_BYTES, BENCH, most) == expected


def test_warm_inputs_are_one_set() -> None:
    assert rotation_sets(1 << 20, L2_BYTES, BENCH.with_cache("warm")) == (1, False)


def test_an_unknown_cache_state_is_refused() -> None:
    with pytest.raises(ValueError, match="cold or warm"):
        Protocol(cache="tepid")
    with pytest.raises(ValueError, match="cold or warm"):
        replace(BENCH, cache="")


def test_ranks_are_compared_whatever_the_values_are() -> None:
    assert rank_correlation([1, 2, 3, 9], [0.1, 7, 8, 1e9]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    # Equals have their mean rank: (1.5, 1.5, 3) beside (1, 2, 3).
    assert rank_correlation([5, 5, 6], [1, 2, 3]) == pytest.approx(3**0.5 / 2)


@pytest.mark.parametrize(("first", "second"), [([1], [2]), ([1, 1], [1, 2]), ([1, 2], [3, 3])])
def test_ranks_that_tell_nothing_are_refused(first: list[float], second: list[float]) -> None:
    with pytest.raises(ValueError, match="that differ"):
        rank_correlation(first, second)
