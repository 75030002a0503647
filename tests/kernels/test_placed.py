"""Matrices placed in memory: addresses, views and surroundings, on numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.bits import poison, to_float32
from kernels.placed import GUARD_ELEMENTS, Placed, place, place_in, place_operands
from solver.problem import LAYOUTS, OUT_BYTES, Matrix, Problem

GAPPED = Matrix(lines=5, length=7, pitch=11, offset=3, element_bytes=2)


def problems() -> st.SearchStrategy[Problem]:
    def build(draw: Any) -> Problem:
        m, n, k = (draw(st.integers(1, 40)) for _ in range(3))
        layout, out = draw(st.sampled_from(LAYOUTS)), draw(st.sampled_from(sorted(OUT_BYTES)))
        gaps = [draw(st.integers(0, 20)) for _ in range(3)]
        return Problem(
            m,
            n,
            k,
            layout=layout,
            out_dtype=out,
            lda=(k if layout[0] == "t" else m) + gaps[0],
            ldb=(k if layout[1] == "n" else n) + gaps[1],
            ldc=n + gaps[2],
            a_offset=draw(st.integers(0, 7)),
            b_offset=draw(st.integers(0, 7)),
            c_offset=draw(st.integers(0, 16 // OUT_BYTES[out] - 1)),
        )

    return st.composite(build)()


@given(problem=problems())
def test_an_operand_lies_where_the_problem_says(problem: Problem) -> None:
    operands = place_operands(np, problem)
    for placed, matrix, shape, column_major in (
        (operands.a, problem.a, (problem.m, problem.k), not problem.a_is_k_major),
        (operands.b, problem.b, (problem.n, problem.k), not problem.b_is_k_major),
        (operands.c, problem.c, (problem.m, problem.n), False),
    ):
        size = matrix.element_bytes
        assert placed.address % 16 == matrix.offset * size
        assert placed.view.ctypes.data == placed.address
        assert placed.view.shape == shape
        strides = (size, matrix.pitch * size) if column_major else (matrix.pitch * size, size)
        assert placed.view.strides == strides
        assert placed.buffer.itemsize == size


@given(problem=problems())
def test_all_around_an_operand_is_nan_and_stays_so(problem: Problem) -> None:
    operands = place_operands(np, problem)
    for placed, dtype in (
        (operands.a, problem.dtype),
        (operands.b, problem.dtype),
        (operands.c, problem.out),
    ):
        assert np.isnan(to_float32(np, placed.buffer, dtype)).all()
        placed.view[...] = 0
        assert placed.surroundings_changed() == 0
        assert np.isnan(to_float32(np, placed.buffer, dtype)).sum() == (
            placed.buffer.size - placed.matrix.lines * placed.matrix.length
        )


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize(
    "place_of",
    [
        lambda placed: 0,
        lambda placed: placed.first - 1,
        lambda placed: placed.first + 7,
        lambda placed: placed.first + 11 + 10,
        lambda placed: placed.first + placed.matrix.elements,
        lambda placed: placed.buffer.size - 1,
    ],
    ids=["first", "just before", "gap's start", "gap's end", "just after", "last"],
)
def test_a_word_overwritten_anywhere_around_is_counted(place_of: Any, dtype: str) -> None:
    placed = place(np, GAPPED, dtype, across=False)
    placed.buffer[place_of(placed)] = 0
    assert placed.surroundings_changed() == 1


def test_gaps_are_looked_at_in_chunks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.inputs.CHUNK_ELEMENTS", 6)
    placed = place(np, GAPPED, "bf16", across=False)
    placed.lines.fill(1)
    for line in range(4):
        placed.buffer[placed.first + line * 11 + 7 + line] = 0
    assert placed.surroundings_changed() == 4


def test_there_is_no_gap_behind_the_last_line() -> None:
    placed = place(np, Matrix(3, 4, 2**20, 0, 2), "bf16", across=False)
    assert placed.buffer.size == 2 * 2**20 + 4 + 2 * GUARD_ELEMENTS + 8


def test_poisoning_fills_what_was_written() -> None:
    placed = place(np, GAPPED, "fp16", across=True)
    placed.view.fill(0x3C00)
    placed.poison()
    assert (placed.buffer == poison(placed.buffer)).all()


@pytest.mark.parametrize("offset", range(8))
def test_a_place_in_a_pool_starts_within_16_bytes_of_where_it_may(offset: int) -> None:
    buffer = np.zeros(1000, np.uint16)
    for start in (0, 2, 14, 512):
        placed: Placed = place_in(buffer, start, Matrix(4, 9, 30, offset, 2), across=False)
        assert placed.address % 16 == 2 * offset
        assert 0 <= placed.first - start // 2 < 8
