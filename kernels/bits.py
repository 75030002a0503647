"""Floating-point values of 16 and 32 bits as their bits, on numpy and CuPy arrays alike.

Neither library has bf16, so operands and results are unsigned integers here, uint16 or, for
fp32, uint32; ``xp`` is the array module. Conversions are exact, or round to nearest even where
they narrow.
"""

from __future__ import annotations

from typing import Any

FRACTION_BITS = {"bf16": 7, "fp16": 10, "fp32": 23}
_MIN_EXPONENT = {"bf16": -126, "fp16": -14, "fp32": -126}


def bits_type(xp: Any, dtype: str) -> Any:
    """The unsigned integer type that holds one element of ``dtype``."""
    return xp.uint32 if dtype == "fp32" else xp.uint16


def to_host(cp: Any, array: Any) -> Any:
    """A numpy copy of a CuPy array, once what CuPy's current stream holds is done.

    It is made contiguous here: CuPy copies another within a ``with stream``, whose end forgets a
    stream that was chosen by ``use``, as a session's is, and what is read later waits for nothing.
    """
    return cp.asnumpy(cp.ascontiguousarray(array))


def poison(bits: Any) -> Any:
    """What memory of the array's type holds before anything is written: a NaN as bf16, fp16
    and fp32, as a scalar of that type."""
    return bits.dtype.type(0x7FE17FE1 if bits.itemsize == 4 else 0x7FE1)


def to_float32(xp: Any, bits: Any, dtype: str) -> Any:
    """The values of elements, exactly, as float32."""
    if dtype == "fp32":
        return bits.view(xp.float32)
    if dtype == "fp16":
        return bits.view(xp.float16).astype(xp.float32)
    return (bits.astype(xp.uint32) << xp.uint32(16)).view(xp.float32)


def from_float32(xp: Any, values: Any, dtype: str) -> Any:
    """float32 values rounded to nearest even, as bits. Finite inputs only."""
    if dtype == "fp32":
        return values.view(xp.uint32)
    if dtype == "fp16":
        return values.astype(xp.float16).view(xp.uint16)
    raw = values.view(xp.uint32)
    rounding = xp.uint32(0x7FFF) + ((raw >> xp.uint32(16)) & xp.uint32(1))
    return ((raw + rounding) >> xp.uint32(16)).astype(xp.uint16)


def canonical(xp: Any, bits: Any) -> Any:
    """The bits with -0 turned into +0."""
    kind = bits.dtype.type
    return xp.where(bits == kind(1 << (8 * bits.itemsize - 1)), kind(0), bits)


def ulp(xp: Any, values: Any, dtype: str) -> Any:
    """One unit in the last place of ``dtype`` at each float64 value's magnitude, as float64.

    The spacing of the binade that holds the value; below the least normal number the
    spacing of subnormals.
    """
    _, exponent = xp.frexp(values)
    exponent = xp.maximum(exponent - 1, _MIN_EXPONENT[dtype]) - FRACTION_BITS[dtype]
    return xp.ldexp(xp.ones_like(values), exponent)
