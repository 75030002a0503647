"""The bench runner without a GPU: plans read, jobs grouped, records kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kernels.bench
import kernels.verify
from kernels.bench import main, read_ceilings
from kernels.bench_plan import InvalidPlan, parse_plan, problem_of
from kernels.bench_result import ResultFile, failed_row, passed_row
from kernels.bench_runner import NO_EXTRAS, Extras, Runner
from kernels.choose import Choice, ChoiceTask, Tried
from kernels.process import Outcome, OutcomeKind
from kernels.protocol import BENCH, CHOICE, SAMPLE, SUSTAINED
from kernels.rivals import COLUMNS, RivalResult, RivalTask
from kernels.sustained import SustainedResult, SustainedTask
from kernels.verify import Reason
from kernels.worker import Task, TaskResult
from solver.errors import InvalidInput
from solver.problem import Problem

CONFIG = {"family": "sm90_gemm", "tile_m": 128, "tile_n": 128, "tile_k": 64, "stages": 4}
ROW = {
    "suite": "llm",
    "cache": "cold",
    "dtype": "bf16",
    "layout": "tn",
    "role": "pick",
    "m": 512,
    "n": 512,
    "k": 512,
    "config": CONFIG,
    "predicted_us": 6.0,
}
NO_TIMES = (0, 10**400, -1.0, True, "6.0", float("nan"), float("inf"), [6.0])
CONTRACT = {
    *ROW,
    *("median_us", "p95_us", "p99_us", "exact", "rel_error", "cublas_us", "ratio_to_cublas"),
    *("ratio_low", "ratio_high", "sm_clock_mhz"),
}


def plan_text(*rows: dict[str, Any], **beside: Any) -> str:
    return json.dumps(
        {"suite": "llm", "cache": "cold", "commit": "abc", "rows": list(rows)} | beside
    )


def result(median_us: float) -> TaskResult:
    return TaskResult(
        failure=None,
        registers=168,
        kernel_id="k",
        nvrtc="13.5",
        gpu={},
        sms=132,
        copies=("a",),
        exact=True,
        rel_error=0.001,
        median_us=median_us,
    )


class ScriptedWorker:
    """Answers tasks by a function, and keeps them."""

    running = True

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.tasks: list[Any] = []

    def call(self, function: Any, arguments: tuple[Any], deadline_s: float) -> Outcome:
        self.tasks.append(arguments[0])
        answer = self.answer(arguments[0])
        if isinstance(answer, Outcome):
            return answer
        return Outcome(OutcomeKind.OK, 0.1, value=answer)


def runner(
    answer: Any, failures: dict[str, str] | None = None, extras: Extras = NO_EXTRAS
) -> tuple[Runner, ScriptedWorker]:
    made = Runner("h200", None, failures or {}, extras)
    worker = ScriptedWorker(answer)
    made._worker = worker  # type: ignore[assignment]
    return made, worker


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (ROW | {"m": 0}, "rows[0].m"),
        (ROW | {"role": "king"}, "rows[0].role"),
        (ROW | {"cache": "tepid"}, "rows[0].cache"),
        (ROW | {"config": CONFIG | {"colour": 1}}, "rows[0].colour"),
        ({k: v for k, v in ROW.items() if k != "k"}, "rows[0]"),
        *((ROW | {"predicted_us": value}, "rows[0].predicted_us") for value in NO_TIMES),
        (ROW | {"suite": 5}, "rows[0].suite"),
        *((ROW | {"config": value}, "rows[0].config") for value in (None, 3, [], "x")),
        (ROW | {"check": "yes"}, "rows[0].check"),
    ],
)
def test_a_bad_row_is_named_with_its_field(row: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidPlan) as raised:
        parse_plan(plan_text(row))
    assert raised.value.field == field


def test_a_row_without_the_newer_fields_is_the_problem_it_always_was() -> None:
    problem = Problem(512, 512, 512, "fp16", "nt")
    old = {"m": 512, "n": 512, "k": 512, "dtype": "fp16", "layout": "nt", "median_us": 5.0}
    assert problem_of(old) == problem
    assert problem_of({"m": 512, "n": 512, "k": 512}) == Problem(512, 512, 512)


def test_a_row_carries_every_field_of_its_problem_to_the_result_and_back() -> None:
    problem = Problem(64, 96, 128, "fp16", "nt", "fp32", 72, 104, 97, 1, 2, 3)
    plan = parse_plan(plan_text(ROW | problem.to_dict()))
    record = passed_row(plan.rows[0], result(5.0))
    assert plan.rows[0].problem == problem
    assert record.items() >= problem.to_dict().items()
    assert problem_of(json.loads(json.dumps(record))) == problem


def test_a_pitch_that_cannot_be_is_named_with_its_row() -> None:
    with pytest.raises(InvalidPlan) as raised:
        parse_plan(plan_text(ROW, ROW | {"ldc": 511}))
    assert raised.value.field == "rows[1].ldc"


def test_one_problem_in_two_layouts_makes_two_jobs_and_needs_two_kernels() -> None:
    best = ROW | {"role": "best"}
    plan = parse_plan(plan_text(best, best | {"layout": "nn"}, best | {"ldc": 520}))
    assert len(plan.jobs()) == 3
    needed = plan.keys()
    assert [key.layout for key in needed] == ["nn", "tn"]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        *((text, "plan") for text in ("", "[]", "{}", '{"rows": 3}')),
        ('{"rows": []}', "rows"),
        *((plan_text(ROW, **{n: 5}), n) for n in ("suite", "cache", "commit", "source_hash")),
    ],
)
def test_a_file_that_is_no_plan_is_refused(text: str, field: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_plan(text)
    assert raised.value.field == field


@pytest.mark.parametrize("place", [".", "plan.json/result.json"])
def test_a_result_that_has_no_place_is_told_before_anything_is_measured(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(*_: Any) -> ResultFile:
        raise AssertionError("measured, with no place for the result")

    monkeypatch.setattr(kernels.bench, "run_plan", measured)
    plan = tmp_path / "plan.json"
    plan.write_text(plan_text(ROW))
    assert main([str(plan), "--out", str(tmp_path / place)]) == 2
    assert "out: " in capsys.readouterr().err


def test_candidates_of_one_problem_make_one_job() -> None:
    best = [ROW | {"role": "best", "config": CONFIG | {"stages": s}} for s in (3, 4, 5)]
    plan = parse_plan(plan_text(ROW, *best, best[0] | {"m": 64}, ROW))
    assert [len(job) for job in plan.jobs()] == [1, 3, 1, 1]


def test_a_plan_names_each_kernel_it_needs_once() -> None:
    rows = [ROW, ROW | {"m": 64}, ROW | {"config": CONFIG | {"tile_n": 64}}]
    assert len(parse_plan(plan_text(*rows)).keys()) == 2


def test_a_measured_row_keeps_the_contract() -> None:
    made, worker = runner(lambda task: result(5.0))
    (job,) = parse_plan(plan_text(ROW)).jobs()
    record = made.run(job)
    assert set(record) >= CONTRACT
    assert (record["status"], record["median_us"], record["copies"]) == ("passed", 5.0, ("a",))
    assert (worker.tasks[0].check, worker.tasks[0].cublas) == (True, True)
    assert worker.tasks[0].protocol == BENCH


def test_a_sample_is_timed_fast_and_alone() -> None:
    made, worker = runner(lambda task: result(5.0))
    (job,) = parse_plan(plan_text(ROW | {"role": "sample", "check": False})).jobs()
    made.run(job)
    assert worker.tasks[0].protocol == SAMPLE
    assert (worker.tasks[0].check, worker.tasks[0].cublas) == (False, False)


def best_job(*stages: int) -> Any:
    rows = [ROW | {"role": "best", "config": CONFIG | {"stages": s}} for s in stages]
    (job,) = parse_plan(plan_text(*rows)).jobs()
    return job


def test_the_best_is_chosen_in_one_pass_and_reported_from_another() -> None:
    def answer(task: Any) -> Any:
        if isinstance(task, ChoiceTask):
            return Choice((Tried(9.0, 6), Tried(7.0, 40), Tried(8.0, 6)), 1)
        return result(7.5)

    made, worker = runner(answer)
    record = made.run(best_job(3, 4, 5))
    assert (record["config"]["stages"], record["median_us"]) == (4, 7.5)
    assert [c["median_us"] for c in record["candidates"]] == [9.0, 7.0, 8.0]
    assert [c["rounds"] for c in record["candidates"]] == [6, 40, 6]
    assert record["choice_note"] is None
    choice, report = worker.tasks
    assert [config.stages for config in choice.configs] == [3, 4, 5]
    assert (choice.protocol, report.protocol) == (CHOICE, BENCH)
    assert (report.check, report.cublas, report.config.stages) == (True, True, 4)


def test_a_race_that_a_candidate_ends_is_run_one_by_one() -> None:
    times = {3: 9.0, 5: 8.0}

    def answer(task: Any) -> Any:
        if isinstance(task, ChoiceTask):
            return Outcome(OutcomeKind.TIMEOUT, 60.0, message="killed")
        if task.config.stages == 4:
            return Outcome(OutcomeKind.DIED, 1.0, message="gone", exit_code=-11)
        return result(times[task.config.stages])

    made, worker = runner(answer)
    record = made.run(best_job(3, 4, 5))
    assert record["config"]["stages"] == 5
    assert [c["median_us"] for c in record["candidates"]] == [9.0, None, 8.0]
    assert record["candidates"][1]["failure"] == "fault: gone"
    assert "timeout: killed" in record["choice_note"]
    assert [task.protocol for task in worker.tasks] == [CHOICE] * 4 + [BENCH]


def test_candidates_that_are_no_kernels_stay_out_of_the_race() -> None:
    def answer(task: Any) -> Any:
        if isinstance(task, ChoiceTask):
            assert [config.stages for config in task.configs] == [3, 5]
            return Choice((Tried(failure="CompilerMismatch: no"), Tried(8.0, 6)), 1)
        return result(8.0)

    made, _ = runner(answer)
    record = made.run(best_job(3, 12, 5))
    assert record["config"]["stages"] == 5
    failures = [c["failure"] for c in record["candidates"]]
    assert failures[0] == "CompilerMismatch: no"
    assert failures[1].startswith("illegal")
    assert failures[2] is None


@pytest.mark.parametrize("rival", COLUMNS)
def test_a_rival_is_a_call_of_its_own_with_columns_of_its_own(rival: str) -> None:
    def answer(task: Any) -> Any:
        if isinstance(task, RivalTask):
            assert (task.rival, task.protocol.cache) == (rival, "warm")
            return RivalResult(None, 6.0, 1.2, 1.19, 1.21, {"place": 2}, 8, 8)
        return result(5.0)

    made, worker = runner(answer, extras=Extras((rival,)))
    (job,) = parse_plan(plan_text(ROW | {"cache": "warm"})).jobs()
    record = made.run(job)
    column = COLUMNS[rival]
    assert (record["median_us"], record[f"{column}_us"]) == (5.0, 6.0)
    assert record[f"ratio_to_{column}"] == 1.2
    assert (record[f"ratio_to_{column}_low"], record[f"ratio_to_{column}_high"]) == (1.19, 1.21)
    assert (record[f"{column}_note"], record[f"{column}_how"]) == (None, {"place": 2})
    assert len(worker.tasks) == 2
    json.dumps(record)


def test_what_a_rival_does_to_its_process_leaves_the_row() -> None:
    def answer(task: Any) -> Any:
        if isinstance(task, RivalTask) and task.rival == "triton":
            return Outcome(OutcomeKind.DIED, 1.0, message="an illegal address", exit_code=1)
        if isinstance(task, RivalTask):
            return RivalResult("no algorithm")
        return result(5.0)

    made, _ = runner(answer, extras=Extras(tuple(COLUMNS)))
    (job,) = parse_plan(plan_text(ROW)).jobs()
    record = made.run(job)
    assert (record["status"], record["median_us"]) == ("passed", 5.0)
    assert record["triton_note"] == "fault: an illegal address"
    assert record["cublaslt_best8_note"] == "no algorithm"
    assert record["triton_us"] is None


def test_only_large_products_are_held_for_a_second() -> None:
    def answer(task: Any) -> Any:
        if isinstance(task, SustainedTask):
            assert task.protocol == SUSTAINED
            return SustainedResult(sustained_us=1600.0, sustained_ratio_to_cublas=1.03)
        return result(5.0)

    made, worker = runner(answer, extras=Extras(sustained=True))
    large = ROW | {"m": 8192, "n": 8192, "k": 8192}
    records = [made.run(job) for job in parse_plan(plan_text(ROW, large)).jobs()]
    assert records[0]["sustained_us"] is None
    assert "2^40" in records[0]["sustained_note"]
    assert records[1]["sustained_ratio_to_cublas"] == 1.03
    assert len(worker.tasks) == 3


def test_candidates_that_came_close_are_tried_for_a_second_too() -> None:
    held = []

    def answer(task: Any) -> Any:
        if isinstance(task, ChoiceTask):
            times = [1000.0, 1140.0, 1200.0, 1001.0]
            return Choice(tuple(Tried(time, 5) for time in times), 0)
        if isinstance(task, SustainedTask):
            held.append(task)
            return SustainedResult(sustained_us=1600.0)
        return result(5.0)

    made, _ = runner(answer, extras=Extras(sustained=True))
    rows = [
        ROW
        | {"m": 8192, "n": 8192, "k": 8192, "role": "best"}
        | {"config": CONFIG | {"stages": stages}}
        for stages in (3, 4, 5, 6)
    ]
    (job,) = parse_plan(plan_text(*rows)).jobs()
    made.run(job)
    (task,) = held
    assert task.config.stages == 3
    assert [other.stages for other in task.others] == [6, 4]


def test_a_failed_row_and_a_sample_have_no_rival() -> None:
    made, worker = runner(
        lambda task: replace(result(5.0), failure="wrong"), extras=Extras(("triton",), True)
    )
    sample = ROW | {"role": "sample", "check": False}
    failed, sampled = (made.run(job) for job in parse_plan(plan_text(ROW, sample)).jobs())
    assert failed["triton_note"] == failed["sustained_note"] == "not run: the row failed"
    assert "triton_note" not in sampled
    assert len(worker.tasks) == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ceilings": 3}'])
def test_a_file_that_is_no_record_of_ceilings_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "ceilings.json"
    file.write_text(text)
    with pytest.raises(InvalidInput) as raised:
        read_ceilings(file)
    assert raised.value.field == "ceilings"
    file.write_text('{"ceilings": {"copy_gb_per_s": 4300.0}}')
    assert read_ceilings(file) == {"copy_gb_per_s": 4300.0}


def test_a_row_that_kills_the_worker_is_recorded_and_the_rest_go_on() -> None:
    def answer(task: Task) -> Any:
        if task.problem.m == 256:
            return Outcome(OutcomeKind.TIMEOUT, 60.0, message="killed")
        return result(5.0)

    made, _ = runner(answer)
    records = [made.run(job) for job in parse_plan(plan_text(ROW | {"m": 256}, ROW)).jobs()]
    assert [r["status"] for r in records] == ["failed", "passed"]
    assert records[0]["reason"] == "timeout"
    assert set(records[0]) >= CONTRACT


def test_illegal_rows_and_kernels_that_did_not_compile_are_never_launched() -> None:
    def answer(task: Task) -> Any:
        raise AssertionError("launched")

    key = parse_plan(plan_text(ROW)).keys()[0].name
    made, _ = runner(answer, {key: "ptxas error"})
    illegal = ROW | {"config": CONFIG | {"stages": 12, "tile_n": 256}}
    records = [made.run(job) for job in parse_plan(plan_text(ROW, illegal)).jobs()]
    assert [r["reason"] for r in records] == [Reason.COMPILE_FAILED, Reason.ILLEGAL]


def test_the_result_file_is_whole_after_every_write(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    row = parse_plan(plan_text(ROW)).rows[0]
    file = ResultFile(out, {"suite": "llm"})
    file.add(passed_row(row, result(5.0)))
    written = json.loads(out.read_text())
    assert (written["complete"], written["measured"], len(written["rows"])) == (False, 1, 1)
    file.add(failed_row(row, Reason.FAULT, "gone"))
    file.add(passed_row(row, replace(result(5.0), failure="wrong", exact=False)))
    file.note(device="NVIDIA H200")
    file.write(complete=True)
    written = json.loads(out.read_text())
    assert (written["complete"], written["failed"], written["device"]) == (True, 2, "NVIDIA H200")
    assert [r["reason"] for r in written["rows"]] == [None, "fault", "wrong_result"]
    assert list(tmp_path.iterdir()) == [out]


def test_an_empty_result_is_json_too(tmp_path: Path) -> None:
    ResultFile(tmp_path / "r.json", {"suite": "llm"}).write(complete=False)
    assert json.loads((tmp_path / "r.json").read_text())["rows"] == []


def test_a_bad_plan_and_a_missing_gpu_have_exit_codes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "result.json"
    assert main([str(tmp_path / "absent.json"), "--out", str(out)]) == 2
    monkeypatch.setattr(kernels.verify, "host_gpu", lambda: None)
    plan = tmp_path / "plan.json"
    plan.write_text(plan_text(ROW))
    assert main([str(plan), "--out", str(out)]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no NVIDIA GPU" in captured.err
    assert not out.exists()


def test_a_run_keeps_how_everything_was_timed_and_the_ceilings_beside_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Extras] = []

    class FakeRunner:
        def __init__(self, device: str, sms: Any, failures: Any, extras: Extras, said: Any) -> None:
            asked.append(extras)
            self.said = said

        def device_facts(self) -> dict[str, Any]:
            return {"sms": 132, "l2_bytes": 60 << 20}

        def run(self, job: Any) -> dict[str, Any]:
            self.said("triton")
            return passed_row(job[0], result(5.0))

        def close(self) -> None:
            pass

    gpu = SimpleNamespace(name="NVIDIA H200", driver="580")
    monkeypatch.setattr(kernels.bench, "require_gpu", lambda: (gpu, "h200"))
    monkeypatch.setattr(kernels.bench, "precompile", lambda keys, progress: {})
    monkeypatch.setattr(kernels.bench, "Runner", FakeRunner)
    monkeypatch.setattr("kernels.nvrtc.version", lambda: "13.5")
    plan, out, ceilings = (tmp_path / f"{name}.json" for name in ("plan", "out", "ceilings"))
    plan.write_text(plan_text(ROW, ROW))
    ceilings.write_text('{"ceilings": {"copy_gb_per_s": 4300.0}}')
    words = [str(plan), "--out", str(out)]
    extra = ["--triton", "--cublaslt", "--sustained", "--ceilings", str(ceilings)]
    assert main([*words, *extra]) == 0
    written = json.loads(out.read_text())
    assert written["ceilings"] == {"copy_gb_per_s": 4300.0}
    assert {"triton", "cublaslt_best8", "sustained", "best"} <= set(written["protocol"])
    assert (written["complete"], len(written["rows"])) == (True, 2)
    assert main(words) == 0
    written = json.loads(out.read_text())
    assert "ceilings" not in written
    assert not {"triton", "sustained"} & set(written["protocol"])
    assert asked == [Extras(("triton", "cublaslt"), True), NO_EXTRAS]
    assert main([*words, "--ceilings", str(plan)]) == 2
