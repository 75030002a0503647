"""Whether an output is right: bit for bit on exact inputs, within bounds on random ones.

Runs on numpy and CuPy arrays alike; every element is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.bits import FRACTION_BITS, canonical, from_float32, poison, to_float32, ulp
from kernels.inputs import chunks

REL_ERROR_LIMIT = {"bf16": 3e-3, "fp16": 1e-3, "fp32": 1e-5}
"""Relative Frobenius error allowed on random normal inputs, by output type."""
LONG_K = 4096  # beyond, tensor cores' own truncation is what the error is made of
RANDOM_ELEMENTS = 256  # outputs over which the random round's Frobenius error is taken
FP32_EPSILON = 2.0**-24  # relative error of one rounding to fp32


def rel_error_limit(dtype: str, k: int) -> float:
    """Relative Frobenius error allowed for an output of ``dtype`` that sums k products.

    Tensor cores truncate the fp32 sum at each step of 16 products, and the error of that grows
    with k: on an H200, normal inputs in bf16 and 128×128 outputs, 4.5e-6, 1.9e-5 and 7.6e-5 at
    k = 4,096, 16,384 and 65,536. Shares of a split k are shorter sums: a fourth of it at split_k 4.
    """
    return max(REL_ERROR_LIMIT[dtype], REL_ERROR_LIMIT["fp32"] * k / LONG_K)


def exact_to(dtype: str) -> int:
    """The integer up to which ``dtype`` holds every integer."""
    return int(2 ** (FRACTION_BITS[dtype] + 1))


@dataclass(frozen=True, slots=True)
class Scaling:
    """The scalars of C = alpha·A·B + beta·C."""

    alpha: float = 1.0
    beta: float = 0.0

    def of(self, products: Any, c: Any = None) -> Any:
        """The output for these sums of products and what C held, in the products' own type.

        C is not looked at where beta is 0.
        """
        scaled = products * self.alpha
        return scaled if self.beta == 0 else scaled + c.astype(products.dtype) * self.beta

    def slack(self, k: int, magnitude: Any, c: Any = None) -> Any:
        """How far fp32 arithmetic may be off, as float64, before the output is rounded.

        One rounding for each of k additions of |A|·|B| (``magnitude``); where alpha and beta
        come in, two more of that and two of beta·C.
        """
        steps = k if self == Scaling() else k + 2
        slack = magnitude.astype("float64") * (steps * FP32_EPSILON * abs(self.alpha))
        if self.beta != 0:
            slack += abs(c).astype("float64") * (2 * FP32_EPSILON * abs(self.beta))
        return slack


@dataclass(slots=True)
class Finding:
    """What a check found over all rows seen so far.

    ``wrong`` elements out of ``checked``, ``unwritten`` of them still poisoned; the first
    wrong one in words; ``error_square`` and ``reference_square`` are the sums that make the
    relative Frobenius error; ``counters_left`` counts launches that did not leave the split-K
    counters zero, on which the next launch would go wrong.
    """

    checked: int = 0
    wrong: int = 0
    unwritten: int = 0
    guards_changed: int = 0
    counters_left: int = 0
    first: str | None = None
    error_square: float = 0.0
    reference_square: float = 0.0

    @property
    def rel_error(self) -> float:
        """Relative Frobenius error; NaN where the output holds one."""
        if self.reference_square == 0.0:
            return 0.0 if self.error_square == 0.0 else float("inf")
        return float((self.error_square / self.reference_square) ** 0.5)

    @property
    def exact(self) -> bool:
        """Nothing wrong, no guard touched, counters as they were."""
        return not (self.wrong or self.guards_changed or self.counters_left)

    def describe(self, what: str) -> str:
        """The finding in a sentence, for a failed verification."""
        parts = []
        if self.wrong:
            parts.append(f"{self.wrong} of {self.checked} elements wrong")
            if self.unwritten:
                parts.append(f"{self.unwritten} of them never written")
            parts.append(f"the first at {self.first}")
        if self.guards_changed:
            parts.append(f"{self.guards_changed} guard words around C overwritten")
        if self.counters_left:
            parts.append(f"split-K counters left non-zero by {self.counters_left} launches")
        return f"{what}: " + (", ".join(parts) if parts else "nothing wrong")


def _hex(bits: Any, like: Any) -> str:
    return f"{int(bits):#0{2 + 2 * like.itemsize}x}"


def _record(finding: Finding, bad: Any, got: Any, wanted: Any, first_row: int) -> None:
    """Count the bad elements of a chunk and keep the first one's place and values."""
    finding.checked += int(bad.size)
    wrong = int(bad.sum())
    if not wrong:
        return
    finding.wrong += wrong
    finding.unwritten += int((bad & (got == poison(got))).sum())
    if finding.first is None:
        row, column = divmod(int(bad.ravel().argmax()), int(bad.shape[1]))
        bits = int(got[row, column])
        finding.first = (
            f"row {first_row + row}, column {column}: bits {_hex(bits, got)}, "
            f"expected {wanted(row, column)}"
        )


def check_exact(
    xp: Any, finding: Finding, got: Any, expected: Any, dtype: str, first_row: int = 0
) -> None:
    """Hold output rows (bits) against exact results (any float type, same shape), bit for bit.

    The results must be representable in ``dtype``, C's type; -0 equals +0.
    """
    for first, last in chunks(*got.shape):
        wanted = from_float32(xp, expected[first:last].astype(xp.float32), dtype)
        part = xp.ascontiguousarray(got[first:last])
        bad = canonical(xp, part) != canonical(xp, wanted)

        def words(row: int, column: int, wanted: Any = wanted) -> str:
            return _hex(wanted[row, column], wanted)

        _record(finding, bad, part, words, first_row + first)


def check_statistical(
    xp: Any,
    finding: Finding,
    got: Any,
    reference: Any,
    slack: Any,
    dtype: str,
    first_row: int = 0,
) -> None:
    """Hold output rows (bits) against an fp64 reference of the same shape.

    An element is right within one unit in the last place of ``dtype``, C's type, plus its
    ``slack``; a NaN never is. Adds to the Frobenius sums.
    """
    for first, last in chunks(*got.shape):
        part = xp.ascontiguousarray(got[first:last])
        wanted = reference[first:last]
        error = xp.abs(to_float32(xp, part, dtype).astype(xp.float64) - wanted)
        bad = ~(error <= ulp(xp, wanted, dtype) + slack[first:last])
        finding.error_square += float((error * error).sum())
        finding.reference_square += float((wanted * wanted).sum())

        def words(row: int, column: int, wanted: Any = wanted) -> str:
            return f"{float(wanted[row, column]):.9g}"

        _record(finding, bad, part, words, first_row + first)
