"""What a product is, worked out by numpy: the reference of tests that have no GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.bits import to_float32


def numpy_product(a: Any, b: Any, dtype: str) -> Any:
    """A·Bᵀ in float64 from bits a (rows×k) and b (n×k)."""
    left, right = (to_float32(np, x, dtype).astype(np.float64) for x in (a, b))
    return left @ right.T
