"""The checker must see every kind of wrong output. All of it on numpy, by planted errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.bits import bits_type, canonical, from_float32, poison, to_float32, ulp
from kernels.checking import C_BOUND, EXACT_SCALINGS, SCALED_NONZEROS
from kernels.inputs import NONZEROS, integers, normal, sparse_draws, sparse_order, sparse_signs
from kernels.numerics import (
    REL_ERROR_LIMIT,
    Finding,
    Scaling,
    check_exact,
    check_statistical,
    exact_to,
    rel_error_limit,
)
from kernels.placed import Placed, place
from solver.problem import Matrix
from tests.kernels.numpy_reference import numpy_product

DTYPES = ["bf16", "fp16"]
OUT_TYPES = ["bf16", "fp16", "fp32"]
SEED = 20261129
Bits = np.ndarray[Any, Any]


def run(product: Any, dtype: str, ldc: int | None = None) -> Placed:
    """A kernel that is right: the product, rounded, in a poisoned and guarded buffer."""
    m, n = product.shape
    size = np.dtype(bits_type(np, dtype)).itemsize
    placed = place(np, Matrix(m, n, n if ldc is None else ldc, 0, size), dtype, across=False)
    placed.view[...] = from_float32(np, product.astype(np.float32), dtype)
    return placed


def exact_inputs(m: int, n: int, k: int, dtype: str) -> tuple[Bits, Bits]:
    order = sparse_order(np, k, SEED)
    ternary = integers(np, n, k, 1, dtype, SEED, stream=1)
    return sparse_signs(np, order, m, dtype, SEED, draw=0), ternary


def exact_finding(placed: Placed, expected: Bits, dtype: str) -> Finding:
    finding = Finding()
    check_exact(np, finding, placed.view, expected, dtype)
    finding.guards_changed += placed.surroundings_changed()
    return finding


def random_finding(
    m: int, n: int, k: int, dtype: str, spoil: Any = None, out: str | None = None
) -> Finding:
    """The statistical check of a right product, spoiled by ``spoil(bits, reference)``."""
    out = out or dtype
    a = normal(np, m, k, dtype, SEED, stream=2)
    b = normal(np, n, k, dtype, SEED, stream=3)
    reference = numpy_product(a, b, dtype)
    magnitude = numpy_product(a & 0x7FFF, b & 0x7FFF, dtype)
    got = from_float32(np, reference.astype(np.float32), out)
    if spoil is not None:
        spoil(got, reference)
    finding = Finding()
    check_statistical(np, finding, got, reference, Scaling().slack(k, magnitude), out)
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


@pytest.mark.parametrize("dtype", OUT_TYPES)
def test_the_unit_in_the_last_place_is_the_gap_to_the_next_value(dtype: str) -> None:
    bits = np.asarray([0x0001, 0x0080, 0x0400, 0x1234, 0x3F80, 0x3FFF, 0x5001], np.uint16)
    if dtype == "fp32":
        bits = bits.astype(np.uint32) << 16 | bits
    values = to_float32(np, bits, dtype).astype(np.float64)
    gaps = to_float32(np, bits + bits.dtype.type(1), dtype).astype(np.float64) - values
    assert np.array_equal(ulp(np, values, dtype), gaps)
    assert np.array_equal(ulp(np, -values, dtype), gaps)


def test_poison_is_a_nan_in_every_type() -> None:
    for dtype in OUT_TYPES:
        bits = np.zeros(1, bits_type(np, dtype))
        bits[0] = poison(bits)
        assert np.isnan(to_float32(np, bits, dtype)).all()


def test_negative_zero_equals_zero_and_nothing_else_changes() -> None:
    bits = np.asarray([0x8000, 0x0000, 0x8001, 0x7FE1], np.uint16)
    assert canonical(np, bits).tolist() == [0, 0, 0x8001, 0x7FE1]
    wide = np.asarray([0x80000000, 0x8000, 0x80000001], np.uint32)
    assert canonical(np, wide).tolist() == [0, 0x8000, 0x80000001]


@pytest.mark.parametrize("dtype", OUT_TYPES)
def test_every_integer_up_to_the_limit_is_exact_and_the_next_is_not(dtype: str) -> None:
    limit = exact_to(dtype)
    values = np.asarray([limit - 1, limit, limit + 1], np.float64)
    kept = to_float32(np, from_float32(np, values.astype(np.float32), dtype), dtype)
    assert (kept == values).tolist() == [True, True, False]


@pytest.mark.parametrize("dtype", OUT_TYPES)
def test_the_exact_draws_stay_exact_in_every_output_type(dtype: str) -> None:
    """The largest magnitude, counted in the smallest step that the scalars make."""
    assert exact_to(dtype) >= NONZEROS
    for scaling in EXACT_SCALINGS:
        step = min(1.0, abs(scaling.alpha))
        largest = abs(scaling.alpha) * SCALED_NONZEROS + abs(scaling.beta) * C_BOUND
        assert largest / step <= exact_to(dtype)
        assert abs(scaling.alpha) / step % 1 == abs(scaling.beta) / step % 1 == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("out", OUT_TYPES)
def test_the_exact_draws_with_alpha_and_beta_are_exact(dtype: str, out: str) -> None:
    m, n, k = 70, 40, 600
    order = sparse_order(np, k, SEED)
    a = sparse_signs(np, order, m, dtype, SEED, 0, nonzeros=SCALED_NONZEROS)
    b = integers(np, n, k, 1, dtype, SEED, stream=1)
    c = to_float32(np, integers(np, m, n, C_BOUND, out, SEED, stream=0), out)
    for scaling in EXACT_SCALINGS:
        expected = scaling.of(numpy_product(a, b, dtype), c)
        kept = to_float32(np, from_float32(np, expected.astype(np.float32), out), out)
        assert np.array_equal(kept, expected)
        assert len(np.unique(expected)) > 20


def test_c_is_not_looked_at_where_beta_is_zero() -> None:
    products = np.ones((2, 2))
    assert (Scaling(2.0, 0.0).of(products) == 2).all()
    assert (Scaling(2.0, 0.0).slack(8, products) > 0).all()


def test_the_slack_counts_one_rounding_of_fp32_for_each_product() -> None:
    magnitude = np.asarray([[3.0]], np.float32)
    held = np.asarray([[-5.0]], np.float32)
    assert Scaling().slack(100, magnitude) == 100 * 2.0**-24 * 3
    both = Scaling(-0.5, 2.0).slack(100, magnitude, held)
    assert both == 2.0**-24 * (102 * 0.5 * 3 + 2 * 2.0 * 5)


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


@pytest.mark.parametrize("bound", [1, 32])
def test_integers_take_each_value_equally_often(bound: int) -> None:
    values = to_float32(np, integers(np, 300, 300, bound, "bf16", SEED, 1), "bf16")
    shares = [float((values == v).mean()) for v in range(-bound, bound + 1)]
    assert sum(shares) == pytest.approx(1)
    assert all(abs(share * (2 * bound + 1) - 1) < 0.15 for share in shares)


def test_large_inputs_are_drawn_the_same_in_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = normal(np, 10, 100, "bf16", SEED, 0)
    signs = sparse_signs(np, sparse_order(np, 400, SEED), 10, "bf16", SEED, 0)
    monkeypatch.setattr("kernels.inputs.CHUNK_ELEMENTS", 300)
    assert np.array_equal(whole, normal(np, 10, 100, "bf16", SEED, 0))
    again = sparse_signs(np, sparse_order(np, 400, SEED), 10, "bf16", SEED, 0)
    assert np.array_equal(signs, again)


@pytest.mark.parametrize("dtype", OUT_TYPES)
def test_any_rows_of_a_matrix_can_be_drawn_alone(dtype: str) -> None:
    for draw in (
        lambda rows, **options: normal(np, rows, 30, dtype, SEED, 5, **options),
        lambda rows, **options: integers(np, rows, 30, 9, dtype, SEED, 5, **options),
    ):
        assert np.array_equal(draw(20)[7:12], draw(5, first_row=7))


def test_inputs_fill_memory_of_any_strides() -> None:
    placed = place(np, Matrix(64, 10, 13, 3, 2), "bf16", across=True)
    order = sparse_order(np, 64, SEED)
    for draw in (
        lambda **options: normal(np, 10, 64, "bf16", SEED, 5, **options),
        lambda **options: integers(np, 10, 64, 9, "bf16", SEED, 5, **options),
        lambda **options: sparse_signs(np, order, 10, "bf16", SEED, 1, nonzeros=20, **options),
    ):
        assert draw(out=placed.view) is not None
        assert np.array_equal(placed.view, draw())
        assert placed.surroundings_changed() == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("out", OUT_TYPES)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 8), (70, 33, 1032), (128, 64, 512)])
def test_a_right_product_passes_both_checks(m: int, n: int, k: int, dtype: str, out: str) -> None:
    a, b = exact_inputs(m, n, k, dtype)
    expected = numpy_product(a, b, dtype)
    assert exact_finding(run(expected, out, n + 3), expected, out).exact
    finding = random_finding(m, n, k, dtype, out=out)
    assert finding.exact
    assert finding.checked == m * n
    assert finding.rel_error <= REL_ERROR_LIMIT[out]


def test_the_limit_is_the_output_types_until_truncated_sums_are_what_errs() -> None:
    assert [rel_error_limit(out, 4096) for out in OUT_TYPES] == [3e-3, 1e-3, 1e-5]
    assert rel_error_limit("fp32", 8192) == 2e-5
    assert rel_error_limit("bf16", 65536) == 3e-3


@pytest.mark.parametrize("k", [16, 512, 4096, 16384])
def test_sums_truncated_to_fp32_every_16_products_are_right(k: int) -> None:
    """What tensor cores do at worst: the sum so far loses its last bits at every step."""
    a = normal(np, 40, k, "bf16", SEED, stream=2)
    b = normal(np, 40, k, "bf16", SEED, stream=3)
    left, right = (to_float32(np, x, "bf16").astype(np.float64) for x in (a, b))
    sums = np.zeros((40, 40))
    for first in range(0, k, 16):
        fraction, exponent = np.frexp(
            sums + left[:, first : first + 16] @ right[:, first : first + 16].T
        )
        sums = np.ldexp(np.trunc(np.ldexp(fraction, 24)), exponent - 24)
    magnitude = np.abs(left) @ np.abs(right).T
    finding = Finding()
    got = from_float32(np, sums.astype(np.float32), "fp32")
    check_statistical(np, finding, got, left @ right.T, Scaling().slack(k, magnitude), "fp32")
    assert finding.exact
    assert finding.rel_error < 0.7 * rel_error_limit("fp32", k)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_dropped_product_is_found_exactly(dtype: str) -> None:
    a, b = exact_inputs(64, 48, 4096, dtype)
    expected = numpy_product(a, b, dtype)
    left, right = to_float32(np, a, dtype), to_float32(np, b, dtype)
    k = int(np.flatnonzero(left[17] * right[5])[0])
    dropped = expected.copy()
    dropped[17, 5] -= left[17, k] * right[5, k]
    finding = exact_finding(run(dropped, dtype), expected, dtype)
    assert finding.wrong == 1
    assert "row 17, column 5" in finding.describe("exact round")


def test_dropping_any_single_k_is_found_wherever_it_is() -> None:
    m, n, k = 64, 16, 2048
    a, b = exact_inputs(m, n, k, "bf16")
    expected = numpy_product(a, b, "bf16")
    left, right = to_float32(np, a, "bf16"), to_float32(np, b, "bf16")
    for lost in range(0, k, 37):
        spoiled = expected - np.outer(left[:, lost], right[:, lost])
        assert exact_finding(run(spoiled, "bf16"), expected, "bf16").wrong


def test_a_wrong_k_tail_is_found() -> None:
    m, n, k = 64, 16, 1000
    a, b = exact_inputs(m, n, k, "bf16")
    expected = numpy_product(a, b, "bf16")
    without_tail = numpy_product(a[:, :960], b[:, :960], "bf16")
    assert exact_finding(run(without_tail, "bf16"), expected, "bf16").wrong > m


def test_two_swapped_elements_are_found() -> None:
    a, b = exact_inputs(64, 48, 512, "bf16")
    expected = numpy_product(a, b, "bf16")
    swapped = expected.copy()
    row, column = np.argwhere(expected != expected[0, 0])[0]
    swapped[0, 0], swapped[row, column] = expected[row, column], expected[0, 0]
    assert exact_finding(run(swapped, "bf16"), expected, "bf16").wrong == 2


def test_an_unwritten_element_is_found_and_named() -> None:
    a, b = exact_inputs(8, 8, 64, "bf16")
    expected = numpy_product(a, b, "bf16")
    placed = run(expected, "bf16")
    placed.view[7, 7] = poison(placed.buffer)
    finding = exact_finding(placed, expected, "bf16")
    assert (finding.wrong, finding.unwritten) == (1, 1)
    assert "1 of them never written" in finding.describe("exact round")

    def spoil(got: Bits, reference: Bits) -> None:
        got[3, 2] = poison(got)

    finding = random_finding(8, 8, 64, "bf16", spoil)
    assert (finding.wrong, finding.unwritten) == (1, 1)
    assert not finding.rel_error <= REL_ERROR_LIMIT["bf16"]


def test_a_guard_overwritten_is_a_finding_of_its_own() -> None:
    expected = np.zeros((8, 8))
    placed = run(expected, "fp32", ldc=11)
    placed.buffer[placed.first + 8] = 0
    finding = exact_finding(placed, expected, "fp32")
    assert (finding.guards_changed, finding.wrong) == (1, 0)
    assert not finding.exact
    assert "1 guard words" in finding.describe("exact round")


def test_wrong_bits_are_told_in_the_width_of_their_type() -> None:
    for dtype, words in (("bf16", "bits 0x3f80, expected 0x0000"), ("fp32", "bits 0x3f800000")):
        finding = exact_finding(run(np.ones((1, 1)), dtype), np.zeros((1, 1)), dtype)
        assert words in finding.describe("exact round")


@pytest.mark.parametrize("out", OUT_TYPES)
@pytest.mark.parametrize("steps", [2, -2])
def test_an_error_of_two_units_is_found_where_the_sum_is_short(out: str, steps: int) -> None:
    def spoil(got: Bits, reference: Bits) -> None:
        place = np.unravel_index(np.abs(reference).argmax(), reference.shape)
        got[place] = int(got[place]) + steps

    k = 1 if out == "fp32" else 8  # each fp32 addition is allowed a rounding of its own
    assert random_finding(16, 16, k, "bf16", spoil, out).wrong == 1


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
        short = reference - numpy_product(a, b, "bf16")
        got[...] = from_float32(np, short.astype(np.float32), "bf16")

    finding = random_finding(32, 32, 2048, "bf16", spoil)
    assert finding.wrong > 500
    assert finding.rel_error > 10 * REL_ERROR_LIMIT["bf16"]


def test_negative_zero_in_the_output_is_right() -> None:
    expected = np.zeros((2, 2))
    placed = run(expected, "bf16")
    placed.view[0, 1] = 0x8000
    assert exact_finding(placed, expected, "bf16").exact
