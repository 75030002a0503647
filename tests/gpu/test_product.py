"""A product as BLAS defines it, extents of zero included, on the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.process import OutcomeKind, Worker
from tests.gpu import gpu_functions as functions

START_S = 120.0
SCALARS = ((1.0, 0.0), (1.0, 1.0), (-2.0, 0.5), (0.0, 0.0), (0.0, 0.5), (0.0, 1.0))


def product(worker: Worker, extents: Any, fields: dict[str, Any], scalars: Any) -> Any:
    outcome = worker.call(functions.products, (extents, fields, scalars), START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    return outcome.value


@pytest.mark.parametrize("scalars", SCALARS)
@pytest.mark.parametrize("k", [0, 1, 37, 64])
@pytest.mark.parametrize("out_dtype", ["bf16", "fp16", "fp32"])
def test_c_is_what_blas_says(
    worker: Worker, out_dtype: str, k: int, scalars: tuple[float, float]
) -> None:
    fields = {"out_dtype": out_dtype, "ldc": 43, "c_offset": 1, "layout": "tt"}
    got, wanted, around = product(worker, (33, 41, k), fields, scalars)
    assert np.abs(wanted).max() <= 2048
    step = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 0.0}[out_dtype]
    assert (np.abs(got - wanted) <= step * np.abs(wanted)).all()
    assert around == 0


@pytest.mark.parametrize("extents", [(0, 5, 7), (5, 0, 7), (0, 0, 0)])
def test_no_rows_or_no_columns_leave_c_alone(worker: Worker, extents: Any) -> None:
    got, _, around = product(worker, extents, {}, (1.0, 0.0))
    assert np.isnan(got).all()  # the poison
    assert around == 0
