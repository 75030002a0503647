"""A sweep of given problems on the GPU: measured whole, told as it goes, not measured again."""

from __future__ import annotations

from typing import Any

from kernels.problem_sweep import sweep_problems
from kernels.process import Worker
from kernels.verify import require_gpu
from solver.problem import Problem
from solver.problem_sweep import ProblemSweep
from tests.kernels.kept_rows import Kept

SWEEP = ProblemSweep(
    (Problem(512, 512, 512), Problem(300, 500, 777, layout="tt", out_dtype="fp32")),
    top_k=3,
    covering=5,
)


def test_a_sweep_of_two_problems_is_measured_once(worker: Worker) -> None:
    gpu, device = require_gpu()
    kept = Kept()
    told: list[tuple[Any, ...]] = []
    launched: list[Any] = []

    def tell(*words: Any) -> None:
        told.append(words)

    worker.on_launch = launched.append
    try:
        found = sweep_problems(SWEEP, gpu, device, worker, kept, tell)
        measured = {number: row["median_us"] for number, row in kept.rows.items()}
        again = sweep_problems(SWEEP, gpu, device, worker, kept, tell)
    finally:
        worker.on_launch = None
    assert found.failed == 0
    assert len(kept.rows) == found.record["planned"] == found.record["measured"] == 16
    assert all(row["median_us"] > 0 for row in kept.rows.values())
    for summary in found.record["problems"]:
        assert summary["regret"] >= 0
    assert told[-1] == ("measure", 16, 16)
    assert len(launched) == 16
    assert measured == {number: row["median_us"] for number, row in kept.rows.items()}
    assert again.record["problems"] == found.record["problems"]
