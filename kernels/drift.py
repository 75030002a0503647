"""Whether a device has moved away from its profile, by what verifications of picks measured: their
times against what the profile, as it is now, predicts of them.

The rule stands here alone. Of the problems measured last, each counted once, those are counted
whose measured time lies further from the predicted one than BAND, whichever way: constants that
have moved shift problems of one kind up and those of another down, so that the median of all may
stay. The model has errors of its own: drift is told where so many would be off by chance in fewer
than one of a hundred devices on which USUAL of them are (a one-sided binomial test).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, log
from statistics import median
from typing import Any

ENOUGH = 8
"""Problems without which nothing is told."""
LATEST = 64
"""Problems that count at most, those measured last."""
LEAST_CHANCE = 0.01
BAND = 0.10
"""The largest mean error of a class of held-out rows, 8.7 % (``docs/accuracy.md``), rounded up."""
USUAL = 1 / 3
"""The part of a suite's picks that may be off by more than BAND on a device that is its profile's:
recorded ones are 5 % (small cubes), 7 % (LLM), 25 % (unaligned); of the 20 odd shapes 35 %, which
counts for no drift either."""
ADVICE = "warpwright calibrate"
"""What measures a device's constants afresh."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Of the picks of ``problems`` problems: the median of measured over predicted time (None where
    there are fewer than ENOUGH), and how many are ``off`` by more than BAND."""

    problems: int
    off: int = 0
    ratio: float | None = None

    @property
    def chance(self) -> float:
        """How likely so many or more are off where USUAL of them are."""
        n = self.problems
        return sum(comb(n, k) * USUAL**k * (1 - USUAL) ** (n - k) for k in range(self.off, n + 1))

    @property
    def found(self) -> bool | None:
        """Whether the device is off its profile; None where too few problems say anything."""
        return None if self.ratio is None else self.chance < LEAST_CHANCE

    def to_dict(self) -> dict[str, Any]:
        """As answers have it; ``advice`` is what to do, None where there is nothing."""
        return {
            "found": self.found,
            "problems": self.problems,
            "off": self.off,
            "ratio": self.ratio,
            "band": BAND,
            "usual": USUAL,
            "advice": ADVICE if self.found else None,
        }


def drift_of(ratios: Sequence[float]) -> Drift:
    """The drift that ratios of measured to predicted time tell, one of each problem, the problem
    measured last first."""
    recent = ratios[:LATEST]
    off = sum(abs(log(ratio)) > log(1 + BAND) for ratio in recent)
    return Drift(len(recent), off, median(recent) if len(recent) >= ENOUGH else None)
