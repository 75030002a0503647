"""Kernels of one problem that were timed in turn, and what their times say. No GPU here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernels.statistics import Interval, RatioInterval, Timing, ratio_interval, tail_ratio
from solver.families.norm_activation import NormConfig

TOLERANCE = 0.02
"""A pick may take so much longer than the strong kernel, as a fraction: closer than that two
kernels are a tie."""
VERIFIED, STRONG, SPECIALISED = "verified", "strong", "specialised"


@dataclass(frozen=True, slots=True)
class Entrant:
    """A kernel of the comparison: ``verified`` for the one that is asked about, and the kinds that
    it is the best of by the model. ``predicted_us`` is the model's time."""

    roles: tuple[str, ...]
    config: NormConfig
    predicted_us: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The entrant as JSON-ready values."""
        return {
            "roles": list(self.roles),
            "config": self.config.to_dict(),
            "predicted_us": self.predicted_us,
        }


@dataclass(frozen=True, slots=True)
class Figures:
    """An entrant's times per launch in µs; ``tail`` is p99 over the median, ``over_verified`` its
    time over the verified one's, round by round."""

    timing: Timing
    tail: Interval
    over_verified: RatioInterval

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON-ready values."""
        return {
            "median_us": self.timing.median_us,
            "median_low_us": self.timing.low_us,
            "median_high_us": self.timing.high_us,
            "p95_us": self.timing.p95_us,
            "p99_us": self.timing.p99_us,
            "replays": self.timing.replays,
            "launches_per_replay": self.timing.launches_per_replay,
            "tail_ratio": self.tail.value,
            "tail_ratio_low": self.tail.low,
            "tail_ratio_high": self.tail.high,
            "ratio_to_verified": self.over_verified.ratio,
            "ratio_low": self.over_verified.low,
            "ratio_high": self.over_verified.high,
        }


def figures(
    timings: Sequence[Timing], times_us: Sequence[Sequence[float]], confidence: float
) -> list[Figures]:
    """The figures of entrants timed in turn, the verified one first; ``times_us`` of each round."""
    return [
        Figures(timing, tail_ratio(mine, confidence), _over(mine, times_us[0], confidence))
        for timing, mine in zip(timings, times_us, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a comparison says.

    ``to_strong`` is the verified kernel's time over the strong one's, ``specialised_to_strong`` the
    best specialised one's; None where there is no such kernel. ``passed``: the verified kernel is
    not surely slower than the strong one by more than TOLERANCE.
    """

    passed: bool
    words: str
    to_strong: RatioInterval | None
    specialised_to_strong: RatioInterval | None
    specialising: str

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON-ready values."""
        return asdict(self) | {"tolerance": TOLERANCE}


def verdict_of(
    entrants: Sequence[Entrant], times_us: Sequence[Sequence[float]], confidence: float
) -> Verdict:
    """The verdict over entrants timed in turn, by their µs of each round."""
    strong, specialised = (_place(entrants, role) for role in (STRONG, SPECIALISED))
    to_strong = None if strong is None else _over(times_us[0], times_us[strong], confidence)
    divided = None
    if strong is not None and specialised is not None:
        divided = _over(times_us[specialised], times_us[strong], confidence)
    passed = to_strong is None or to_strong.low <= 1 + TOLERANCE
    return Verdict(
        passed, _of_strong(to_strong, strong == 0), to_strong, divided, _of_roles(divided)
    )


def _place(entrants: Sequence[Entrant], role: str) -> int | None:
    return next((place for place, each in enumerate(entrants) if role in each.roles), None)


def _over(mine_us: Sequence[float], other_us: Sequence[float], confidence: float) -> RatioInterval:
    ratios = [mine / other for mine, other in zip(mine_us, other_us, strict=True)]
    return ratio_interval(ratios, confidence)


def _of_strong(ratio: RatioInterval | None, is_strong: bool) -> str:
    if ratio is None:
        return "there is no strong kernel to hold it against"
    if is_strong:
        return "it is the strong kernel"
    took = f"{ratio.ratio:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) of the strong kernel's time"
    if ratio.low > 1 + TOLERANCE:
        return f"it is slower than the strong kernel: {took}, more than {TOLERANCE:.0%} beyond it"
    if ratio.high < 1:
        return f"it is faster than the strong kernel: {took}"
    if ratio.high <= 1 + TOLERANCE:
        return f"it is as fast as the strong kernel, or at most {TOLERANCE:.0%} slower: {took}"
    return f"it may be slower than the strong kernel, but not surely beyond {TOLERANCE:.0%}: {took}"


def _of_roles(ratio: RatioInterval | None) -> str:
    if ratio is None:
        return "no specialised kernel was held against a strong one"
    took = f"{ratio.ratio:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) of the strong one's time"
    if ratio.high < 1:
        return f"specialising pays: the best specialised kernel takes {took}"
    if ratio.low > 1:
        return f"specialising does not pay: the best specialised kernel takes {took}"
    return f"whether specialising pays is not decided: the best specialised kernel takes {took}"
