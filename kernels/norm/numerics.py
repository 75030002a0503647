"""Whether an output of a norm_activation kernel is right: every element against the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.bits import poison, to_float32, ulp
from kernels.norm.reference import Expected

REL_ERROR_LIMIT = {"fp32": 1e-6, "fp16": 1e-3, "bf16": 5e-3}
"""Relative Frobenius error allowed on random normal inputs, where bounds by element are wide."""


@dataclass(slots=True)
class NormFinding:
    """What came of checking outputs; ``rel_error`` is over right and finite elements, ``worst`` the
    largest error as a share of what is allowed."""

    checked: int = 0
    wrong: int = 0
    unwritten: int = 0
    first: str = ""
    error_square: float = 0.0
    reference_square: float = 0.0
    worst: float = 0.0
    guards_changed: int = 0
    rel_limit: float = math.inf

    @property
    def rel_error(self) -> float:
        """Relative Frobenius error."""
        return math.sqrt(self.error_square / (self.reference_square or 1.0))

    @property
    def right(self) -> bool:
        """Nothing wrong, no guard touched, and not too far off in the mean."""
        return not self.wrong and not self.guards_changed and self.rel_error <= self.rel_limit


def check(
    xp: Any, finding: NormFinding, got: Any, wanted: Expected, dtype: str, first_row: int = 0
) -> None:
    """Hold output bits against the reference, every element.

    Right is: within one unit in the last place of ``dtype`` plus its slack; NaN exactly where the
    reference is NaN, and not the poison; infinity exactly where it is.
    """
    if got.size == 0:
        return
    with np.errstate(all="ignore"):
        values = to_float32(xp, got, dtype).astype(xp.float64)
        finite = xp.isfinite(wanted.values)
        reference = xp.where(finite, wanted.values, 0.0)
        error = xp.abs(values - wanted.values)
        allowed = ulp(xp, reference, dtype) + xp.where(finite, wanted.slack, 0.0)
        bad = xp.where(finite, ~(error <= allowed), values != wanted.values)
        bad = xp.where(xp.isnan(wanted.values), ~xp.isnan(values), bad)
        unwritten = got == poison(got)
        bad = bad | unwritten
        error = xp.where(finite & ~bad, error, 0.0)
    finding.checked += int(got.size)
    finding.unwritten += int(unwritten.sum())
    finding.error_square += float((error * error).sum())
    finding.reference_square += float((reference * reference).sum())
    finding.worst = max(finding.worst, float((error / allowed).max()))
    wrong = int(bad.sum())
    if wrong and not finding.wrong:
        row, column = divmod(int(bad.ravel().argmax()), int(bad.shape[1]))
        finding.first = (
            f"row {first_row + row}, column {column}: {float(values[row, column]):.9g}, expected "
            f"{float(wanted.values[row, column]):.9g} within {float(allowed[row, column]):.3g}"
        )
    finding.wrong += wrong
