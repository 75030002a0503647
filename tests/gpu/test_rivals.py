"""Other libraries on the GPU: each candidate gives our result, and is timed next to ours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernels.ceilings import copy_bandwidth, read_bandwidth, tensor_held, tensor_peak
from kernels.choose import ChoiceTask, run_choice
from kernels.process import OutcomeKind, Worker
from kernels.protocol import BENCH, CHOICE, SUSTAINED
from kernels.rivals import RivalResult, RivalTask, run_rival
from kernels.sustained import SustainedTask, run_sustained
from solver.config import Config
from solver.problem import Problem

START_S = 300.0  # Triton compiles its candidates
CONFIG = Config("sm90_gemm", 128, 128, 64, 4, math_warpgroups=2)
SMALL = Config("sm90_gemm", 64, 64, 64, 4)


def against(worker: Worker, device: str, rival: str, problem: Problem) -> RivalResult:
    config = CONFIG if problem.m > 64 else SMALL
    task = RivalTask(problem, config, device, BENCH, rival)
    outcome = worker.call(run_rival, (task,), START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    result: RivalResult = outcome.value
    if result.named == 0 and "not installed" in str(result.note):
        pytest.skip(f"{rival}: {result.note}")
    return result


def plausible(result: RivalResult) -> None:
    assert result.time_us is not None, result.note
    assert result.ratio is not None
    assert result.low is not None
    assert result.high is not None
    assert 0.2 < result.low <= result.ratio <= result.high < 5
    assert result.note is None or "half-width" in result.note


@pytest.mark.parametrize(
    "problem",
    [
        Problem(1024, 1024, 1024),
        Problem(200, 328, 136),
        Problem(1, 4096, 4096),
        Problem(512, 512, 512, "fp16"),
        Problem(300, 1000, 2000, lda=2008, ldb=2056, ldc=1008),
    ],
)
def test_every_candidate_of_triton_gives_our_result(
    worker: Worker, device: str, problem: Problem
) -> None:
    result = against(worker, device, "triton", problem)
    plausible(result)
    assert result.tried == result.named, result.refused


def test_triton_leaves_out_what_the_device_has_no_room_for(worker: Worker, device: str) -> None:
    result = against(worker, device, "triton", Problem(1024, 1024, 1024, out_dtype="fp32"))
    plausible(result)
    assert 0 < result.tried < result.named
    assert all("out of resource" in refusal for refusal in result.refused)


def test_triton_is_not_asked_for_what_tma_does_not_take(worker: Worker, device: str) -> None:
    for problem in (Problem(256, 255, 256), Problem(256, 256, 256, layout="tt")):
        result = against(worker, device, "triton", problem)
        assert result.time_us is None
        assert result.note


@pytest.mark.parametrize("layout", ["tn", "nn", "nt", "tt"])
@pytest.mark.parametrize(("dtype", "out"), [("bf16", "bf16"), ("fp16", "fp32")])
@pytest.mark.parametrize("odd", [False, True])
def test_every_algorithm_of_cublaslt_gives_our_result(
    worker: Worker, device: str, layout: str, dtype: str, out: str, odd: bool
) -> None:
    gaps = {"lda": 771, "ldb": 803, "ldc": 217, "a_offset": 1, "b_offset": 3, "c_offset": 1}
    problem = Problem(150, 200, 768, dtype, layout, out, **(gaps if odd else {}))
    result = against(worker, device, "cublaslt", problem)
    plausible(result)
    assert 0 < result.tried == result.named <= 8, result.refused


def test_the_fastest_of_several_configurations_is_found(worker: Worker, device: str) -> None:
    slow = replace(CONFIG, tile_n=16)
    task = ChoiceTask(Problem(4096, 4096, 4096), (slow, CONFIG), device, CHOICE)
    outcome = worker.call(run_choice, (task,), START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    assert outcome.value.winner == 1
    assert outcome.value.tried[0].median_us > 1.5 * outcome.value.tried[1].median_us


def test_a_large_product_is_held_at_its_own_clock(worker: Worker, device: str) -> None:
    short = replace(SUSTAINED, warmup_ms=500.0, settle_ms=50.0, hold_ms=200.0)
    task = SustainedTask(Problem(8192, 8192, 8192), CONFIG, device, short, "cold")
    outcome = worker.call(run_sustained, (task,), START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    held = outcome.value
    assert 1000 < held.sustained_us < 5000
    assert held.sustained_ratio_low <= held.sustained_ratio_to_cublas <= held.sustained_ratio_high
    assert 300 < held.sustained_sm_clock_mhz <= 2000
    assert held.sustained_power_w is None or held.sustained_power_w > 200


def test_the_ceilings_are_those_of_a_hopper(worker: Worker) -> None:
    found: dict[str, Any] = {}
    for step in (copy_bandwidth, read_bandwidth, tensor_peak, tensor_held):
        outcome = worker.call(step, (), START_S)
        assert outcome.kind is OutcomeKind.OK, outcome
        found |= outcome.value
    assert 1000 < found["copy_gb_per_s"] <= found["read_gb_per_s"] * 1.1
    assert 500 < found["tensor_held_tflops"] <= found["tensor_tflops"] * 1.05 < 1100
