"""Operands for verification and timing: drawn from a seed, the same on numpy and CuPy.

Values come from a counter-based generator (splitmix64 over the element's index), so that
any row can be drawn alone, in any order, without a random library on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernels.bits import bits_type, from_float32

NONZEROS = 256
"""Non-zeros in a row of A: sums of that many ±1 are exact in every output type."""
ROW_BLOCK = 64  # rows among which every k is covered
MAX_DRAWS = 1024
CHUNK_ELEMENTS = 1 << 24  # bounds the temporaries of one step
_MASK = (1 << 64) - 1


def chunks(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that hold at most CHUNK_ELEMENTS elements (one row at least)."""
    step = max(1, CHUNK_ELEMENTS // columns)
    for first in range(0, rows, step):
        yield first, min(rows, first + step)


def _mix(xp: Any, index: Any, seed: int, stream: int) -> Any:
    """64 random bits per index: splitmix64's output function over index and seed."""
    start = (seed * 0x9E3779B97F4A7C15 + stream * 0xD1B54A32D192ED03 + 0x632BE59BD9B4E019) & _MASK
    z = index.astype(xp.uint64) * xp.uint64(0x9E3779B97F4A7C15) + xp.uint64(start)
    z = (z ^ (z >> xp.uint64(30))) * xp.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> xp.uint64(27))) * xp.uint64(0x94D049BB133111EB)
    return z ^ (z >> xp.uint64(31))


def _random(xp: Any, first: int, count: int, seed: int, stream: int) -> Any:
    return _mix(xp, xp.arange(first, first + count, dtype=xp.int64), seed, stream)


def _target(xp: Any, rows: int, columns: int, dtype: str, out: Any) -> Any:
    return xp.empty((rows, columns), bits_type(xp, dtype)) if out is None else out


def normal(
    xp: Any,
    rows: int,
    columns: int,
    dtype: str,
    seed: int,
    stream: int,
    *,
    first_row: int = 0,
    out: Any = None,
) -> Any:
    """Standard normal values rounded to ``dtype``: bits of shape (rows, columns).

    They are those from ``first_row`` on of the one matrix that seed and stream make. ``out``
    is filled where given, whatever its strides.
    """
    out = _target(xp, rows, columns, dtype, out)
    for first, last in chunks(rows, columns):
        place = (first_row + first) * columns
        drawn = _random(xp, place, (last - first) * columns, seed, stream)
        unit = xp.float32(2.0**-32)
        high = (drawn >> xp.uint64(32)).astype(xp.float32) * unit
        low = (drawn & xp.uint64(0xFFFFFFFF)).astype(xp.float32) * unit
        radius = xp.sqrt(xp.float32(-2) * xp.log(xp.maximum(high, unit)))
        values = radius * xp.cos(xp.float32(6.2831855) * low)
        out[first:last] = from_float32(xp, values, dtype).reshape(last - first, columns)
    return out


def integers(
    xp: Any,
    rows: int,
    columns: int,
    bound: int,
    dtype: str,
    seed: int,
    stream: int,
    *,
    first_row: int = 0,
    out: Any = None,
) -> Any:
    """Integers drawn evenly from -bound to bound, as ``normal`` draws its values.

    ``dtype`` must hold them exactly.
    """
    values = xp.arange(-bound, bound + 1, dtype=xp.int64).astype(xp.float32)
    table = from_float32(xp, values, dtype)
    out = _target(xp, rows, columns, dtype, out)
    for first, last in chunks(rows, columns):
        place = (first_row + first) * columns
        drawn = _random(xp, place, (last - first) * columns, seed, stream)
        choice = ((drawn >> xp.uint64(33)) % xp.uint64(2 * bound + 1)).astype(xp.int64)
        out[first:last] = table[choice].reshape(last - first, columns)
    return out


@dataclass(frozen=True, slots=True)
class SparseDraws:
    """How many draws of A cover every k, and whether MAX_DRAWS was enough for it."""

    draws: int
    k_coverage: float


def sparse_draws(m: int, k: int) -> SparseDraws:
    """Draws after which every k has met a non-zero within each block of ROW_BLOCK rows.

    A smaller last block is covered by the draws of the blocks above it only.
    """
    per_draw = min(NONZEROS, k) * min(ROW_BLOCK, m)
    needed = -(-k // per_draw)
    draws = min(needed, MAX_DRAWS)
    return SparseDraws(draws, min(1.0, draws * per_draw / k))


def sparse_order(xp: Any, k: int, seed: int) -> Any:
    """A random order of 0..k-1, in which ``sparse_signs`` deals out the places of k."""
    return xp.argsort(_random(xp, 0, k, seed, stream=101))


def sparse_signs(
    xp: Any,
    order: Any,
    m: int,
    dtype: str,
    seed: int,
    draw: int,
    *,
    nonzeros: int = NONZEROS,
    out: Any = None,
) -> Any:
    """Draw number ``draw`` of A: bits of shape (m, k), min(nonzeros, k) non-zeros of ±1 in a row.

    Row r takes the next places of ``order``, wrapped around, so that consecutive rows and
    draws cover every k (``sparse_draws`` counts them). ``out`` is filled where given.
    """
    k = int(order.size)
    per_row = min(nonzeros, k)
    signs = from_float32(xp, xp.asarray([-1.0, 1.0], xp.float32), dtype)
    out = _target(xp, m, k, dtype, out)
    out[...] = 0
    for first, last in chunks(m, per_row):
        row = xp.arange(first, last, dtype=xp.int64)[:, None]
        turn = draw * min(ROW_BLOCK, m) + row % ROW_BLOCK
        place = (turn * per_row + xp.arange(per_row, dtype=xp.int64)[None, :]) % k
        drawn = _random(xp, first * per_row, (last - first) * per_row, seed, stream=102 + draw)
        choice = (drawn >> xp.uint64(63)).astype(xp.int64).reshape(last - first, per_row)
        out[row, order[place]] = signs[choice]
    return out
