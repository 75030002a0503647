"""How operands come to a kernel of the Hopper GEMM family: as they lie, or copied first."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from solver.families.sm90_gemm import BOX_STEP, SWIZZLE_K, swizzle_n
from solver.problem import VECTOR_BYTES, Matrix, Problem


def requested_m(columns: Mapping[str, Any], problem: Problem) -> Any:
    """Rows of A that are asked for a tile: the tile's, cut to those that exist.

    Rounded up to BOX_STEP for each CTA of a cluster that shares the tile, or to the swizzle's
    width where A is contiguous along m.
    """
    step = _shared_step(columns["cluster_n"]) if problem.a_is_k_major else SWIZZLE_K
    return np.minimum(columns["tile_m"], -(-problem.m // step) * step)


def requested_n(columns: Mapping[str, Any], problem: Problem) -> Any:
    """Columns of B that are asked for a tile, as ``requested_m``."""
    if problem.b_is_k_major:
        step = _shared_step(columns["cluster_m"])
    else:
        step = swizzle_n(columns["tile_n"])
    return np.minimum(columns["tile_n"], -(-problem.n // step) * step)


def _shared_step(sharers: Any) -> Any:
    """What lines of a tile are asked for in: each sharer's part starts where the swizzle does."""
    return np.where(sharers > 1, BOX_STEP * sharers, 1)


def stores_by_tma(problem: Problem) -> bool:
    """Whether TMA can store C: it writes whole pieces of 16 bytes, the last of a row too."""
    return problem.c.aligned and problem.n * problem.out_bytes % VECTOR_BYTES == 0


def copied_operands(problem: Problem) -> tuple[str, ...]:
    """Which of "a" and "b" TMA can't take, so that an aligned copy is made first."""
    return tuple(name for name, x in (("a", problem.a), ("b", problem.b)) if not x.aligned)


@lru_cache(maxsize=1024)  # a fit asks some hundred problems ten thousand times over
def _copied(problem: Problem) -> tuple[Matrix, ...]:
    matrices = {"a": problem.a, "b": problem.b}
    return tuple(matrices[name] for name in copied_operands(problem))


def copied_bytes(problem: Problem) -> int:
    """Bytes of the elements of operands that are copied first: what the copies read."""
    return sum(x.lines * x.length * x.element_bytes for x in _copied(problem))


def copy_bytes(problem: Problem) -> int:
    """Bytes of the aligned copies that a launch makes first, padding included."""
    return sum(x.lines * copy_pitch(x.length) * x.element_bytes for x in _copied(problem))


def memory_bytes(problem: Problem) -> int:
    """Device memory that the operands and their aligned copies take."""
    return problem.storage_bytes + copy_bytes(problem)


def copy_pitch(length: int) -> int:
    """Pitch in elements of the aligned copy of an operand that TMA can't take: whole rows of 128
    bytes, or the least power of two that holds a shorter line and starts on 16 bytes."""
    step = min(SWIZZLE_K, max(BOX_STEP, 1 << (length - 1).bit_length()))
    return -(-length // step) * step
