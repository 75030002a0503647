"""The kernel on the GPU: every branch right, bit for bit, on shapes that fit nothing."""

from __future__ import annotations

import secrets
from dataclasses import replace

import branches
import gpu_functions as functions
import numpy as np
import pytest
from rich.console import Console
from rich.progress import Progress

from kernels.bench import precompile
from kernels.bits import to_float32, ulp
from kernels.process import OutcomeKind, Worker
from kernels.protocol import SAMPLE
from kernels.worker import Task, TaskResult, run_task
from solver.config import Config
from solver.families.sm90_gemm import compile_key
from solver.problem import Problem

DEADLINE_S = 60.0
START_S = 120.0  # the first use compiles CuPy's element-wise kernels


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Every kernel of this file, compiled in parallel before the one worker needs it."""
    every = [*branches.cases(), *branches.cases("fp16")[::7]]
    keys = sorted({compile_key(config, problem.dtype) for problem, config in every})
    with Progress(console=Console(stderr=True)) as progress:
        assert precompile(keys, progress) == {}


def check(worker: Worker, device: str, problem: Problem, config: Config) -> TaskResult:
    task = Task(problem, config, device, secrets.randbits(63), SAMPLE, cublas=False)
    deadline_s = DEADLINE_S if worker.running else START_S
    outcome = worker.call(run_task, (task,), deadline_s)
    assert outcome.kind is OutcomeKind.OK, (problem, config, task.seed, outcome)
    result: TaskResult = outcome.value
    assert result.failure is None, (problem, config, task.seed, result.failure)
    assert result.exact
    assert result.k_coverage == 1.0
    assert result.median_us is not None
    assert result.median_us > 0
    return result


@pytest.mark.parametrize("part", range(8))
def test_every_branch_gives_the_right_product(worker: Worker, device: str, part: int) -> None:
    for problem, config in branches.cases()[part::8]:
        check(worker, device, problem, config)


def test_fp16_gives_the_right_product_too(worker: Worker, device: str) -> None:
    for problem, config in branches.cases("fp16")[::7]:
        check(worker, device, problem, config)


@pytest.mark.parametrize("m", [1, 7, 8, 9, 63, 64, 65])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 63, 64, 65, 71])
def test_edges_of_a_tile_are_right(worker: Worker, device: str, m: int, n: int) -> None:
    for k in (8, 64, 72):
        check(worker, device, Problem(m, n, k), branches.SMALL)


def test_a_persistent_cta_walks_many_units(worker: Worker, device: str) -> None:
    config = replace(branches.SMALL, tile_n=32, raster_group=4, mma_in_flight=1)
    check(worker, device, Problem(1500, 3000, 328), config)


def test_a_large_problem_is_right(worker: Worker, device: str) -> None:
    config = Config(
        "sm90_gemm", 128, 256, 64, 4, math_warpgroups=2, register_split=1, raster_group=8
    )
    check(worker, device, Problem(4096, 4096, 4096), config)


@pytest.mark.parametrize("split_k", [2, 5, 16])
def test_split_k_gives_the_same_bits_every_time(worker: Worker, split_k: int) -> None:
    config = replace(branches.SMALL, split_k=split_k)
    arguments = (Problem(100, 200, 4096), config, 50)
    outcome = worker.call(functions.outputs_of, arguments, START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    assert len(set(outcome.value)) == 1


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_inputs_are_the_same_on_the_gpu_as_on_the_cpu(worker: Worker, dtype: str) -> None:
    outcome = worker.call(functions.inputs_on_both, (dtype,), START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    for name in ("ternary", "sparse_signs"):
        cpu, gpu = outcome.value[name]
        assert np.array_equal(cpu, gpu), name
    cpu, gpu = (to_float32(np, x, dtype).astype(np.float64) for x in outcome.value["normal"])
    assert (np.abs(cpu - gpu) <= 2 * ulp(np, cpu, dtype) + 1e-6).all()


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_the_reference_kernels_agree_with_numpy(worker: Worker, dtype: str) -> None:
    outcome = worker.call(functions.references_on_both, (dtype,), START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    expected, got = outcome.value["sum"]
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-11)
    expected, got = outcome.value["magnitude"]
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    expected, got = outcome.value["exact"]
    assert np.array_equal(got, expected)
