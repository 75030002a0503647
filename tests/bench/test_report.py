"""What the README shows is what is recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench import report
from bench.evidence_page import NAMES, evidence_part, read_evidence
from bench.fused_page import IMAGES, fused_line, fused_part, read_fused
from bench.gpu_sanitize import Checked
from bench.gpu_sanitize import report as sanitizer_report
from bench.losses_page import losses_part
from bench.norm_plants import PLANTS
from bench.records import (
    SUITES,
    read_best,
    read_ceilings,
    read_picks,
    read_solver,
    regrets,
)
from bench.sanitize_norm import SUITE
from bench.solver_page import compile_line, strategies_part
from kernels.bench_plan import problem_of
from kernels.rivals import COLUMNS, RivalResult
from kernels.sources import source_hash
from kernels.sustained import SustainedResult
from kernels.table import table_keys
from solver.accuracy import geomean
from solver.config import Config
from solver.engine import Engine
from solver.families.sm90_gemm import compile_key
from solver.families.sm90_gemm_registers import register_table
from solver.problem import LAYOUTS, Problem
from solver.question import Question


def test_the_readme_and_the_page_show_the_recorded_results() -> None:
    picks = report.read_picks()
    assert report.suite_table(picks, parts=False) in report.README.read_text("utf-8")
    page = report.PAGE.read_text("utf-8")
    assert report.suite_table(picks) in page
    stale = report.stale_line(picks)
    assert ("Not measured yet with model" in page) == (stale is not None)
    assert (stale or "") in page
    assert (stale or "") in report.README.read_text("utf-8")
    rows = 0
    for suite in (suite for suite in SUITES if suite in picks):
        whole = len(picks[suite]["rows"]) <= report.SHOWN
        compared = [row for row in picks[suite]["rows"] if row["ratio_to_cublas"]]
        rows += len(compared) if whole else report.WORST
    assert len(re.findall(r"\(\d+\.\d+ to \d+\.\d+\)", page)) == rows


def test_the_readme_and_the_page_show_what_the_norm_grid_says() -> None:
    record, why = read_fused(report.RESULTS / "h200", "h200")
    page = report.PAGE.read_text("utf-8")
    pictures = [f"![{words}](img/{name})" for words, name in IMAGES.items()] if record else []
    assert fused_part(record, why, pictures) in page
    assert fused_line(record, why, "docs/") in report.README.read_text("utf-8")


def test_the_line_says_error_and_regret_of_the_same_held_out_problems() -> None:
    record, why = read_fused(report.RESULTS / "h200", "h200")
    assert record is not None, why
    line = fused_line(record, why, "docs/")
    heldout = f"{record['regret_mean_heldout'] - 1:.1%}"
    assert heldout != f"{record['regret_mean'] - 1:.1%}"
    assert f"held-out rows, and the model's pick takes {heldout} more than the fastest" in line


def test_picks_of_another_model_are_said_to_be() -> None:
    solved = Engine().optimize(Question(Problem(64, 4096, 4096), proof="none"))
    pick = row(64, 4096, 4096) | {"config": solved.config.to_dict(), "cache": "cold"}
    assert report.stale_line({"llm": {"rows": [pick]}}) is None
    other = pick | {"config": pick["config"] | {"stages": 2}}
    line = report.stale_line({"llm": {"rows": [pick, other]}})
    assert line is not None
    assert "1 of the 2 picks" in line


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
    path = report.RESULTS / "h200" / "http_verifications.json"
    if not path.exists():
        pytest.skip("no http_verifications.json: not measured for these sources yet")
    record = json.loads(path.read_text("utf-8"))
    asked = {problem_of(row) for row in record["rows"]}
    assert {problem_of(row) for row in report.read_picks()["llm"]["rows"]} <= asked
    assert {problem.layout for problem in asked} == set(LAYOUTS)
    assert len(record["source_hash"]) == 12
    assert source_hash().startswith(record["source_hash"])
    assert record["complete"] == (len(record["rows"]) == record["planned"])
    assert all(row["status"] == "passed" and row["proof"] == "optimal" for row in record["rows"])


def test_the_page_shows_the_recorded_comparison_of_strategies() -> None:
    record = json.loads((report.RESULTS / "solver" / "strategies.json").read_text("utf-8"))
    assert strategies_part(record) in report.PAGE.read_text("utf-8")
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


HEAD = {
    "device": "NVIDIA H200",
    "driver": "580",
    "nvrtc": "13.5",
    "date": "2026-12-01T00:00:00+00:00",
    "commit": "abc",
    "source_hash": "def",
}
CEILINGS = {
    "copy_gb_per_s": 4300.0,
    "read_gb_per_s": 4600.0,
    "tensor_tflops": 900.0,
    "tensor_held_tflops": 760.0,
    "tensor_held_sm_clock_mhz": 1500,
}


def row(m: int, n: int, k: int, role: str = "pick", **more: Any) -> dict[str, Any]:
    config = Config("sm90_gemm", 64, 64, 64, 3 if role == "pick" else 4).to_dict()
    time_us = 2e9 * m / 6e14 + n * k * 2 / 4e6
    return {
        "suite": "llm",
        "cache": "cold",
        "role": role,
        "status": "passed",
        "m": m,
        "n": n,
        "k": k,
        "config": config,
        "predicted_us": time_us,
        "median_us": time_us,
        "cublas_us": time_us * 1.1,
        "ratio_to_cublas": 1.1 if role == "best" else 1.05,
        "ratio_low": 1.04,
        "ratio_high": 1.11,
        "comparison": "torch.mm",
        **more,
    }


def written(folder: Path, name: str, rows: list[dict[str, Any]], **beside: Any) -> None:
    (folder / "h200").mkdir(parents=True, exist_ok=True)
    record = HEAD | beside | {"rows": rows}
    (folder / "h200" / f"{name}.json").write_text(json.dumps(record), "utf-8")


def made(folder: Path) -> tuple[str, str]:
    """The page and the README that ``make`` writes from the records in a folder."""
    page, readme, images = folder / "results.md", folder / "README.md", folder / "img"
    readme.write_text(f"before\n\n{report.START}\n\nstale\n\n{report.END}\n\nafter\n", "utf-8")
    report.make(read_picks(folder), folder, page, readme, images)
    return page.read_text("utf-8"), readme.read_text("utf-8")


def test_a_report_of_nothing_says_not_run(tmp_path: Path) -> None:
    page, readme = made(tmp_path)
    assert page.count("| not run |") == readme.count("| not run |") == len(report.SUITES)
    assert "No pick has been timed on a GPU." in page
    assert "## The kernel, checked\n\nNot run: `bench.gpu_pairs`" in page
    assert "## How to make these" in page
    assert "![" not in page + readme
    assert readme.startswith("before\n\n")
    assert readme.endswith("\n\nafter\n")
    assert "stale" not in readme


@pytest.mark.parametrize("missing", NAMES)
def test_evidence_that_was_not_made_is_said_to_be_missing(missing: str) -> None:
    evidence = read_evidence(report.RESULTS / "h200")
    del evidence[missing]
    part = evidence_part(evidence, read_solver("protocol"))
    assert part.count("not run.") == 1
    assert f"{'sanitize' if missing == 'sanitizer' else missing}" in part


def test_a_report_shows_each_thing_that_was_measured(tmp_path: Path) -> None:
    rival = {
        name: value
        for flag in COLUMNS
        for name, value in RivalResult(None, 7.0, 1.25, 1.2, 1.3, {"place": 2}, 8, 8)
        .to_fields(flag)
        .items()
    }
    held = SustainedResult(1600.0, 1650.0, 1.031, 1.03, 1.04, None, 1400, 1390, 690.0, 691.0, 6)
    shapes = [(1, 16384, 16384), (64, 16384, 16384), (4096, 4096, 4096)]
    written(tmp_path, "picks_llm", [row(*shape) for shape in shapes])
    both = [row(*shape, role, **rival) for shape in shapes for role in ("pick", "best")]
    written(tmp_path, "best_llm", both)
    large = row(8192, 8192, 8192, "best", **held.to_dict())
    written(tmp_path, "best_squares2", [large])
    (tmp_path / "h200" / "ceilings.json").write_text(json.dumps({"ceilings": CEILINGS}))
    page, readme = made(tmp_path)
    images = {path.name for path in (tmp_path / "img").iterdir()}
    assert {"ratio_by_m.png", "roofline.png"} <= images
    assert "(docs/img/roofline.png)" in readme
    assert "(img/ratio_by_m.png)" in page
    assert "| 64 | 1 | 1.050 | 1.050 | 1.050 | 1.100 | 1.100 | 1.100 | 1.048 |" in page
    assert "| all | 3 |" in page
    assert "| best | Triton's persistent kernel, autotuned | 3 of 3 | 1.250 |" in page
    assert "| pick | cuBLASLt, best of its first eight algorithms | 3 of 3 |" in page
    share = 2 * (16384 + 16384 * 16384 + 16384) / row(1, 16384, 16384)["median_us"] / 4600e3
    assert f"| pick | 1 | 1 | {share:.3f} |" in page  # of what reads alone get
    assert "a large copy moves 4300 GB/s" in page
    assert "760 TFLOP/s over a second, at 1500 MHz" in page
    assert "| 8192 | 8192 | 8192 | best | 687 | 1400 | 690 | 666 | 1390 | 691 | 1.031 |" in page


def test_picks_may_stand_in_the_file_of_the_best(tmp_path: Path) -> None:
    rows = [row(64, 64, 64), row(64, 64, 64, "best")]
    written(tmp_path, "best_odd40", rows, ceilings=CEILINGS)
    assert [len(r["rows"]) for r in read_picks(tmp_path).values()] == [1]
    assert [len(r["rows"]) for r in read_best(tmp_path).values()] == [1]
    assert read_ceilings(read_picks(tmp_path), tmp_path) is None  # they are of the LLM suite's run
    written(tmp_path, "best_llm", rows, ceilings=CEILINGS)
    assert read_ceilings(read_picks(tmp_path), tmp_path) == CEILINGS


def test_the_pick_has_no_regret_where_it_is_the_best_and_else_that_of_the_ratios() -> None:
    pick, best = row(64, 64, 64), row(64, 64, 64, "best")
    assert [regret for _, regret in regrets([pick], [best])] == [pytest.approx(1.1 / 1.05)]
    same = best | {"config": pick["config"]}
    assert [regret for _, regret in regrets([pick], [same])] == [1.0]
    alone = {"ratio_to_cublas": None}
    slow = pick | alone | {"median_us": 3.0}
    assert regrets([slow], [best | alone | {"median_us": 2.0}])[0][1] == 1.5
    assert regrets([pick | {"status": "failed"}], [best]) == []
    assert regrets([pick | {"layout": "tt"}], [best]) == []


def test_a_row_that_failed_or_has_no_comparison_is_counted_and_no_more(tmp_path: Path) -> None:
    failed = row(1, 64, 64) | {
        "status": "failed",
        "reason": "timeout",
        "median_us": None,
        "ratio_to_cublas": None,
    }
    alone = row(1, 64, 64) | {"ratio_to_cublas": None, "comparison": "none: no cuBLAS"}
    written(tmp_path, "picks_odd20", [failed, alone])
    page, _ = made(tmp_path)
    assert "cold | 1 of 2 | - | - | - | 0.0% | 0.0% |" in page
    assert "| timeout | - | - |" in page
    assert geomean([2.0, 8.0]) == pytest.approx(4.0)


def test_a_protocol_run_of_other_sources_is_not_shown_as_one_of_these() -> None:
    record = read_solver("protocol")
    assert record is not None
    evidence = read_evidence(report.RESULTS / "h200")
    part = evidence_part(evidence, record)
    assert part in report.PAGE.read_text("utf-8")
    gemm, norm = record["sm90_gemm"], record["norm_activation"]
    every = len(table_keys())
    sample = "" if gemm["keys"] == every else "a sample of "
    assert f"over {sample}{gemm['keys']}" in part
    assert f"over {norm['keys']:,} forms of norm_activation's kernels" in part
    whole = evidence_part(evidence, record | {"sm90_gemm": gemm | {"keys": every}})
    assert f"over {every} compile keys" in whole
    for family, own in record.items():
        of_others = evidence_part(evidence, record | {family: own | {"source_hash": "0" * 64}})
        assert f"--family {family}`: not run on these sources" in of_others
        missing = {name: known for name, known in record.items() if name != family}
        assert f"--family {family}`: not run." in evidence_part(evidence, missing)


def test_a_compiler_run_of_other_sources_is_not_shown_as_one_of_these() -> None:
    record, keys = read_solver("compile"), len(table_keys())
    assert compile_line(record, keys) in report.PAGE.read_text("utf-8")
    for other in (record | {"source_hash": "0" * 64}, record | {"configs": keys + 1}):
        assert "was not run on these" in compile_line(other, keys)
    assert compile_line(record | {"configs": keys}, keys).startswith(f"All {keys} ")
    assert compile_line(record | {"configs": 9}, keys).startswith(f"A sample of 9 of {keys} ")


def test_records_of_different_copy_kernels_are_not_shown_together() -> None:
    evidence = read_evidence(report.RESULTS / "h200")
    evidence["large"]["copy_hash"], evidence["soak"]["copy_hash"] = "0" * 64, "1" * 64
    with pytest.raises(SystemExit, match=r"copy\.cu"):
        evidence_part(evidence, read_solver("protocol"))


@pytest.mark.parametrize("other", ["source_hash", "copy_hash"])
def test_a_sanitizers_record_of_other_sources_counts_for_nothing(other: str) -> None:
    evidence = read_evidence(report.RESULTS / "h200")
    same = {name: evidence["pairs"][name] for name in ("source_hash", "copy_hash")}
    evidence["sanitizer"] = evidence["sanitizer"] | same
    assert "| racecheck |" in evidence_part(evidence, read_solver("protocol"))
    evidence["sanitizer"] = evidence["sanitizer"] | {other: "0" * 64}
    part = evidence_part(evidence, read_solver("protocol"))
    assert "compute-sanitizer: not run on these sources" in part
    assert "| racecheck |" not in part


def test_the_sanitizers_record_of_norm_activation_is_shown_scope_by_scope() -> None:
    evidence = read_evidence(report.RESULTS / "h200")
    runs = [
        Checked("racecheck", "rows", None, "clean", "words", 1.0),
        Checked("racecheck", "rows", "rows_sums", "found", "words", 1.0),
        Checked("racecheck", "bulk", "bulk_early", "clean", "words", 1.0),
    ]
    record = {**SUITE.hashes(), **sanitizer_report(SUITE, runs)}
    evidence["sanitizer_norm"] = record
    part = evidence_part(evidence, read_solver("protocol"))
    sums, early = PLANTS["rows_sums"].what, PLANTS["bulk_early"].what
    assert f"| racecheck, rows | clean | {sums} | - | - |" in part
    missed = "not run: the tool missed every plant"
    assert f"| racecheck, bulk | {missed} | - | {early} | - |" in part
    assert f"over {record['launches']} launches of norm_activation" in part
    assert "(`bench/hand_over.cu`): none was run." in part
    pair = {"launch": "", "first": "Write 0", "second": "Read 10", "count": 16}
    told = {**pair, "lines": ["a:1", "a:2"], "roles": ["fill", "read"]}
    hidden = {"launch": "", "first": "", "second": "", "count": 7}
    for outcome, words in (("found", "races reported"), ("excused", "not judged")):
        shown = {"outcome": outcome, "hazards": [told, told, hidden], "counts_for": []}
        probes = {"named": {"what": "a probe", "outcome": "found"}}
        others = {"clean": {"racecheck, bulk": shown}, "probes": probes}
        evidence["sanitizer_norm"] = record | others
        part = evidence_part(evidence, read_solver("protocol"))
        nothing = "7 pairs of which nothing was kept"
        assert f"| racecheck, bulk | {words}: fill and read (2), {nothing} |" in part
        assert "(`bench/hand_over.cu`): a probe: reported." in part
    evidence["sanitizer_norm"] = record | {"source_hash": "0" * 64}
    part = evidence_part(evidence, read_solver("protocol"))
    assert "norm_activation's kernels: not run on these sources" in part
    assert "| racecheck, rows |" not in part
    evidence["sanitizer_norm"] = record | {"complete": False}
    with pytest.raises(SystemExit, match="sanitizer_norm"):
        evidence_part(evidence, read_solver("protocol"))


def test_where_the_time_goes_is_told_kernel_by_kernel() -> None:
    record = report.read_record(report.RESULTS / "h200" / "profile.json")
    part = losses_part(record)
    assert part is not None
    assert part in report.PAGE.read_text("utf-8")
    for row in record["rows"]:
        for kernel in row["kernels"]:
            name = kernel["kernel"]
            assert ("ours" if name.startswith("sm90_gemm") else name) in part
    unprofiled = {**record["rows"][0], "kernels": [], "reason": "ncu: no permission"}
    assert "not profiled: ncu" in str(losses_part({**record, "rows": [unprofiled]}))
    assert "No best" in str(losses_part({**record, "rows": []}))
    assert losses_part(None) is None
