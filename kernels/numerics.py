"""Whether an output is right: bit for bit on exact inputs, within bounds on random ones.

Runs on numpy and CuPy arrays alike; every element and every guard word is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.bits import POISON, canonical, from_float32, to_float32, ulp
from kernels.inputs import chunks

GUARD_ELEMENTS = 4096  # before and after C; 8 KiB keeps C's base aligned
REL_ERROR_LIMIT = {"bf16": 3e-3, "fp16": 1e-3}
"""Relative Frobenius error allowed on random normal inputs."""
ACCUMULATE_EPSILON = 2.0**-24  # fp32 accumulation: relative error of one addition


@dataclass(frozen=True, slots=True)
class GuardedOutput:
    """C inside its guard bands: m rows of n elements, ldc apart, in a flat uint16 buffer."""

    m: int
    n: int
    ldc: int

    @property
    def elements(self) -> int:
        """Length of the flat buffer."""
        return 2 * GUARD_ELEMENTS + self.m * self.ldc

    def poison(self, buffer: Any) -> None:
        """Fill output and guards with the poison NaN."""
        buffer.fill(POISON)

    def rows(self, buffer: Any) -> Any:
        """C and the gaps between its rows: a view of shape (m, ldc)."""
        return buffer[GUARD_ELEMENTS : GUARD_ELEMENTS + self.m * self.ldc].reshape(self.m, self.ldc)

    def output(self, buffer: Any) -> Any:
        """C alone: a view of shape (m, n)."""
        return self.rows(buffer)[:, : self.n]

    def guards_changed(self, xp: Any, buffer: Any) -> int:
        """How many words outside C no longer hold the poison, bit for bit."""
        poison = xp.uint16(POISON)
        changed = (buffer[:GUARD_ELEMENTS] != poison).sum()
        changed += (buffer[GUARD_ELEMENTS + self.m * self.ldc :] != poison).sum()
        if self.ldc > self.n:
            changed += (self.rows(buffer)[:, self.n :] != poison).sum()
        return int(changed)


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


def _record(xp: Any, finding: Finding, bad: Any, got: Any, wanted: Any, first_row: int) -> None:
    """Count the bad elements of a chunk and keep the first one's place and values."""
    finding.checked += int(bad.size)
    wrong = int(bad.sum())
    if not wrong:
        return
    finding.wrong += wrong
    finding.unwritten += int((bad & (got == xp.uint16(POISON))).sum())
    if finding.first is None:
        row, column = divmod(int(bad.ravel().argmax()), int(bad.shape[1]))
        bits = int(got[row, column])
        finding.first = (
            f"row {first_row + row}, column {column}: bits {bits:#06x}, "
            f"expected {wanted(row, column)}"
        )


def check_exact(
    xp: Any, finding: Finding, got: Any, expected: Any, dtype: str, first_row: int = 0
) -> None:
    """Hold output rows (bits) against exact sums (float32, same shape), bit for bit.

    The sums must be representable in ``dtype``; -0 equals +0.
    """
    for first, last in chunks(*got.shape):
        wanted = from_float32(xp, expected[first:last].astype(xp.float32), dtype)
        part = xp.ascontiguousarray(got[first:last])
        bad = canonical(xp, part) != canonical(xp, wanted)

        def words(row: int, column: int, wanted: Any = wanted) -> str:
            return f"{int(wanted[row, column]):#06x}"

        _record(xp, finding, bad, part, words, first_row + first)


def check_statistical(
    xp: Any,
    finding: Finding,
    got: Any,
    reference: Any,
    magnitude: Any,
    k: int,
    dtype: str,
    first_row: int = 0,
) -> None:
    """Hold output rows (bits) against an fp64 reference of the same shape.

    ``magnitude`` is |A|·|B|. An element is right within one unit in the last place of
    ``dtype`` plus k·2^-24·magnitude; a NaN never is. Adds to the Frobenius sums.
    """
    for first, last in chunks(*got.shape):
        part = xp.ascontiguousarray(got[first:last])
        wanted = reference[first:last]
        error = xp.abs(to_float32(xp, part, dtype).astype(xp.float64) - wanted)
        slack = k * ACCUMULATE_EPSILON * magnitude[first:last]
        bad = ~(error <= ulp(xp, wanted, dtype) + slack)
        finding.error_square += float((error * error).sum())
        finding.reference_square += float((wanted * wanted).sum())

        def words(row: int, column: int, wanted: Any = wanted) -> str:
            return f"{float(wanted[row, column]):.9g}"

        _record(xp, finding, bad, part, words, first_row + first)


def numpy_product(xp: Any, a: Any, b: Any, dtype: str) -> Any:
    """A·Bᵀ in float64 from bits a (rows×k) and b (n×k): the reference without a GPU."""
    return to_float32(xp, a, dtype).astype(xp.float64) @ (
        to_float32(xp, b, dtype).astype(xp.float64).T
    )
