"""Whether a GPU still is what its profile says: recent timings against the constants as they are.

Timings are priced anew with the present profile, so that a calibration is seen at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from solver.calibration.rows import FAMILY, RowGroup, log_errors
from solver.config import Config
from solver.device import DeviceProfile
from solver.ground_truth import CONFIG_FIELDS
from solver.problem import Problem

LEAST_ROWS = 8
FACTOR = 2.0
SHIPPED_ERROR = 0.06
"""What a shipped profile is taken to be off by: the H200's mean over held-out cold rows, rounded
(docs/accuracy.md)."""


@dataclass(frozen=True, slots=True)
class Drift:
    """The median error over so many timed kernels, what the profile itself is known to be off by,
    the median of predicted over measured, and whether that is drift: more than FACTOR times the
    known error."""

    rows: int
    error: float
    expected: float
    predicted_over_measured: float
    drifting: bool

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def drift_of(groups: Sequence[RowGroup], device: DeviceProfile) -> Drift | None:
    """None of fewer than LEAST_ROWS timings."""
    if sum(len(group.measured_us) for group in groups) < LEAST_ROWS:
        return None
    off = log_errors(groups, device)
    error = float(np.median(np.abs(np.expm1(off))))
    known = (device.calibration or {}).get("error", SHIPPED_ERROR)
    return Drift(len(off), error, known, float(np.exp(np.median(off))), error > FACTOR * known)


def timing(verification: Mapping[str, Any]) -> RowGroup | None:
    """The row that a verification timed (``kernels.verify.Verification`` as JSON values); None
    where it timed none."""
    if not verification.get("median_us"):
        return None
    config = Config.from_dict(verification["config"])
    if config.family != FAMILY:
        return None
    return RowGroup(
        Problem(**verification["problem"]),
        verification["protocol"]["cache"] == "cold",
        {name: np.array([getattr(config, name)], dtype=np.int64) for name in CONFIG_FIELDS},
        np.array([verification["median_us"]]),
    )
