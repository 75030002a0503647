"""Verification on the GPU: deadlines, faults, and figures that can be believed."""

from __future__ import annotations

from dataclasses import replace

from kernels.process import OutcomeKind, Worker, run_in_process
from kernels.protocol import BENCH
from kernels.verify import Reason, VerificationRequest, failure_of, verify
from solver.config import Config
from solver.problem import Problem
from tests.gpu import gpu_functions as functions

SMALL = Config("sm90_gemm", 64, 64, 64, 3)
CONFIG = Config("sm90_gemm", 128, 128, 64, 4, mma_in_flight=1, math_warpgroups=1)
REQUEST = VerificationRequest(Problem(512, 512, 512), CONFIG, predicted_us=6.0)
START_S = 120.0


def test_a_kernel_that_never_ends_is_killed_at_its_deadline_and_the_next_passes() -> None:
    with Worker() as worker:
        outcome = worker.call(functions.spin_for_ever, (SMALL,), 30.0)
        assert failure_of(outcome)[0] is Reason.TIMEOUT
        assert outcome.exit_code == -9
        assert verify(REQUEST, START_S, worker).passed


def test_a_kernel_that_faults_is_reported_and_the_next_passes() -> None:
    with Worker() as worker:
        outcome = worker.call(functions.store_to_nowhere, (SMALL,), START_S)
        reason, details = failure_of(outcome)
        assert reason is Reason.FAULT
        assert "illegal" in details.lower()
        assert verify(REQUEST, START_S, worker).passed


def test_a_verification_carries_its_figures() -> None:
    verification = verify(REQUEST, START_S)
    assert verification.passed, verification.details
    body = verification.to_dict()
    assert body["exact"] is True
    assert body["rel_error"] <= 3e-3
    assert 0 < body["median_us"] <= body["p95_us"] <= body["p99_us"]
    assert body["prediction_error"] is not None
    if not body["comparison"].startswith("none"):
        assert body["ratio_low"] <= body["ratio_to_cublas"] <= body["ratio_high"]
        assert body["cublas_us"] > 0
    assert 500 < body["sm_clock_mhz"] < 3000


def test_an_illegal_configuration_is_a_reason_not_a_launch() -> None:
    request = replace(REQUEST, config=replace(CONFIG, stages=12, tile_n=256))
    verification = verify(request)
    assert (verification.status, verification.reason) == ("failed", Reason.ILLEGAL)


def test_a_problem_beyond_the_memory_is_a_reason() -> None:
    problem = Problem(2**20, 2**18, 2**17)
    config = Config("sm90_gemm", 128, 256, 64, 4, math_warpgroups=2, register_split=1)
    verification = verify(VerificationRequest(problem, config), START_S)
    assert verification.reason is Reason.OUT_OF_MEMORY


def test_warm_inputs_are_not_slower_than_cold_ones() -> None:
    request = replace(REQUEST, problem=Problem(64, 4096, 4096), config=replace(CONFIG, tile_m=64))
    cold = verify(replace(request, protocol=BENCH), START_S)
    warm = verify(replace(request, protocol=BENCH.with_cache("warm")), START_S)
    assert cold.passed, cold.details
    assert warm.passed, warm.details
    assert cold.median_us is not None
    assert warm.median_us is not None
    assert warm.median_us < cold.median_us


def test_the_same_thing_on_both_sides_of_a_comparison_is_a_tie() -> None:
    outcome = run_in_process(functions.times_of_a_copy, (1 << 24,), START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    timed = outcome.value
    assert abs(timed["ratio"] - 1) < 0.02
    terabytes_per_s = timed["bytes"] / timed["median_us"] / 1e6
    assert 0.5 < terabytes_per_s < 20
