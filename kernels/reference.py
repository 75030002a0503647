"""The reference product on the GPU: a plain kernel of our own, independent of any library."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import cupy as cp

_THREADS = 256
_TILE = 128
_OUT_TYPES = {
    "reference_sum": cp.float64,
    "reference_magnitude": cp.float32,
    "reference_exact": cp.float32,
}


@cache
def _module() -> Any:
    source = resources.files("kernels").joinpath("cuda", "reference.cu").read_text("utf-8")
    return cp.RawModule(code=source, options=("--std=c++17",))


def _strides(matrix: Any) -> tuple[Any, Any]:
    """Elements from one row of a matrix to the next, and from one k to the next."""
    row, step = matrix.strides
    return cp.int64(row // matrix.itemsize), cp.int64(step // matrix.itemsize)


def _product(name: str, a: Any, b: Any, dtype: str) -> Any:
    """One of reference.cu's products of bits a (rows×k) and b (n×k), views of any strides:
    shape (rows, n)."""
    (rows, k), n = a.shape, b.shape[0]
    out = cp.empty((rows, n), _OUT_TYPES[name])
    grid = (-(-n // _TILE) * -(-rows // _TILE),)
    sizes = (cp.int64(rows), cp.int64(n), cp.int64(k), *_strides(a), *_strides(b))
    _module().get_function(name)(grid, (_THREADS,), (a, b, out, *sizes, cp.int32(dtype == "fp16")))
    return out


def reference_sum(a: Any, b: Any, dtype: str) -> Any:
    """A·Bᵀ, products and sums in float64."""
    return _product("reference_sum", a, b, dtype)


def reference_magnitude(a: Any, b: Any, dtype: str) -> Any:
    """|A|·|B|ᵀ in float32."""
    return _product("reference_magnitude", a, b, dtype)


def reference_exact(a: Any, b: Any, dtype: str) -> Any:
    """A·Bᵀ in float32, exact where every partial sum is an integer below 2^24."""
    return _product("reference_exact", a, b, dtype)
