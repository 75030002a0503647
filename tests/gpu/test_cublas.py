"""The comparison multiplies the same matrices, whatever way they lie in memory."""

from __future__ import annotations

import pytest

from kernels.numerics import REL_ERROR_LIMIT
from kernels.process import OutcomeKind, Worker
from solver.problem import LAYOUTS, Problem
from tests.gpu import gpu_functions as functions

START_S = 120.0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "out"), [("bf16", "bf16"), ("fp16", "fp32"), ("bf16", "fp32")])
@pytest.mark.parametrize("odd", [False, True])
def test_cublas_gives_the_same_product(
    worker: Worker, layout: str, dtype: str, out: str, odd: bool
) -> None:
    gaps = {"lda": 771, "ldb": 803, "ldc": 217, "a_offset": 1, "b_offset": 3, "c_offset": 1}
    problem = Problem(150, 200, 768, dtype, layout, out, **(gaps if odd else {}))
    outcome = worker.call(functions.cublas_on_both, (problem,), START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    assert outcome.value
    for library, wrong, rel_error in outcome.value:
        assert wrong <= problem.m * problem.n // 100, library  # it may round partial sums
        assert rel_error <= 4 * REL_ERROR_LIMIT[out], library
