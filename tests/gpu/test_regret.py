"""Races to the end on the GPU: every configuration has as many rounds, and its own time."""

from __future__ import annotations

import pytest

from kernels.process import OutcomeKind, Worker
from kernels.protocol import BENCH, REGRET
from kernels.regret import RegretTask, run_regret
from kernels.worker import Task, run_task
from solver.config import Config
from solver.problem import Problem

CONFIGS = {
    0: Config("sm90_gemm", 64, 64, 64, 4),
    3: Config("sm90_gemm", 64, 128, 64, 4, dma_warps=2, split_k=2),
    4: Config("sm90_gemm", 128, 128, 64, 5, mma_in_flight=1, math_warpgroups=2, cluster_n=2),
    7: Config("sm90_gemm", 64, 64, 64, 4, dma_warps=2),
}


@pytest.mark.parametrize("cache", ["cold", "warm"])
@pytest.mark.parametrize(
    "problem", [Problem(512, 1024, 1024), Problem(500, 1000, 1001, out_dtype="fp32")]
)
def test_every_configuration_has_its_time_beside_the_firsts(
    worker: Worker, device: str, problem: Problem, cache: str
) -> None:
    task = RegretTask(problem, CONFIGS, device, REGRET.with_cache(cache))
    outcome = worker.call(run_regret, (task,), 300.0)
    assert outcome.kind is OutcomeKind.OK, outcome
    runs = outcome.value.runs
    assert list(runs) == list(CONFIGS)
    assert len({run.rounds for run in runs.values()}) == 1
    assert runs[0].rounds >= REGRET.min_rounds
    assert (runs[0].relative, runs[0].relative_low, runs[0].relative_high) == (1.0, 1.0, 1.0)
    assert outcome.value.clocks["sm_clock_mhz"]
    for index, config in CONFIGS.items():
        run = runs[index]
        assert run.failure is None
        assert run.relative_low <= run.relative <= run.relative_high
        assert run.relative == pytest.approx(run.median_us / runs[0].median_us, rel=0.05)
        alone = Task(problem, config, device, 1, BENCH.with_cache(cache), check=False, cublas=False)
        timed = worker.call(run_task, (alone,), 300.0)
        assert timed.kind is OutcomeKind.OK, timed
        assert run.median_us == pytest.approx(timed.value.median_us, rel=0.25)


def test_the_same_configuration_twice_differs_by_less_than_a_regret_that_matters(
    worker: Worker, device: str
) -> None:
    problem = Problem(64, 4096, 4096)
    config = Config("sm90_gemm", 64, 64, 128, 4)
    task = RegretTask(problem, {0: config, 1: CONFIGS[0], 2: config}, device, REGRET)
    outcome = worker.call(run_regret, (task,), 300.0)
    assert outcome.kind is OutcomeKind.OK, outcome
    assert outcome.value.runs[2].relative == pytest.approx(1.0, abs=0.01)
