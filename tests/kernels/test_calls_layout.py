"""From arrays to a product: the problem reads and writes the elements that the arrays have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kernels.calls.arrays import BITS, Array
from kernels.calls.layout import Product, product_of, transposed
from solver.errors import InvalidProblem
from solver.problem import Matrix, Problem

SIZE = {"bf16": 2, "fp16": 2, "fp32": 4, BITS: 2}


def packed(at: int, rows: int, columns: int, dtype: str = "bf16") -> Array:
    return Array(at, (rows, columns), (columns, 1), dtype, 0)


A, B, C = packed(1 << 20, 4, 6), packed(2 << 20, 6, 5), packed(3 << 20, 4, 5)


def product(a: Array = A, b: Array = B, out: Array = C, *types: str | None) -> Product:
    return product_of(a, b, out, *(types or (None, None)))


def elements(array: Array) -> Any:
    """The address of each element."""
    rows, columns = (np.arange(extent) for extent in array.shape)
    row, column = array.strides
    return array.address + SIZE[array.dtype] * (rows[:, None] * row + columns * column)


def read(at: int, matrix: Matrix, by_rows: bool) -> Any:
    """The address of each element as the kernel finds it, by rows of the matrix."""
    lines = np.arange(matrix.lines)[:, None] * matrix.pitch + np.arange(matrix.length)
    addresses = at + matrix.element_bytes * lines
    return addresses if by_rows else addresses.T


def laid(base: int, rows: int, columns: int, gap: int, by_columns: bool, first: int) -> Array:
    if by_columns:
        return transposed(laid(base, columns, rows, gap, False, first))
    return Array(base + 2 * first, (rows, columns), (columns + gap, 1), "fp16", 0)


@given(
    st.tuples(*(st.integers(1, 9) for _ in range(3))),
    st.tuples(*(st.integers(0, 5) for _ in range(3))),
    st.tuples(*(st.booleans() for _ in range(3))),
    st.tuples(*(st.integers(0, 7) for _ in range(3))),
)
def test_the_kernel_finds_every_element_where_the_arrays_have_it(
    extents: tuple[int, ...],
    gaps: tuple[int, ...],
    by_columns: tuple[bool, ...],
    firsts: tuple[int, ...],
) -> None:
    m, n, k = extents
    shapes = ((m, k), (k, n), (m, n))
    a, b, out = (
        laid((i + 1) << 20, *shapes[i], gaps[i], by_columns[i], firsts[i]) for i in range(3)
    )
    found = product(a, b, out)
    problem = Problem(found.m, found.n, found.k, **found.fields)
    if (found.a, found.b) != (a.address, b.address):  # the product of the transposed arrays
        a, b, out = transposed(b), transposed(a), transposed(out)
    assert np.array_equal(read(found.a, problem.a, problem.a_is_k_major), elements(a))
    assert np.array_equal(read(found.b, problem.b, not problem.b_is_k_major), elements(b))
    assert np.array_equal(read(found.c, problem.c, True), elements(out))
    offsets = (found.a, found.b, found.c)
    told = (problem.a_offset, problem.b_offset, problem.c_offset)
    assert [at % 16 // 2 for at in offsets] == list(told)


def test_what_pytorchs_linear_layer_multiplies_is_taken_as_it_lies() -> None:
    found = product(A, transposed(packed(2 << 20, 5, 6)), C)
    assert (found.fields["layout"], found.fields["lda"], found.fields["ldb"]) == ("tn", 6, 6)


@pytest.mark.parametrize("extent", ["m", "n", "k"])
def test_an_extent_of_zero_is_a_product_too(extent: str) -> None:
    sizes = {"m": 4, "n": 5, "k": 6} | {extent: 0}
    m, n, k = sizes.values()
    found = product(packed(0, m, k), packed(0, k, n), packed(3 << 20, m, n))
    assert (found.m, found.n, found.k) == (m, n, k)


@pytest.mark.parametrize(
    ("given_", "types", "inputs", "output"),
    [
        (("bf16", "bf16", "bf16"), (None, None), "bf16", "bf16"),
        (("fp16", "fp16", "fp32"), (None, None), "fp16", "fp32"),
        (("bf16", "bf16", "fp16"), (None, "fp16"), "bf16", "fp16"),
        ((BITS, BITS, BITS), ("bf16", None), "bf16", "bf16"),
        ((BITS, BITS, BITS), ("fp16", "bf16"), "fp16", "bf16"),
        ((BITS, "fp16", BITS), (None, None), "fp16", "fp16"),
        ((BITS, BITS, "fp32"), ("bf16", None), "bf16", "fp32"),
    ],
)
def test_types_are_the_arrays_or_said_of_bits(
    given_: tuple[str, str, str], types: tuple[str | None, str | None], inputs: str, output: str
) -> None:
    laid_out = (replace(x, dtype=kind) for x, kind in zip((A, B, C), given_, strict=True))
    fields = product_of(*laid_out, *types).fields
    assert (fields["dtype"], fields["out_dtype"]) == (inputs, output)


@pytest.mark.parametrize(
    ("arguments", "field", "words"),
    [
        ((replace(A, shape=(4, 6, 1)), B, C), "a", "3 dimensions"),
        ((A, replace(B, shape=(7, 5)), C), "b", "a's 6 columns as rows"),
        ((A, B, replace(C, shape=(5, 4))), "out", r"of shape \(4, 5\)"),
        ((A, replace(B, device=1), C), "b", "on a's device 0, got device 1"),
        ((A, replace(B, dtype="fp16"), C), "b", "a's type, got bf16, fp16"),
        ((replace(A, dtype="fp32"), replace(B, dtype="fp32"), C), "a", "bf16 or fp16, got fp32"),
        ((replace(A, dtype=BITS), replace(B, dtype=BITS), C), "dtype", "must say what uint16"),
        ((A, B, C, "fp16", None), "b", "dtype fp16"),
        ((A, B, C, None, "fp32"), "out", "must be of fp32, got bf16"),
        ((A, B, replace(C, dtype=BITS), None, "fp32"), "out", "must be of fp32, got uint16"),
        ((A, B, C, "fp8", None), "dtype", "must be one of"),
        ((A, B, C, None, "fp8"), "out_dtype", "must be one of"),
        ((replace(A, strides=(12, 2)), B, C), "a", "contiguous rows or columns"),
        ((replace(A, strides=(5, 1)), B, C), "a", "that do not overlap"),
        ((replace(A, strides=(0, 1)), B, C), "a", "that do not overlap"),
        ((A, replace(B, strides=(-5, 1)), C), "b", "contiguous rows or columns"),
        ((A, B, replace(C, strides=(10, 2))), "out", "contiguous rows or columns"),
        ((replace(A, address=(1 << 20) + 1), B, C), "a", "whole element of 2 bytes"),
        ((A, B, replace(C, address=A.address)), "out", "must not overlap a"),
        ((A, B, replace(C, address=B.address + 58)), "out", "must not overlap b"),
    ],
)
def test_what_cannot_be_multiplied_names_its_argument(
    arguments: tuple[Any, ...], field: str, words: str
) -> None:
    with pytest.raises(InvalidProblem, match=words) as raised:
        product(*arguments)
    assert raised.value.field == field


def test_a_wrong_argument_is_named_where_out_lies_by_columns_too() -> None:
    by_columns = replace(C, strides=(1, 4))
    with pytest.raises(InvalidProblem) as raised:
        product(replace(A, strides=(12, 2)), B, by_columns)
    assert raised.value.field == "a"
    with pytest.raises(InvalidProblem, match="overlap b"):
        product(A, B, replace(by_columns, address=B.address))


def test_different_columns_of_one_buffer_do_not_overlap() -> None:
    a = replace(A, strides=(16, 1))
    product(a, B, replace(C, strides=(16, 1), address=a.address + 2 * 6))
    product(
        replace(a, address=a.address + 2 * 5), B, replace(C, strides=(16, 1), address=a.address)
    )
    with pytest.raises(InvalidProblem, match="overlap a"):
        product(a, B, replace(C, strides=(16, 1), address=a.address + 2 * 5))


@given(st.integers(0, 40), st.integers(0, 3), st.integers(0, 3))
def test_arrays_that_share_an_element_are_always_refused(
    shift: int, gap_a: int, gap_c: int
) -> None:
    a = replace(A, strides=(6 + gap_a, 1))
    out = replace(C, strides=(5 + gap_c, 1), address=a.address - 40 + 2 * shift)
    assume(set(elements(a).ravel()) & set(elements(out).ravel()))
    with pytest.raises(InvalidProblem, match="overlap a"):
        product(a, B, out)
