"""The family's constants fitted to measured rows, with a prior, and how sure each is.

Least squares on log(predicted / measured) with a soft loss. A constant's interval comes from the
fit's own curvature and from how problems differ: rows of one problem err together, so that they
count together (the cluster-robust covariance). Where rows say nothing it is the prior's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.calibration.least_squares import Minimum, minimise
from solver.calibration.prior import LEAST
from solver.calibration.rows import (
    FAMILY,
    Floats,
    MeasuredGroup,
    log_errors,
    with_constants,
)
from solver.device import DeviceProfile

SPREAD = 0.05
"""What a row is off by when all is well; the soft loss bends there, and priors count against it."""
STEPS = 25
QUANTILE = 1.96  # of a 95 % interval
DIGITS = 4


@dataclass(frozen=True, slots=True)
class Estimate:
    """A constant: its value, the bounds of its 95 % interval, and which part of what was not known
    of it before the rows have told, 0 to 1."""

    value: float
    low: float
    high: float
    determined: float

    def to_dict(self) -> dict[str, float]:
        """As records keep it."""
        return {
            "value": self.value,
            "low": rounded(self.low),
            "high": rounded(self.high),
            "determined": round(self.determined, 3),
        }


@dataclass(frozen=True, slots=True)
class Fit:
    """The profile with its constants, each one's estimate, and how many rows told them."""

    device: DeviceProfile
    estimates: Mapping[str, Estimate]
    rows: int
    steps: int


def rounded(value: float, digits: int = DIGITS) -> float:
    """To so many significant digits."""
    return float(f"{value:.{digits}g}")


def fit(
    groups: Sequence[MeasuredGroup],
    start: DeviceProfile,
    widths: Mapping[str, float],
    source: str,
    *,
    steps: int = STEPS,
    progress: Callable[[int, int], None] | None = None,
) -> Fit:
    """Fit the constants named by ``widths`` from ``start`` on, the others as they were.

    A width is the standard deviation of a constant's logarithm before the rows are seen.
    ``progress`` is told (done, at most) after each of at most ``steps`` Jacobians.
    """
    return fit_family(
        FAMILY,
        lambda device: log_errors(groups, device),
        [len(group.measured_us) for group in groups],
        start,
        widths,
        source,
        steps=steps,
        progress=progress,
    )


def fit_family(
    family: str,
    errors: Callable[[DeviceProfile], Floats],
    sizes: Sequence[int],
    start: DeviceProfile,
    widths: Mapping[str, float],
    source: str,
    *,
    steps: int = STEPS,
    progress: Callable[[int, int], None] | None = None,
) -> Fit:
    """The same for any family: ``errors`` are log(predicted / measured) of all rows by a profile,
    group after group, of which there are ``sizes``."""
    names = list(widths)
    before = np.array([start.constant(family, name) for name in names])
    wide = np.array([widths[name] for name in names])
    least = np.array(
        [
            np.log(LEAST[name] / value) if name in LEAST else -np.inf
            for name, value in zip(names, before, strict=True)
        ]
    )

    def residuals(x: Floats) -> Floats:
        values = dict(zip(names, (before * np.exp(x)).tolist(), strict=True))
        return errors(with_constants(start, values, source, family=family))

    found = minimise(residuals, SPREAD / wide, least, SPREAD, steps, progress)
    deviation = np.sqrt(np.diag(_covariance(found, sizes, wide)))
    values = before * np.exp(found.x)
    estimates = {
        name: Estimate(
            rounded(value),
            value * np.exp(-QUANTILE * wide_now),
            value * np.exp(QUANTILE * wide_now),
            float(max(0.0, 1 - (wide_now / width) ** 2)),
        )
        for name, value, wide_now, width in zip(names, values, deviation, wide, strict=True)
    }
    values_found = {name: estimate.value for name, estimate in estimates.items()}
    device = with_constants(start, values_found, source, family=family)
    return Fit(device, estimates, sum(sizes), found.steps)


def _covariance(found: Minimum, sizes: Sequence[int], wide: Floats) -> np.ndarray[Any, Any]:
    """Of the logarithms [P, P]: inverse curvature around what the groups' pulls, and the prior's,
    vary by. Without any row it is the prior's own.

    A group's residuals are taken as they would be had it not been fitted to (the jackknife's, CR3):
    with some 50 constants and 100 groups they are small for having been fitted to.
    """
    root = np.sqrt(found.weights)
    jacobian, residuals = root[:, None] * found.jacobian, root * found.residuals
    prior = (SPREAD / wide) ** 2
    inverse = np.linalg.inv(jacobian.T @ jacobian + np.diag(prior))
    vary = SPREAD**2 * np.diag(prior)
    ends = np.cumsum(sizes)
    for rows in np.split(np.arange(len(residuals)), ends[:-1]):
        part = jacobian[rows]
        left_out = np.linalg.solve(np.eye(len(rows)) - part @ inverse @ part.T, residuals[rows])
        pull = part.T @ left_out
        vary += np.outer(pull, pull)
    covariance: np.ndarray[Any, Any] = inverse @ vary @ inverse
    return covariance
