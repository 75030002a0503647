"""Matrices in memory where a problem says: pitch, offset from a 16-byte boundary, surroundings.

Works on numpy and CuPy arrays alike; elements are bits (``kernels.bits``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.bits import bits_type, poison
from kernels.inputs import chunks
from solver.problem import VECTOR_BYTES, Matrix, Problem

GUARD_ELEMENTS = 4096  # before and after a matrix that stands alone


@dataclass(frozen=True, slots=True)
class Placed:
    """One operand in a flat ``buffer`` of uint16 or uint32, its first element at ``first``.

    ``across``: the matrix that the product sees has its columns, not its rows, along the lines
    of memory. What lies between the lines and around them belongs to nobody.
    """

    buffer: Any
    first: int
    matrix: Matrix
    across: bool

    @property
    def address(self) -> int:
        """Address of the first element, ``matrix.offset`` elements past a multiple of 16."""
        return _address(self.buffer) + self.first * int(self.buffer.itemsize)

    @property
    def lines(self) -> Any:
        """The matrix as it lies in memory: a view of shape (lines, length)."""
        return self._strided(0, self.matrix.lines, self.matrix.length)

    @property
    def view(self) -> Any:
        """The matrix as the product sees it, a view: A is m×k, B n×k, C m×n."""
        return self.lines.T if self.across else self.lines

    def _strided(self, skipped: int, lines: int, length: int) -> Any:
        """``length`` elements of each line after ``skipped`` ones."""
        xp = np if isinstance(self.buffer, np.ndarray) else _cupy()
        size = int(self.buffer.itemsize)
        return xp.lib.stride_tricks.as_strided(
            self.buffer[self.first + skipped :], (lines, length), (self.matrix.pitch * size, size)
        )

    def poison(self) -> None:
        """Fill the whole buffer with NaN: matrix, gaps and what lies around."""
        self.buffer.fill(poison(self.buffer))

    def surroundings_changed(self) -> int:
        """How many words of the buffer outside the matrix no longer hold the poison, bit for
        bit."""
        matrix, clean = self.matrix, poison(self.buffer)
        changed = int((self.buffer[: self.first] != clean).sum())
        changed += int((self.buffer[self.first + matrix.elements :] != clean).sum())
        gap, gaps = matrix.pitch - matrix.length, matrix.lines - 1
        if gap and gaps:
            between = self._strided(matrix.length, gaps, gap)
            for first, last in chunks(gaps, gap):
                changed += int((between[first:last] != clean).sum())
        return changed


@dataclass(frozen=True, slots=True)
class OperandSet:
    """A, B and C of one launch."""

    a: Placed
    b: Placed
    c: Placed


def place_in(buffer: Any, start_bytes: int, matrix: Matrix, across: bool) -> Placed:
    """A matrix in a buffer, at the first place from ``start_bytes`` on that has its offset."""
    size = matrix.element_bytes
    padding = (matrix.offset * size - _address(buffer) - start_bytes) % VECTOR_BYTES
    return Placed(buffer, (start_bytes + padding) // size, matrix, across)


def place(xp: Any, matrix: Matrix, dtype: str, across: bool) -> Placed:
    """A matrix in a buffer of its own between guard bands, everything poisoned."""
    room = VECTOR_BYTES // matrix.element_bytes
    buffer = xp.empty(matrix.elements + 2 * GUARD_ELEMENTS + room, bits_type(xp, dtype))
    placed = place_in(buffer, GUARD_ELEMENTS * matrix.element_bytes, matrix, across)
    placed.poison()
    return placed


def place_operands(xp: Any, problem: Problem) -> OperandSet:
    """A, B and C of a problem, each in a buffer of its own: guarded and poisoned."""
    return OperandSet(
        place(xp, problem.a, problem.dtype, not problem.a_is_k_major),
        place(xp, problem.b, problem.dtype, not problem.b_is_k_major),
        place(xp, problem.c, problem.out, False),
    )


def _address(buffer: Any) -> int:
    return int(buffer.ctypes.data if isinstance(buffer, np.ndarray) else buffer.data.ptr)


def _cupy() -> Any:
    import cupy

    return cupy
