"""Kernels of one problem that were timed in turn, and what their times say. No GPU here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from kernels.statistics import Interval, RatioInterval, Timing, ratio_interval, tail_ratio
from solver.advice.thresholds import TIE
from solver.families.norm_activation import NormConfig
from solver.families.norm_activation_rivals import DEFAULT_RIVAL, DIVIDED, RIVALS

TOLERANCE = TIE.value
"""A pick may take so much longer than the strong kernel, as a fraction: closer than that two
kernels are a tie."""
VERIFIED, STRONG = "verified", "strong"


LIKE = RIVALS[DEFAULT_RIVAL]
"""The kinds of like warps: the fastest of them is what dividing the warps must beat."""


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
    best specialised one's, ``specialised_to_like`` that over the fastest of like warps, rings of
    theirs included; None where there is no such kernel. ``passed``: the verified kernel is not
    surely slower than the strong one by more than TOLERANCE.
    """

    passed: bool
    words: str
    to_strong: RatioInterval | None
    specialised_to_strong: RatioInterval | None
    specialised_to_like: RatioInterval | None
    specialising: str

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON-ready values."""
        return asdict(self) | {"tolerance": TOLERANCE}


def verdict_of(
    entrants: Sequence[Entrant], times_us: Sequence[Sequence[float]], confidence: float
) -> Verdict:
    """The verdict over entrants timed in turn, by their µs of each round."""

    def over(mine: int | None, other: int | None) -> RatioInterval | None:
        if mine is None or other is None:
            return None
        return _over(times_us[mine], times_us[other], confidence)

    strong, divided = _place(entrants, STRONG), _place(entrants, DIVIDED)
    known = {kind: place for kind in LIKE if (place := _place(entrants, kind)) is not None}
    like = min(known, key=lambda kind: median(times_us[known[kind]]), default=STRONG)
    to_strong, to_like = over(0, strong), over(divided, known.get(like))
    return Verdict(
        passed=to_strong is None or to_strong.low <= 1 + TOLERANCE,
        words=_of_strong(to_strong, strong == 0),
        to_strong=to_strong,
        specialised_to_strong=over(divided, strong),
        specialised_to_like=to_like,
        specialising=_of_roles(to_like, like),
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


def _of_roles(ratio: RatioInterval | None, like: str) -> str:
    """What specialising is worth against the fastest of like warps, which is of this kind."""
    if ratio is None:
        return "no specialised kernel was held against one of like warps"
    took = f"{ratio.ratio:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) of the best {like} one's time"
    if ratio.high < 1:
        return f"specialising pays: the best specialised kernel takes {took}"
    if ratio.low > 1:
        return f"specialising does not pay: the best specialised kernel takes {took}"
    return f"whether specialising pays is undecided: the best specialised kernel takes {took}"
