"""The kernel on the GPU: every branch right, bit for bit, on shapes that fit nothing."""

from __future__ import annotations

import secrets
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress

from bench.branch_pairs import covering, pairs
from bench.branches import Pair
from bench.gpu_work import check_pair
from kernels.bench import precompile
from kernels.bits import to_float32, ulp
from kernels.process import OutcomeKind, Worker
from kernels.protocol import SAMPLE
from kernels.worker import Task, TaskResult, run_task
from solver.config import Config
from solver.device import load_profile
from solver.problem import LAYOUTS, Problem
from tests.gpu import gpu_functions as functions

DEADLINE_S = 60.0
START_S = 120.0  # the first use compiles CuPy's element-wise kernels
SMALL = Config("sm90_gemm", 64, 64, 64, 3)


@pytest.fixture(scope="module")
def sms(device: str) -> int:
    return load_profile(device).limit("sms")


@pytest.fixture(scope="module")
def drawn(device: str) -> list[Pair]:
    """Fresh pairs that take every branch, their kernels compiled in parallel beforehand."""
    chosen = pairs(600, secrets.randbits(31), load_profile(device))
    with Progress(console=Console(stderr=True)) as progress:
        assert precompile(sorted({pair.key for pair in chosen}), progress) == {}
    return chosen


def check(worker: Worker, device: str, pair: Pair) -> None:
    """Hold every element of a pair's output against what is known of it."""
    seed = secrets.randbits(63)
    deadline_s = DEADLINE_S if worker.running else START_S
    outcome = worker.call(check_pair, (pair, seed, device), deadline_s)
    assert outcome.kind is OutcomeKind.OK, (pair, seed, outcome)
    assert outcome.value["details"] == "", (pair, seed)
    assert outcome.value["k_coverage"] == 1.0


def check_and_time(worker: Worker, device: str, problem: Problem, config: Config) -> None:
    task = Task(problem, config, device, secrets.randbits(63), SAMPLE, cublas=False)
    deadline_s = DEADLINE_S if worker.running else START_S
    outcome = worker.call(run_task, (task,), deadline_s)
    assert outcome.kind is OutcomeKind.OK, (problem, config, task.seed, outcome)
    result: TaskResult = outcome.value
    assert result.failure is None, (problem, config, task.seed, result.failure)
    assert result.exact
    assert result.median_us is not None
    assert result.median_us > 0


def test_every_branch_gives_the_right_product(
    worker: Worker, device: str, drawn: list[Pair]
) -> None:
    for pair in sorted(drawn, key=lambda pair: pair.key):
        check(worker, device, pair)


def test_a_launch_of_every_branch_can_be_timed(
    worker: Worker, device: str, drawn: list[Pair], sms: int
) -> None:
    for pair in covering([pair for pair in drawn if pair.sms == sms]):
        check_and_time(worker, device, pair.problem, pair.config)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("m", [1, 7, 8, 9, 63, 64, 65])
@pytest.mark.parametrize("n", [63, 64, 65, 71])
def test_edges_of_a_tile_are_right(
    worker: Worker, device: str, sms: int, layout: str, m: int, n: int
) -> None:
    for k in (1, 8, 63, 72):
        check(worker, device, Pair(Problem(m, n, k, layout=layout), SMALL, sms))


def test_a_sessions_stream_is_current_whatever_ran_before(worker: Worker) -> None:
    outcome = worker.call(functions.stream_of_a_session_after_another, (), START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    session, current = outcome.value
    assert current == session


def test_a_persistent_cta_walks_many_units(worker: Worker, device: str) -> None:
    config = replace(SMALL, tile_n=32, raster_group=4, mma_in_flight=1)
    check_and_time(worker, device, Problem(1500, 3000, 328), config)


def test_a_large_problem_is_right(worker: Worker, device: str) -> None:
    config = Config(
        "sm90_gemm", 128, 256, 64, 4, math_warpgroups=2, register_split=1, raster_group=8
    )
    check_and_time(worker, device, Problem(4096, 4096, 4096), config)


@pytest.mark.parametrize("split_k", [2, 5, 16])
def test_split_k_gives_the_same_bits_every_time(worker: Worker, split_k: int) -> None:
    config = replace(SMALL, split_k=split_k)
    arguments = (Problem(100, 200, 4096), config, 50)
    outcome = worker.call(functions.outputs_of, arguments, START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    assert len(set(outcome.value)) == 1


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_inputs_are_the_same_on_the_gpu_as_on_the_cpu(worker: Worker, dtype: str) -> None:
    outcome = worker.call(functions.inputs_on_both, (dtype,), START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    for name in ("integers", "sparse_signs"):
        cpu, gpu = outcome.value[name]
        assert np.array_equal(cpu, gpu), name
    cpu, gpu = (to_float32(np, x, dtype).astype(np.float64) for x in outcome.value["normal"])
    assert (np.abs(cpu - gpu) <= 2 * ulp(np, cpu, dtype) + 1e-6).all()


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_reference_kernels_agree_with_numpy(worker: Worker, dtype: str, layout: str) -> None:
    outcome = worker.call(functions.references_on_both, (dtype, layout), START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    expected, got = outcome.value["sum"]
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-11)
    expected, got = outcome.value["magnitude"]
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    expected, got = outcome.value["exact"]
    assert np.array_equal(got, expected)
