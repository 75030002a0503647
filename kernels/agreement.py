"""Whether two libraries' outputs of one product on random inputs are the same but for rounding.

Runs on numpy and CuPy arrays alike.
"""

from __future__ import annotations

from typing import Any

from kernels.bits import to_float32, ulp
from kernels.inputs import chunks
from kernels.numerics import rel_error_limit

# Times what one output may be off by an fp64 reference (``kernels.numerics``): both are rounded,
# and a library may round the partial sums of a split k to C's type as well.
WHOLE = 4.0
# An element may be off by so many times that whole, of the elements' size, and by two units in
# the last place: one that was not written, or belongs elsewhere, is off by more.
ELEMENT = 8.0


def disagreement(xp: Any, got: Any, wanted: Any, dtype: str, k: int) -> str | None:
    """What is wrong with an output (bits, m×n) next to another one of the same product; None
    where nothing is.

    Held against each other: every element, and the relative Frobenius error. ``dtype`` is C's
    type and ``k`` how many products each element sums.
    """
    limit = WHOLE * rel_error_limit(dtype, k)
    wanted_square = sum(
        float((_values(xp, wanted[low:high], dtype) ** 2).sum())
        for low, high in chunks(*wanted.shape)
    )
    slack = ELEMENT * limit * (wanted_square / wanted.size) ** 0.5
    error_square, wrong = 0.0, 0
    for low, high in chunks(*wanted.shape):
        reference = _values(xp, wanted[low:high], dtype)
        error = xp.abs(_values(xp, got[low:high], dtype) - reference)
        wrong += int((~(error <= 2 * ulp(xp, reference, dtype) + slack)).sum())
        error_square += float((error * error).sum())
    if wrong:
        return f"{wrong} of {wanted.size} elements differ from ours"
    relative = (error_square / wanted_square) ** 0.5 if wanted_square else 0.0
    if not relative <= limit:
        return f"differs from ours by {relative:.3g}, at most {limit:.3g} is rounding"
    return None


def _values(xp: Any, bits: Any, dtype: str) -> Any:
    return to_float32(xp, xp.ascontiguousarray(bits), dtype).astype(xp.float64)
