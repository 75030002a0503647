"""Summaries of repeated timings. Pure arithmetic, no GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

TIMING_CONFIDENCE = 0.95
RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Timing:
    """Time per launch over replays, each replay the mean of its launches, microseconds.

    The median lies between ``low_us`` and ``high_us`` with TIMING_CONFIDENCE.
    """

    median_us: float
    p95_us: float
    p99_us: float
    replays: int
    launches_per_replay: int
    low_us: float
    high_us: float


@dataclass(frozen=True, slots=True)
class RatioInterval:
    """The median of paired ratios and its confidence interval.

    ``note`` says why the interval is wider than asked for; None where it is not.
    """

    ratio: float
    low: float
    high: float
    rounds: int
    note: str | None

    @property
    def half_width(self) -> float:
        """Half the interval's width as a fraction of the ratio."""
        return (self.high - self.low) / 2 / self.ratio


@dataclass(frozen=True, slots=True)
class Interval:
    """A positive quantity and what it lies between."""

    value: float
    low: float
    high: float

    def over(self, other: Interval) -> Interval:
        """The quotient of two: of the least over the most, of the most over the least. With each at
        95 % it holds at 90 % or more, whether or not they were measured together."""
        return Interval(self.value / other.value, self.low / other.high, self.high / other.low)

    @property
    def inverse(self) -> Interval:
        """One over it."""
        return Interval(1 / self.value, 1 / self.high, 1 / self.low)

    def within(self, most: float) -> bool | None:
        """Whether it is at most ``most``: None where the interval holds both answers."""
        if self.high <= most:
            return True
        return False if self.low > most else None


def summarise(times_us: Sequence[float], launches_per_replay: int) -> Timing:
    """Median, its interval and percentiles (linear interpolation) of times per launch."""
    median, p95, p99 = (float(x) for x in np.quantile(np.asarray(times_us), (0.5, 0.95, 0.99)))
    low, high = median_interval(times_us, TIMING_CONFIDENCE)
    return Timing(median, p95, p99, len(times_us), launches_per_replay, low, high)


def median_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """A distribution-free interval for the median, from order statistics.

    The r-th smallest and r-th largest value bound it with at least ``confidence``, r from
    the binomial distribution; the extremes where there are too few values for that.
    """
    ordered = sorted(values)
    count = len(ordered)
    tail, rank = 0, 0  # of 2^count outcomes, as integers: floats overflow at a thousand values
    while rank < count // 2:
        tail += math.comb(count, rank)
        if 2 * tail / (1 << count) > 1 - confidence:
            break
        rank += 1
    rank = max(rank, 1)
    return ordered[rank - 1], ordered[count - rank]


def tail_ratio(values: Sequence[float], confidence: float) -> Interval:
    """The 99th percentile over the median, and its percentile interval by the bootstrap: RESAMPLES
    draws with one seed, so that the same values give the same interval."""
    given = np.asarray(values)
    drawn = np.random.default_rng(0).choice(given, (RESAMPLES, given.size))
    half, tail = np.quantile(drawn, (0.5, 0.99), axis=1)
    low, high = np.quantile(tail / half, ((1 - confidence) / 2, (1 + confidence) / 2))
    middle, last = np.quantile(given, (0.5, 0.99))
    return Interval(float(last / middle), float(low), float(high))


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's: the correlation of two lists' ranks, equals at their mean rank.

    Raises ValueError for fewer than two values, or where all of a list are equal.
    """
    one, other = (_ranks(np.asarray(values, dtype=float)) for values in (first, second))
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        raise ValueError("ranks are compared of two values or more that differ")
    return float(np.corrcoef(one, other)[0, 1])


def _ranks(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    mean: np.ndarray[Any, Any] = np.cumsum(count) - (count - 1) / 2
    return mean[place]


def ratio_interval(
    ratios: Sequence[float], confidence: float, note: str | None = None
) -> RatioInterval:
    """Median and interval of paired ratios."""
    low, high = median_interval(ratios, confidence)
    return RatioInterval(float(np.median(np.asarray(ratios))), low, high, len(ratios), note)
