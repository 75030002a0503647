"""Rows of a sweep on the GPU: timed as a sample of the bench is, several in one call."""

from __future__ import annotations

import pytest

from kernels.process import OutcomeKind, Worker
from kernels.protocol import SAMPLE
from kernels.sweep_runner import Figures, SweepRunner
from kernels.worker import Task, run_task
from solver.config import Config
from solver.problem import Problem
from solver.sweep_design import SweepRow, Visit

CONFIGS = (
    Config("sm90_gemm", 64, 64, 64, 4),
    Config("sm90_gemm", 64, 128, 64, 4, dma_warps=2, split_k=2),
    Config("sm90_gemm", 128, 128, 64, 5, mma_in_flight=1, math_warpgroups=2, cluster_n=2),
)


@pytest.mark.parametrize("cache", ["cold", "warm"])
@pytest.mark.parametrize(
    "problem", [Problem(512, 1024, 1024), Problem(500, 1000, 1001, out_dtype="fp32")]
)
def test_a_row_takes_the_time_of_a_sample(
    worker: Worker, device: str, problem: Problem, cache: str
) -> None:
    rows = [SweepRow("x", cache, "design", problem, config) for config in CONFIGS]
    told: dict[int, Figures] = {}

    def done(row: int, turn: int, figures: Figures) -> None:
        told[row] = figures

    SweepRunner(rows, device, {}, done, worker).run([Visit(0, (2, 0, 1))])
    assert list(told) == [2, 0, 1]
    for index, config in enumerate(CONFIGS):
        protocol = SAMPLE.with_cache(cache)
        task = Task(problem, config, device, 1, protocol, check=False, cublas=False)
        outcome = worker.call(run_task, (task,), 300.0)
        assert outcome.kind is OutcomeKind.OK, outcome
        figures, sample = told[index], outcome.value
        assert figures.reason is None
        assert figures.median_us == pytest.approx(sample.median_us, rel=0.25)
        assert figures.median_us is not None
        assert figures.median_us <= (figures.p95_us or 0.0)
        assert figures.sm_clock_mhz
