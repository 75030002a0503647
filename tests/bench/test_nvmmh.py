"""What nvMatmulHeuristics said is recorded of the right kernels, and is that of its version."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from app.recorded import NVMMH, results_folder
from bench import nvmmh
from bench.nvmmh import PACKAGE, measured_kernels, precision, record_of, rows_of
from kernels.bench_plan import problem_of
from solver.families import sm90_gemm_legality as legality
from solver.peers import ESTIMATED_BY, nearest_legal
from solver.problem import Problem
from solver.sweep_design import cold_problems
from tests.ground_truths import H200, config, off_by, write_truth

PROBLEM = Problem(64, 512, 512, out_dtype="fp32")


class Scripted:
    """Says of a kernel as many µs as it has stages; of deep ones nothing."""

    def pick(self, problem: Problem) -> tuple[dict[str, int], float] | None:
        return None if problem.m == 1 else ({"tile_m": 64}, 7.123456)

    def estimate_us(self, problem: Problem, kernel: tuple[int, ...]) -> float | None:
        stages = dict(zip(ESTIMATED_BY, kernel, strict=True))["stages"]
        return None if stages > 5 else float(stages)


def test_kernels_are_told_once_and_those_that_split_k_not_at_all(tmp_path: Path) -> None:
    rows = [
        off_by(PROBLEM, config(64, 4), 0.0),
        off_by(PROBLEM, config(64, 4, dma_warps=2), 0.0),
        off_by(PROBLEM, config(64, 4, split_k=2), 0.0),
        off_by(PROBLEM, config(64, 6), 0.0),
        off_by(Problem(1, 64, 64), config(64, 4), 0.0),
    ]
    kernels = measured_kernels(rows_of(write_truth(tmp_path, rows)))
    assert kernels == {
        (PROBLEM, "cold"): [(64, 64, 64, 4, 1, 1, 1), (64, 64, 64, 6, 1, 1, 1)],
        (Problem(1, 64, 64), "cold"): [(64, 64, 64, 4, 1, 1, 1)],
    }


def test_a_record_has_what_was_said_and_leaves_out_what_was_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvmmh, "version", lambda package: "1.2.3")
    shallow, deep = (64, 64, 64, 4, 1, 1, 1), (64, 64, 64, 6, 1, 1, 1)
    kernels = {(PROBLEM, "cold"): [shallow, deep], (Problem(1, 64, 64), "warm"): [deep]}
    scripted: Any = Scripted()
    record = record_of(scripted, kernels)
    assert (record["package"], record["version"]) == (PACKAGE, "1.2.3")
    first, second = record["rows"]
    assert problem_of(first) == PROBLEM
    assert first["estimates"] == [[*shallow, 4.0]]
    assert (first["pick"], first["time_us"]) == ({"tile_m": 64}, 7.1235)
    assert (second["pick"], second["time_us"], second["estimates"]) == (None, None, [])


@pytest.mark.parametrize(
    ("dtype", "out", "letters"),
    [("bf16", "bf16", "TST"), ("bf16", "fp32", "TSS"), ("fp16", "fp16", "HSH")],
)
def test_types_are_named_by_its_letters(dtype: str, out: str, letters: str) -> None:
    assert precision(Problem(8, 8, 8, dtype=dtype, out_dtype=out)) == letters


def test_each_recorded_pick_has_a_nearest_legal_configuration_for_every_cold_shape() -> None:
    record = json.loads(gzip.decompress((results_folder("h200") / NVMMH).read_bytes()))
    assert record["version"] == "0.1.0.27"
    cold = {problem_of(row): row for row in record["rows"] if row["cache"] == "cold"}
    shapes = [problem for problems in cold_problems(2).values() for problem in problems]
    assert set(cold) == set(shapes)
    for problem in shapes:
        pick = cold[problem]["pick"]
        assert pick is not None
        nearest = nearest_legal(problem, H200, pick)
        legality.check(nearest, problem, H200)
