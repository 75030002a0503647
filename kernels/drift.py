"""Whether a device has moved away from its profile, by what verifications of picks measured: their
times against what the profile, as it is now, predicts of them.

The rule stands here alone. Of the problems measured last, each counted once, the ratio of measured
to predicted time is taken. Their median lies in an interval that needs no law of errors (the sign
test's: order statistics bound it by the binomial distribution; W. J. Conover, Practical
Nonparametric Statistics, 3.2). The model has errors of its own, which may all be of one sign for
problems of one class: drift is told where the whole interval lies further from 1 than any class of
held-out rows is off by in the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from kernels.statistics import median_interval

ENOUGH = 8
"""Problems without which nothing is told: the least of which an interval holds at CONFIDENCE."""
LATEST = 64
"""Problems that count at most, those measured last."""
CONFIDENCE = 0.99
BAND = 0.10
"""The largest mean error of a class of held-out rows, 8.7 % (``docs/accuracy.md``), rounded up."""
ADVICE = "warpwright calibrate"
"""What measures a device's constants afresh."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Measured over predicted time of the picks of ``problems`` problems: the median and what it
    lies between; None each where there are fewer than ENOUGH."""

    problems: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def found(self) -> bool | None:
        """Whether the device is off its profile; None where too few problems say anything."""
        if self.low is None or self.high is None:
            return None
        return self.low > 1 + BAND or self.high < 1 / (1 + BAND)

    def to_dict(self) -> dict[str, Any]:
        """As answers have it; ``advice`` is what to do, None where there is nothing."""
        return {
            "found": self.found,
            "problems": self.problems,
            "ratio": self.ratio,
            "low": self.low,
            "high": self.high,
            "band": BAND,
            "advice": ADVICE if self.found else None,
        }


def drift_of(ratios: Sequence[float]) -> Drift:
    """The drift that ratios of measured to predicted time tell, one of each problem, the problem
    measured last first."""
    recent = ratios[:LATEST]
    if len(recent) < ENOUGH:
        return Drift(len(recent))
    return Drift(len(recent), median(recent), *median_interval(recent, CONFIDENCE))
