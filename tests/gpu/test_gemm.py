"""``kernels.gemm`` on the GPU: right products, from many threads and streams, at little cost."""

from __future__ import annotations

from typing import Any

import pytest

from bench.gemm_work import at_once, beside_torch, has_torch, overhead
from kernels.process import OutcomeKind, Worker
from tests.gpu import gemm_functions as functions

START_S = 180.0
LIBRARIES = ("cupy", "torch")


def call(worker: Worker, function: Any, *arguments: Any) -> Any:
    outcome = worker.call(function, arguments, START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    return outcome.value


@pytest.fixture
def library(request: pytest.FixtureRequest, worker: Worker) -> str:
    name: str = request.param
    if name == "torch" and not call(worker, has_torch):
        pytest.skip("PyTorch is not installed")
    return name


@pytest.mark.parametrize("library", LIBRARIES, indirect=True)
@pytest.mark.parametrize("by_columns", [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)])
@pytest.mark.parametrize("extents", [(64, 128, 256), (65, 127, 333), (1, 200, 500), (300, 1, 64)])
def test_views_of_any_layout_give_the_right_product(
    worker: Worker, library: str, by_columns: tuple[int, ...], extents: tuple[int, ...]
) -> None:
    assert call(worker, functions.wrong_of_views, library, extents, by_columns) == 0


@pytest.mark.parametrize("library", LIBRARIES, indirect=True)
@pytest.mark.parametrize("out_dtype", ["fp16", "fp32", None])
@pytest.mark.parametrize("scalars", [(1.0, 0.0), (2.0, 0.0), (-1.0, 1.0), (0.0, 2.0)])
def test_scalars_and_types_of_out_are_as_asked(
    worker: Worker, library: str, out_dtype: str | None, scalars: tuple[float, float]
) -> None:
    assert call(worker, functions.wrong_of_scalars, library, out_dtype, scalars) == 0


def test_bits_of_bf16_and_dlpack_are_taken(worker: Worker) -> None:
    assert call(worker, functions.wrong_of_bits) == 0
    assert call(worker, functions.wrong_of_dlpack) == 0


@pytest.mark.parametrize("library", LIBRARIES, indirect=True)
def test_work_before_and_after_in_the_callers_stream_is_in_order(
    worker: Worker, library: str
) -> None:
    assert call(worker, functions.wrong_in_a_chain, library) == 0


def test_a_captured_product_can_be_replayed(worker: Worker) -> None:
    assert call(worker, functions.wrong_of_a_graph) == 0


def test_the_callers_current_stream_stays_current(worker: Worker) -> None:
    chosen, current, wrong = call(worker, functions.stream_after_a_call)
    assert (current, wrong) == (chosen, 0)


@pytest.mark.parametrize("library", LIBRARIES, indirect=True)
def test_what_cannot_be_multiplied_is_refused(worker: Worker, library: str) -> None:
    assert call(worker, functions.refusals, library) == ["a", "b", "out", "out"]


@pytest.mark.parametrize("library", LIBRARIES, indirect=True)
def test_twenty_threads_on_four_streams_at_once_get_the_right_products(
    worker: Worker, library: str
) -> None:
    assert call(worker, at_once, library, 20, 4, 10)["wrong"] == 0


@pytest.mark.parametrize("library", LIBRARIES, indirect=True)
def test_a_call_costs_at_most_10_us_over_the_bare_launch(worker: Worker, library: str) -> None:
    found = call(worker, overhead, library)
    assert found["over_us"] <= 10, found


@pytest.mark.parametrize("extents", [(16, 4096, 4096), (128, 7168, 2048), (4096, 4096, 4096)])
@pytest.mark.parametrize("library", ["torch"], indirect=True)
def test_products_are_right_and_about_as_fast_as_pytorchs(
    worker: Worker, library: str, extents: tuple[int, int, int]
) -> None:
    found = call(worker, beside_torch, *extents)
    assert found["wrong"] == 0
    assert found["torch_over_gemm"] > 0.7, found
