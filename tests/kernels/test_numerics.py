"""The checker must see every kind of wrong output. All of it on numpy, by planted errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.bits import POISON, canonical, from_float32, to_float32, ulp
from kernels.inputs import NONZEROS, normal, sparse_draws, sparse_order, sparse_signs, ternary
from kernels.numerics import (
    GUARD_ELEMENTS,
    REL_ERROR_LIMIT,
    Finding,
    GuardedOutput,
    check_exact,
    check_statistical,
    numpy_product,
)

DTYPES = ["bf16", "fp16"]
SEED = 20261129
Bits = np.ndarray[Any, Any]


def run(product: Any, dtype: str, ldc: int | None = None) -> tuple[GuardedOutput, Bits]:
    """A kernel that is right: the product, rounded, in a poisoned and guarded buffer."""
    m, n = product.shape
    guarded = GuardedOutput(m, n, n if ldc is None else ldc)
    buffer = np.empty(guarded.elements, np.uint16)
    guarded.poison(buffer)
    guarded.output(buffer)[...] = from_float32(np, product.astype(np.float32), dtype)
    return guarded, buffer


def exact_inputs(m: int, n: int, k: int, dtype: str) -> tuple[Bits, Bits]:
    order = sparse_order(np, k, SEED)
    return sparse_signs(np, order, m, dtype, SEED, draw=0), ternary(np, n, k, dtype, SEED, stream=1)


def exact_finding(guarded: GuardedOutput, buffer: Bits, expected: Bits, dtype: str) -> Finding:
    finding = Finding()
    check_exact(np, finding, guarded.output(buffer), expected, dtype)
    finding.guards_changed += guarded.guards_changed(np, buffer)
    return finding


def random_finding(m: int, n: int, k: int, dtype: str, spoil: Any = None) -> Finding:
    """The statistical check of a right product, spoiled by ``spoil(bits, reference)``."""
    a = normal(np, m, k, dtype, SEED, stream=2)
    b = normal(np, n, k, dtype, SEED, stream=3)
    reference = numpy_product(np, a, b, dtype)
    magnitude = numpy_product(np, a & 0x7FFF, b & 0x7FFF, dtype)
    got = from_float32(np, reference.astype(np.float32), dtype)
    if spoil is not None:
        spoil(got, reference)
    finding = Finding()
    check_statistical(np, finding, got, reference, magnitude, k, dtype)
    return finding


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_finite_value_survives_the_way_to_float32_and_back(dtype: str) -> None:
    bits = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    values = to_float32(np, bits, dtype)
    finite = np.isfinite(values)
    assert np.array_equal(from_float32(np, values[finite], dtype), bits[finite])


def test_bf16_rounds_halves_to_even() -> None:
    values = np.asarray([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20], np.float32)
    rounded = to_float32(np, from_float32(np, values, "bf16"), "bf16")
    assert rounded.tolist() == [1.0, 1 + 2**-6, 1 + 2**-7]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_unit_in_the_last_place_is_the_gap_to_the_next_value(dtype: str) -> None:
    bits = np.asarray([0x0001, 0x0080, 0x0400, 0x1234, 0x3F80, 0x3FFF, 0x5001], np.uint16)
    values = to_float32(np, bits, dtype).astype(np.float64)
    gaps = to_float32(np, bits + np.uint16(1), dtype).astype(np.float64) - values
    assert np.array_equal(ulp(np, values, dtype), gaps)
    assert np.array_equal(ulp(np, -values, dtype), gaps)


def test_poison_is_a_nan_in_both_types() -> None:
    for dtype in DTYPES:
        assert np.isnan(to_float32(np, np.asarray([POISON], np.uint16), dtype)).all()


def test_negative_zero_equals_zero_and_nothing_else_changes() -> None:
    bits = np.asarray([0x8000, 0x0000, 0x8001, POISON], np.uint16)
    assert canonical(np, bits).tolist() == [0, 0, 0x8001, POISON]


@pytest.mark.parametrize(("m", "k"), [(1, 8), (1, 4096), (3, 1000), (16, 8192), (64, 16384)])
def test_the_draws_of_a_cover_every_k_with_few_signs_in_each_row(m: int, k: int) -> None:
    order = sparse_order(np, k, SEED)
    planned = sparse_draws(m, k)
    met = np.zeros(k, bool)
    for draw in range(planned.draws):
        values = to_float32(np, sparse_signs(np, order, m, "bf16", SEED, draw), "bf16")
        assert set(np.unique(values)) <= {-1.0, 0.0, 1.0}
        assert (np.count_nonzero(values, axis=1) == min(NONZEROS, k)).all()
        met |= values.any(axis=0)
    assert planned.k_coverage == 1.0
    assert met.all()


def test_every_block_of_64_rows_covers_every_k() -> None:
    m, k = 192, 20000
    order = sparse_order(np, k, SEED)
    draws = [
        to_float32(np, sparse_signs(np, order, m, "bf16", SEED, draw), "bf16")
        for draw in range(sparse_draws(m, k).draws)
    ]
    for first in range(0, m, 64):
        assert np.any([d[first : first + 64].any(axis=0) for d in draws], axis=0).all()


def test_a_k_beyond_the_most_draws_is_reported_as_covered_in_part() -> None:
    planned = sparse_draws(1, 2**20)
    assert planned.draws == 1024
    assert planned.k_coverage == 0.25


def test_inputs_follow_the_seed_and_the_stream() -> None:
    first = normal(np, 4, 64, "bf16", 1, 0)
    assert np.array_equal(first, normal(np, 4, 64, "bf16", 1, 0))
    assert not np.array_equal(first, normal(np, 4, 64, "bf16", 2, 0))
    assert not np.array_equal(first, normal(np, 4, 64, "bf16", 1, 1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_normal_inputs_have_mean_zero_and_deviation_one(dtype: str) -> None:
    values = to_float32(np, normal(np, 256, 1024, dtype, SEED, 0), dtype)
    assert np.isfinite(values).all()
    assert abs(float(values.mean())) < 0.01
    assert abs(float(values.std()) - 1) < 0.01


def test_ternary_inputs_take_each_value_a_third_of_the_time() -> None:
    values = to_float32(np, ternary(np, 300, 300, "bf16", SEED, 1), "bf16")
    shares = [float((values == v).mean()) for v in (-1, 0, 1)]
    assert sum(shares) == 1
    assert all(abs(share - 1 / 3) < 0.01 for share in shares)


def test_large_inputs_are_drawn_the_same_in_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = normal(np, 10, 100, "bf16", SEED, 0)
    signs = sparse_signs(np, sparse_order(np, 400, SEED), 10, "bf16", SEED, 0)
    monkeypatch.setattr("kernels.inputs.CHUNK_ELEMENTS", 300)
    assert np.array_equal(whole, normal(np, 10, 100, "bf16", SEED, 0))
    again = sparse_signs(np, sparse_order(np, 400, SEED), 10, "bf16", SEED, 0)
    assert np.array_equal(signs, again)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 8), (70, 33, 1032), (128, 64, 512)])
def test_a_right_product_passes_both_checks(m: int, n: int, k: int, dtype: str) -> None:
    a, b = exact_inputs(m, n, k, dtype)
    expected = numpy_product(np, a, b, dtype)
    assert exact_finding(*run(expected, dtype, n + 3), expected, dtype).exact
    finding = random_finding(m, n, k, dtype)
    assert finding.exact
    assert finding.checked == m * n
    assert finding.rel_error <= REL_ERROR_LIMIT[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_dropped_product_is_found_exactly(dtype: str) -> None:
    a, b = exact_inputs(64, 48, 4096, dtype)
    expected = numpy_product(np, a, b, dtype)
    left, right = to_float32(np, a, dtype), to_float32(np, b, dtype)
    k = int(np.flatnonzero(left[17] * right[5])[0])
    dropped = expected.copy()
    dropped[17, 5] -= left[17, k] * right[5, k]
    finding = exact_finding(*run(dropped, dtype), expected, dtype)
    assert finding.wrong == 1
    assert "row 17, column 5" in finding.describe("exact round")


def test_dropping_any_single_k_is_found_wherever_it_is() -> None:
    m, n, k = 64, 16, 2048
    a, b = exact_inputs(m, n, k, "bf16")
    expected = numpy_product(np, a, b, "bf16")
    left, right = to_float32(np, a, "bf16"), to_float32(np, b, "bf16")
    for lost in range(0, k, 37):
        spoiled = expected - np.outer(left[:, lost], right[:, lost])
        assert exact_finding(*run(spoiled, "bf16"), expected, "bf16").wrong


def test_a_wrong_k_tail_is_found() -> None:
    m, n, k = 64, 16, 1000
    a, b = exact_inputs(m, n, k, "bf16")
    expected = numpy_product(np, a, b, "bf16")
    without_tail = numpy_product(np, a[:, :960], b[:, :960], "bf16")
    assert exact_finding(*run(without_tail, "bf16"), expected, "bf16").wrong > m


def test_two_swapped_elements_are_found() -> None:
    a, b = exact_inputs(64, 48, 512, "bf16")
    expected = numpy_product(np, a, b, "bf16")
    swapped = expected.copy()
    row, column = np.argwhere(expected != expected[0, 0])[0]
    swapped[0, 0], swapped[row, column] = expected[row, column], expected[0, 0]
    assert exact_finding(*run(swapped, "bf16"), expected, "bf16").wrong == 2


def test_an_unwritten_element_is_found_and_named() -> None:
    a, b = exact_inputs(8, 8, 64, "bf16")
    expected = numpy_product(np, a, b, "bf16")
    guarded, buffer = run(expected, "bf16")
    guarded.output(buffer)[7, 7] = POISON
    finding = exact_finding(guarded, buffer, expected, "bf16")
    assert (finding.wrong, finding.unwritten) == (1, 1)
    assert "1 of them never written" in finding.describe("exact round")

    def spoil(got: Bits, reference: Bits) -> None:
        got[3, 2] = POISON

    finding = random_finding(8, 8, 64, "bf16", spoil)
    assert (finding.wrong, finding.unwritten) == (1, 1)
    assert not finding.rel_error <= REL_ERROR_LIMIT["bf16"]


@pytest.mark.parametrize(
    "place",
    [GUARD_ELEMENTS - 1, 0, GUARD_ELEMENTS + 8 * 11, GUARD_ELEMENTS + 8, 2 * GUARD_ELEMENTS + 87],
    ids=["just before", "first", "just after", "between rows", "last"],
)
def test_a_guard_overwritten_anywhere_is_found(place: int) -> None:
    expected = np.zeros((8, 8))
    guarded, buffer = run(expected, "bf16", ldc=11)
    buffer[place] = 0
    finding = exact_finding(guarded, buffer, expected, "bf16")
    assert finding.guards_changed == 1
    assert not finding.exact
    assert "1 guard words" in finding.describe("exact round")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("steps", [2, -2])
def test_an_error_of_two_units_is_found_where_the_sum_is_short(dtype: str, steps: int) -> None:
    def spoil(got: Bits, reference: Bits) -> None:
        place = np.unravel_index(np.abs(reference).argmax(), reference.shape)
        got[place] = int(got[place]) + steps

    assert random_finding(16, 16, 8, dtype, spoil).wrong == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_error_of_one_unit_is_allowed(dtype: str) -> None:
    def spoil(got: Bits, reference: Bits) -> None:
        low = np.abs(to_float32(np, got, dtype)) < np.abs(reference)
        got += low.astype(np.uint16)

    assert random_finding(16, 16, 8, dtype, spoil).exact


@pytest.mark.parametrize("bits", [0x7F80, 0xFF80, 0x7FC0])
def test_an_infinity_or_nan_is_found_in_a_bf16_output(bits: int) -> None:
    def spoil(got: Bits, reference: Bits) -> None:
        got[0, 0] = bits

    assert random_finding(16, 16, 64, "bf16", spoil).wrong == 1


def test_a_dropped_k_iteration_breaks_the_statistical_check() -> None:
    def spoil(got: Bits, reference: Bits) -> None:
        a = normal(np, 32, 2048, "bf16", SEED, stream=2)[:, :64]
        b = normal(np, 32, 2048, "bf16", SEED, stream=3)[:, :64]
        short = reference - numpy_product(np, a, b, "bf16")
        got[...] = from_float32(np, short.astype(np.float32), "bf16")

    finding = random_finding(32, 32, 2048, "bf16", spoil)
    assert finding.wrong > 500
    assert finding.rel_error > 10 * REL_ERROR_LIMIT["bf16"]


def test_negative_zero_in_the_output_is_right() -> None:
    expected = np.zeros((2, 2))
    guarded, buffer = run(expected, "bf16")
    guarded.output(buffer)[0, 1] = 0x8000
    assert exact_finding(guarded, buffer, expected, "bf16").exact
