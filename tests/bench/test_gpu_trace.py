"""The trace bench: which configurations, what launches come to, and what is shown of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import gpu_trace
from bench.evidence_page import NAMES
from bench.gpu_trace import TraceFindings, made_of
from bench.records import DEVICE, RESULTS
from bench.report import PAGE, README
from bench.trace_page import TIMELINES, draw_traces, trace_line, trace_part
from bench.trace_raw import load, save
from bench.trace_sample import LONGEST_US, SHOWN_ITERATIONS, Traced, chosen, planned
from bench.trace_summary import result_of, row_of
from kernels.errors import GpuAbsent
from kernels.launch_plan import plan_launch
from kernels.overlay import modelled
from kernels.process import Outcome, OutcomeKind
from kernels.protocol import TRACE
from kernels.sources import source_hash, traced_hash
from kernels.trace_launch import CriticalCta, TracedLaunches, TraceTask
from kernels.trace_records import STEP_ROOM
from solver.config import Config
from solver.device import load_profile
from solver.errors import InvalidInput
from solver.families.sm90_gemm_legality import check
from solver.problem import Problem

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
from played_trace import Pace, stripes_of

TRUTH = RESULTS / DEVICE / "ground_truth.csv.gz"
H200 = load_profile("h200")
CONFIG = Config("sm90_gemm", 64, 64, 64, 4)
FACTS = {"source_hash": source_hash(), "device": "NVIDIA H200", "date": "2026-12-01T00:00:00"}


@pytest.fixture(scope="module")
def sample() -> list[Traced]:
    return chosen(TRUTH, H200, 200, seed=1)


def traced(k: int, role: str = "sample", cache: str = "cold") -> Traced:
    task = TraceTask(Problem(192, 256, k), CONFIG, "h200", TRACE.with_cache(cache))
    return Traced(role, "llm", task, 12.5)


def launched(one: Traced, pace: Pace, ratio: float = 1.01) -> TracedLaunches:
    plan = plan_launch(one.task.problem, one.task.config, H200)
    truth = pace.play(plan, 0)
    stripes = stripes_of(plan, 0, truth)
    ctas = tuple(CriticalCta(0, 7, 1755.0, "timer", truth.done, stripes[:, :200]) for _ in range(3))
    return TracedLaunches("id", 0, 132, 10.0, 10.0 * ratio, ratio, 1.0, 1.02, 15, None, ctas)


def raw(count: int = 4) -> list[tuple[Traced, TracedLaunches]]:
    pairs = [(traced(64 * (8 + 8 * i)), Pace(400, 900 + 100 * i, 500, 3000)) for i in range(count)]
    rows = [(one, launched(one, pace, 1 + 0.01 * i)) for i, (one, pace) in enumerate(pairs)]
    shown = [replace(rows[0][0], role="math"), replace(rows[1][0], role="loads")]
    return [*rows, *zip(shown, (rows[0][1], rows[1][1]), strict=True)]


# ---- which


def test_the_sample_is_of_as_many_problems_over_every_suite(sample: list[Traced]) -> None:
    drawn = [one for one in sample if one.role == "sample"]
    assert len(drawn) == 200
    assert len({(one.task.problem, one.task.protocol.cache) for one in drawn}) == 200
    assert {one.suite for one in drawn} == {"paper", "llm", "varied", "odd", "unaligned"}
    assert {one.task.protocol.cache for one in drawn} == {"cold", "warm"}
    for field in ("mma_in_flight", "dma_warps", "math_warpgroups", "cluster_m", "split_k"):
        assert len({getattr(one.task.config, field) for one in drawn}) > 1, field


def test_what_is_traced_is_legal_and_kept_whole(sample: list[Traced]) -> None:
    for one in sample:
        problem, config = one.task.problem, one.task.config
        check(config, problem, H200)
        plan = plan_launch(problem, config, H200)
        units = -(-plan.units // plan.grid)
        depth = -(-problem.k // config.tile_k)
        assert units * (-(-depth // config.split_k) + 2) <= STEP_ROOM
        assert one.measured_us <= LONGEST_US


def test_a_seed_draws_the_same_and_another_others(sample: list[Traced]) -> None:
    assert chosen(TRUTH, H200, 200, seed=1) == sample
    assert chosen(TRUTH, H200, 20, seed=2) != sample[:22]


def test_two_are_shown_one_that_multiplies_and_one_that_waits(sample: list[Traced]) -> None:
    shown = {one.role: one for one in sample if one.role != "sample"}
    assert shown.keys() == TIMELINES.keys()
    share = {}
    for role, one in shown.items():
        model = modelled(one.task.problem, one.task.config, H200, cold=True)
        share[role] = model.events.wait_us / model.time_us
        assert SHOWN_ITERATIONS[0] <= len(model.events.wait) <= SHOWN_ITERATIONS[1]
    assert share["math"] < 0.05
    assert share["loads"] > 0.5


def test_a_table_with_too_few_problems_is_said_to_have_them() -> None:
    with pytest.raises(InvalidInput, match="not 100000"):
        chosen(TRUTH, H200, 100_000, seed=1)


# ---- what they come to


def test_figures_are_those_of_the_sample_rows_alone() -> None:
    record = made_of(raw())
    assert (record["traced"], record["failed"], len(record["rows"])) == (4, 0, 4)
    errors = [abs(row["trace"]["wait"]["error_us"]) for row in record["rows"]]
    assert record["wait"]["mean_error_us"] == pytest.approx(np.mean(errors))
    assert record["disturbance"] == pytest.approx({"median": 1.015, "p95": 1.0285, "worst": 1.03})
    assert -1 <= record["wait"]["rank_correlation"] <= 1
    assert "timeline" not in record["rows"][0]["trace"]
    assert record["timelines"].keys() == {"math", "loads"}
    assert record["timelines"]["math"]["trace"]["timeline"]["shown"] == 8
    json.dumps(record, allow_nan=False)


def test_records_that_make_no_sense_are_a_row_with_a_reason() -> None:
    one = traced(64 * 8)
    row = row_of(one, launched(traced(64 * 9), Pace(400, 900, 500, 3000)))
    assert row["reason"] == "trace_failed"
    record = result_of([row])
    assert (record["failed"], record["traced"]) == (1, 0)
    assert record["wait"]["mean_error_us"] is None


def test_a_configuration_that_could_not_be_run_is_a_row_with_a_reason() -> None:
    one, other = traced(64 * 8), traced(64 * 16)
    findings = TraceFindings([one, other, replace(one, role="math")])
    value = launched(one, Pace(400, 900, 500, 3000))
    findings.add((one.task,), Outcome(OutcomeKind.OK, 1.0, value=value))
    findings.add((other.task,), Outcome(OutcomeKind.TIMEOUT, 60.0, message="killed"))
    record = findings.to_dict()
    assert (findings.failed, record["failed"], record["traced"]) == (1, 1, 1)
    assert [row["reason"] for row in record["rows"]] == [None, "timeout"]
    assert record["timelines"].keys() == {"math"}


def test_what_launches_recorded_is_kept_and_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "raw.npz", tmp_path / "out.json"
    rows = raw()
    failed = [{**rows[0][0].to_dict(), "reason": "timeout", "details": "killed"}]
    save(file, FACTS, rows, failed)
    facts, again, still_failed = load(file)
    assert (facts, still_failed) == (FACTS, failed)
    assert [one for one, _ in again] == [one for one, _ in rows]
    assert made_of(again) == made_of(rows)
    with pytest.raises(SystemExit) as ended:
        gpu_trace.main(["--read", str(file), "--out", str(out)])
    assert ended.value.code == 2
    assert "of a traced build whose sources are not these" in capsys.readouterr().err
    save(file, FACTS | {"traced_hash": traced_hash()}, rows, failed)
    assert gpu_trace.main(["--read", str(file), "--out", str(out)]) == 0
    assert json.loads(out.read_text("utf-8")) == json.loads(
        json.dumps(FACTS | made_of(rows, failed))
    )


def test_a_file_without_launches_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "raw.npz"
    file.write_text("no archive", "utf-8")
    with pytest.raises(SystemExit) as ended:
        gpu_trace.main(["--read", str(file), "--out", str(tmp_path / "out.json")])
    assert ended.value.code == 2
    assert "holds no traced launches" in capsys.readouterr().err


def arguments(tmp_path: Path, *words: str) -> list[str]:
    return [*words, "--out", str(tmp_path / "out.json")]


def test_without_a_gpu_nothing_is_traced_and_it_exits_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent() -> Any:
        raise GpuAbsent("no GPU here")

    monkeypatch.setattr("bench.evidence.require_gpu", absent)
    with pytest.raises(SystemExit) as ended:
        gpu_trace.main(arguments(tmp_path, str(TRUTH)))
    assert ended.value.code == 3
    with pytest.raises(SystemExit) as ended:
        gpu_trace.main(arguments(tmp_path))
    assert ended.value.code == 2
    assert "one of the ground truth's table, --plan and --read is needed" in capsys.readouterr().err


def test_a_plans_rows_are_traced_once_each(tmp_path: Path) -> None:
    config = Config("sm90_gemm", 64, 64, 64, 4).to_dict()
    rows = [
        {"role": role, "cache": cache, "m": 64, "n": 64, "k": k, "config": config}
        for role, cache, k in (
            *(("sample", "cold", 512), ("pick", "cold", 512)),
            *(("sample", "warm", 512), ("sample", "cold", 1024)),
        )
    ]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"suite": "twins", "rows": rows}), "utf-8")
    found = planned(path, H200)
    assert [(t.task.problem.k, t.task.protocol.cache) for t in found] == [
        *((512, "cold"), (512, "warm"), (1024, "cold")),
    ]
    assert {(t.role, t.suite, t.measured_us) for t in found} == {("sample", "twins", None)}
    rows[0]["config"] = config | {"stages": 13}
    path.write_text(json.dumps({"suite": "twins", "rows": rows}), "utf-8")
    with pytest.raises(InvalidInput, match=r"plan\.json.*stages"):
        planned(path, H200)


def test_a_run_compiles_both_builds_traces_all_and_keeps_what_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [one for one, _ in raw()]
    answers = {one.task: each for one, each in raw()}
    compiled: list[str] = []

    def precompile(keys: Sequence[Any], progress: Any, builds: Sequence[Any]) -> dict[str, str]:
        compiled.extend(build.keywords["variant"].name for build in builds)
        return {}

    def record(options: Any, facts: Any, function: Any, batches: Any, *more: Any) -> int:
        findings = more[-1]
        for (task,) in batches[0]:
            findings.add((task,), Outcome(OutcomeKind.OK, 1.0, value=answers[task]))
        beside = {**facts, "seed": 1, "complete": True, "elapsed_s": 9.0}
        options.out.write_text(json.dumps(beside), "utf-8")
        return 0

    monkeypatch.setattr(gpu_trace, "chosen", lambda *_: wanted)
    monkeypatch.setattr(gpu_trace, "precompile", precompile)
    monkeypatch.setattr(gpu_trace, "record", record)
    monkeypatch.setattr(
        gpu_trace,
        "begin",
        lambda parser, words: (parser.parse_args(words), dict(FACTS), H200),
    )
    file = tmp_path / "raw.npz"
    assert gpu_trace.main(arguments(tmp_path, str(TRUTH), "--raw", str(file))) == 0
    assert compiled == ["SHIPPED", "TRACED"]
    facts, again, failed = load(file)
    assert (facts["complete"], len(again), failed) == (True, len(wanted), [])


# ---- what is shown


def test_a_record_is_told_in_a_line_a_table_and_two_pictures(tmp_path: Path) -> None:
    record = FACTS | made_of(raw())
    line = trace_line(record, "docs/")
    assert "over 4 configurations" in line
    assert "rank correlation" in line
    assert "1.5% in the median" in line
    assert "(docs/trace.md)" in line
    part = trace_part(record)
    assert len([row for row in part.splitlines() if row.startswith("| ")]) == 6
    drawn = draw_traces(record, tmp_path)
    assert set(drawn.values()) == {name for _, name in TIMELINES.values()}
    for name in drawn.values():
        assert (tmp_path / name).read_text("utf-8").startswith("<svg")


def test_without_a_record_or_with_one_of_other_sources_it_is_said_not_to_have_run(
    tmp_path: Path,
) -> None:
    assert trace_line(None) == "`bench.gpu_trace`: not run."
    old = FACTS | made_of(raw()) | {"source_hash": "0" * 64}
    short = FACTS | made_of(raw()) | {"complete": False}
    for record, words in ((None, "not run."), (old, "is of 000000000000"), (short, "cut short")):
        assert words in trace_part(record)
        assert draw_traces(record, tmp_path) == {}
    assert not list(tmp_path.iterdir())


def test_the_readme_and_the_page_show_what_is_recorded() -> None:
    path = RESULTS / DEVICE / "trace.json"
    record = json.loads(path.read_text("utf-8")) if path.is_file() else None
    assert trace_line(record, "docs/") in README.read_text("utf-8")
    assert trace_part(record) in PAGE.read_text("utf-8")
    assert "trace" not in NAMES
