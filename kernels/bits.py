"""16-bit floating-point values as their bits, on numpy and CuPy arrays alike.

Neither library has bf16, so operands and results are uint16 arrays here; ``xp`` is the array
module. Conversions are exact, or round to nearest even where they narrow.
"""

from __future__ import annotations

from typing import Any

POISON = 0x7FE1
"""A NaN in bf16 and in fp16: what an output holds before the kernel writes it."""

_FRACTION_BITS = {"bf16": 7, "fp16": 10}
_MIN_EXPONENT = {"bf16": -126, "fp16": -14}
_NEGATIVE_ZERO = 0x8000


def to_float32(xp: Any, bits: Any, dtype: str) -> Any:
    """The values of 16-bit elements, exactly, as float32."""
    if dtype == "fp16":
        return bits.view(xp.float16).astype(xp.float32)
    return (bits.astype(xp.uint32) << xp.uint32(16)).view(xp.float32)


def from_float32(xp: Any, values: Any, dtype: str) -> Any:
    """float32 values rounded to nearest even, as bits. Finite inputs only."""
    if dtype == "fp16":
        return values.astype(xp.float16).view(xp.uint16)
    raw = values.view(xp.uint32)
    rounding = xp.uint32(0x7FFF) + ((raw >> xp.uint32(16)) & xp.uint32(1))
    return ((raw + rounding) >> xp.uint32(16)).astype(xp.uint16)


def canonical(xp: Any, bits: Any) -> Any:
    """The bits with -0 turned into +0."""
    return xp.where(bits == xp.uint16(_NEGATIVE_ZERO), xp.uint16(0), bits)


def ulp(xp: Any, values: Any, dtype: str) -> Any:
    """One unit in the last place of ``dtype`` at each float64 value's magnitude, as float64.

    The spacing of the binade that holds the value; below the least normal number the
    spacing of subnormals.
    """
    _, exponent = xp.frexp(values)
    exponent = xp.maximum(exponent - 1, _MIN_EXPONENT[dtype]) - _FRACTION_BITS[dtype]
    return xp.ldexp(xp.ones_like(values), exponent)
