"""Whether a device has moved away from its profile, by what verifications of picks measured: their
times against what the profile, as it is now, predicts of them.

The rule stands here alone. Of the problems measured last, each counted once, those are counted
whose measured time lies further from the predicted one than a band, whichever way: constants that
have moved shift problems of one kind up and those of another down, so that the median of all may
stay. The model has errors of its own, many small ones and few large: there are two bands, each with
the part of problems that are usually beyond it. Drift is told where, of one of them, so many would
be beyond it by chance in fewer than one of a hundred devices that are as usual (one-sided binomial
tests, the level shared by both).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, inf, log
from statistics import median
from typing import Any

ENOUGH = 8
"""Problems without which nothing is told."""
LATEST = 64
"""Problems that count at most, those measured last."""
LEAST_CHANCE = 0.01


@dataclass(frozen=True, slots=True)
class Band:
    """A distance of measured from predicted time, as a part of the smaller one, and the part of a
    suite's picks that may be beyond it on a device that is its profile's."""

    width: float
    usual: float

    def off(self, ratios: Sequence[float]) -> int:
        """How many of the ratios lie beyond it."""
        return sum(abs(log(ratio)) > log(1 + self.width) for ratio in ratios)

    def chance(self, off: int, problems: int) -> float:
        """How likely so many or more are where the usual part of them is."""
        return sum(
            comb(problems, k) * self.usual**k * (1 - self.usual) ** (problems - k)
            for k in range(off, problems + 1)
        )


NEAR = Band(0.10, 1 / 3)
"""The largest mean error of a class of held-out rows, 9.0 % (``docs/accuracy.md``), rounded up.
Recorded picks are beyond it for 10 % (LLM), 15 % (odd pitch) and 25 % (unaligned) of a suite; of 20
odd shapes for 35 %, which counts for no drift either."""
FAR = Band(0.20, 1 / 5)
"""Twice that: recorded picks for none (LLM), 3 % (odd pitch) and 15 % (unaligned) of a suite."""
BANDS = (NEAR, FAR)
ADVICE = "warpwright calibrate"
"""What measures a device's constants afresh."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Of the picks of ``problems`` problems: the median of measured over predicted time (None where
    there are fewer than ENOUGH), and how many are ``off`` by more than the band that says most."""

    problems: int
    off: int = 0
    ratio: float | None = None
    band: Band = NEAR

    @property
    def found(self) -> bool | None:
        """Whether the device is off its profile; None where too few problems say anything."""
        if self.ratio is None:
            return None
        return self.band.chance(self.off, self.problems) < LEAST_CHANCE / len(BANDS)

    def to_dict(self) -> dict[str, Any]:
        """As answers have it; ``advice`` is what to do, None where there is nothing."""
        return {
            "found": self.found,
            "problems": self.problems,
            "off": self.off,
            "ratio": self.ratio,
            "band": self.band.width,
            "usual": self.band.usual,
            "advice": ADVICE if self.found else None,
        }


def drift_of(ratios: Sequence[float]) -> Drift:
    """The drift that ratios of measured to predicted time tell, one of each problem, the problem
    measured last first. Raises ValueError for a ratio that is no finite number above 0."""
    for ratio in ratios:
        if not 0 < ratio < inf:
            raise ValueError(f"a ratio of times must be a finite number above 0, got {ratio}")
    recent = ratios[:LATEST]
    band = min(BANDS, key=lambda each: each.chance(each.off(recent), len(recent)))
    return Drift(
        len(recent), band.off(recent), median(recent) if len(recent) >= ENOUGH else None, band
    )
