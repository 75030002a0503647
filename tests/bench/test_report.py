"""What the README shows is what is recorded."""

from __future__ import annotations

import json
import re

import pytest

from bench import report
from bench.evidence_page import evidence_part, read_evidence
from kernels.bench_plan import problem_of
from kernels.sources import source_hash
from solver.config import Config
from solver.families.sm90_gemm import compile_key
from solver.families.sm90_gemm_registers import register_table
from solver.problem import LAYOUTS


def test_the_readme_and_the_page_show_the_recorded_results() -> None:
    picks = report.read_picks()
    table = report.suite_table(picks)
    assert table in report.README.read_text("utf-8")
    page = report.PAGE.read_text("utf-8")
    assert table in page
    rows = sum(len(result["rows"]) for result in picks.values())
    assert len(re.findall(r"\(\d\.\d+ to \d\.\d+\)", page)) == rows


def test_every_recorded_pick_passed_with_the_registers_that_the_proof_took_as_given() -> None:
    table = register_table()
    for result in report.read_picks().values():
        assert result["nvrtc"] == table.nvrtc
        for row in result["rows"]:
            problem = problem_of(row)
            key = compile_key(Config.from_dict(row["config"]), problem.dtype, problem.kernel_layout)
            assert row["status"] == "passed"
            assert row["registers"] == table.of(key)


def test_a_suite_and_problems_of_every_layout_were_verified_over_http_too() -> None:
    record = json.loads((report.RESULTS / "h200" / "http_verifications.json").read_text("utf-8"))
    asked = {problem_of(row) for row in record["rows"]}
    assert {problem_of(row) for row in report.read_picks()["llm"]["rows"]} <= asked
    assert {problem.layout for problem in asked} == set(LAYOUTS)
    assert len(record["source_hash"]) == 12
    assert source_hash().startswith(record["source_hash"])
    assert record["complete"] == (len(record["rows"]) == record["planned"])
    assert all(row["status"] == "passed" and row["proof"] == "optimal" for row in record["rows"])


def test_the_page_shows_the_recorded_comparison_of_strategies() -> None:
    record = json.loads((report.RESULTS / "solver" / "strategies.json").read_text("utf-8"))
    assert report.strategies_part(record) in report.PAGE.read_text("utf-8")
    assert record["shapes"] == len(record["by_shape"]) == 96
    joint = record["strategies"]["joint"]
    assert (joint["optimum"], joint["worst_gap"]) == (1, 0)


def test_a_shape_is_shown_with_the_answer_to_its_own_problem_alone() -> None:
    row = {
        "m": 64,
        "n": 64,
        "k": 64,
        "config": Config("sm90_gemm", 64, 64, 64, 3).to_dict(),
        "predicted_us": 2.0,
        "median_us": 2.0,
    }
    asked = {problem_of(row): {"configurations": 77, "total_ms": 12.3}}
    lines = report.shape_table([row, row | {"layout": "tt"}], asked).splitlines()
    assert [line.endswith("| 77 | 12.3 |") for line in lines[2:]] == [True, False]


def test_a_protocol_run_of_other_sources_is_not_shown_as_one_of_these() -> None:
    record = report.read_solver("protocol")
    evidence = read_evidence(report.RESULTS / "h200")
    part = evidence_part(evidence, record)
    assert part in report.PAGE.read_text("utf-8")
    assert f"over {record['keys']} compile keys" in part
    assert "not run on these sources" in evidence_part(evidence, record | {"source_hash": "0" * 64})


def test_a_compiler_run_of_other_sources_is_not_shown_as_one_of_these() -> None:
    record = report.read_solver("compile")
    keys = record["configs"]
    assert report.compile_line(record, keys) in report.PAGE.read_text("utf-8")
    for other in (record | {"source_hash": "0" * 64}, record | {"configs": keys - 1}):
        assert "was not run on these" in report.compile_line(other, keys)


def test_records_of_different_copy_kernels_are_not_shown_together() -> None:
    evidence = read_evidence(report.RESULTS / "h200")
    evidence["large"]["copy_hash"], evidence["soak"]["copy_hash"] = "0" * 64, "1" * 64
    with pytest.raises(SystemExit, match=r"copy\.cu"):
        evidence_part(evidence, report.read_solver("protocol"))
