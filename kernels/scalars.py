"""Alpha and beta as the kernels have them."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from solver.errors import InvalidProblem

FP32_MAX = float(np.finfo(np.float32).max)


def scalar(field: str, value: Any) -> float:
    """A scalar as fp32 has it: what rounds to zero is zero, infinities and NaN stay.

    Raises InvalidProblem for what is no number, and for a finite one beyond fp32's range.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidProblem(field, f"must be a number, got {type(value).__name__}")
    try:
        with np.errstate(over="raise"):
            return float(np.float32(value))
    except (OverflowError, FloatingPointError):
        raise InvalidProblem(
            field, f"must be infinite or, as fp32 holds it, between -{FP32_MAX:g} and {FP32_MAX:g}"
        ) from None
