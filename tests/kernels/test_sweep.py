"""The ground-truth sweep without a GPU: what fails is pinned to its row, and nothing is lost."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import kernels.sweep
import kernels.sweep_host
import kernels.sweep_mend
import kernels.sweep_runner
import kernels.sweep_worker
import kernels.verify
from kernels.bench import COMPILER_DIED
from kernels.errors import GpuLost
from kernels.host import ClockReading
from kernels.process import Outcome, OutcomeKind, Worker
from kernels.protocol import SAMPLE
from kernels.sweep import Sweep, main, parse_shard, run_sweep
from kernels.sweep_file import COLUMNS, Shard, ShardFile, difference, read_head, read_rows
from kernels.sweep_mend import held_back, mend, read_table
from kernels.sweep_merge import RECORD, TABLE, merge
from kernels.sweep_runner import FAILURES_IN_A_ROW, ROWS_A_CALL, Figures, SweepRunner
from kernels.sweep_worker import ROW, RowsTask, rest
from solver.config import Config
from solver.errors import InvalidInput
from solver.ground_truth import load_ground_truth
from solver.problem import Problem
from solver.sweep_design import Design, SweepRow, Visit

sys.path.insert(0, str(Path(__file__).parent))  # spawn hands sys.path on to the child
import sweep_functions as functions

FACTS = {"device": "NVIDIA H200", "driver": "580.1", "packages": {"numpy": "2"}, "seed": 2}
PROBLEMS = (
    Problem(512, 512, 512),
    Problem(17, 96, 128, "bf16", "nt", "fp32", 72, 104, 97, 1, 2, 3),
    Problem(64, 64, 64),
)


def row(stages: int, problem: Problem = PROBLEMS[0], **config: int) -> SweepRow:
    return SweepRow(
        "llm", "cold", "design", problem, Config("sm90_gemm", 64, 64, 64, stages, **config)
    )


def small_design(seed: int = 2) -> Design:
    rows = [row(stages, problem) for problem in PROBLEMS for stages in range(2, 9)]
    rows += [SweepRow("paper", "warm", "paper", PROBLEMS[2], r.config) for r in rows[:4]]
    return Design("h200", seed, 7, tuple(rows), (1, 8, 22))


class ScriptedWorker:
    """Times rows at once: as many µs as a row has stages; ``before`` may raise or give an outcome
    in a row's stead."""

    running = True

    def __init__(self, before: Callable[[Problem, Config], Any] = lambda p, c: None) -> None:
        self.before = before
        self.tasks: list[RowsTask] = []
        self.timed: list[tuple[Problem, Config]] = []

    def __enter__(self) -> ScriptedWorker:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def call(
        self, function: Any, arguments: Any, deadline_s: float, on_report: Any = None
    ) -> Outcome:
        if not arguments:
            return Outcome(OutcomeKind.OK, 0.1, value={"sms": 132, "l2_bytes": 60 << 20})
        (task,) = arguments
        self.tasks.append(task)
        for index, config in enumerate(task.configs):
            outcome = self.before(task.problem, config)
            if outcome is not None:
                return outcome  # type: ignore[no-any-return]
            self.timed.append((task.problem, config))
            on_report({"stage": "timing", "rounds": 8})
            on_report(
                {
                    "stage": ROW,
                    "index": index,
                    "median_us": float(config.stages),
                    "p95_us": 9.0,
                    "sm_clock_mhz": None,
                    "power_w": None,
                    "throttle": [],
                }
            )
        return Outcome(OutcomeKind.OK, 0.1)


Told = list[tuple[int, int, Figures]]


def measured(
    rows: list[SweepRow], visits: list[Visit], worker: Any, failures: dict[str, str] | None = None
) -> Told:
    told: Told = []
    runner = SweepRunner(
        rows, "h200", failures or {}, lambda *measurement: told.append(measurement), worker
    )
    runner.run(visits)
    return told


# One process, many rows


def test_rows_of_a_problem_are_timed_in_one_call_by_the_sample_protocol() -> None:
    worker = ScriptedWorker()
    rows = [row(stages) for stages in (4, 2, 3)]
    told = measured(rows, [Visit(0, (2, 0, 1))], worker)
    assert [(index, figures.median_us) for index, _, figures in told] == [(2, 3), (0, 4), (1, 2)]
    (task,) = worker.tasks
    assert task.protocol == SAMPLE.with_cache("cold")
    assert [config.stages for config in task.configs] == [3, 4, 2]


def test_a_long_visit_is_several_calls() -> None:
    worker = ScriptedWorker()
    rows = [row(2 + index % 8, split_k=1 + index) for index in range(2 * ROWS_A_CALL + 1)]
    told = measured(rows, [Visit(0, tuple(range(len(rows))))], worker)
    assert [index for index, _, _ in told] == list(range(len(rows)))
    assert [len(task.configs) for task in worker.tasks] == [ROWS_A_CALL, ROWS_A_CALL, 1]


def test_what_a_row_does_to_its_process_is_that_rows_loss_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels.sweep_runner, "time_rows", functions.time_rows)
    monkeypatch.setattr(kernels.sweep_runner, "ROW_DEADLINE_S", 5.0)
    monkeypatch.setattr(kernels.sweep_runner, "DEADLINE_A_ROW_S", 0.0)
    stages = (2, functions.HANGS, 3, functions.DIES, functions.RAISES, 4)
    with Worker() as worker:
        worker.start(60.0)  # so that only what is under test counts towards the hang's deadline
        told = measured([row(s) for s in stages], [Visit(0, tuple(range(len(stages))))], worker)
    assert [index for index, _, _ in told] == list(range(len(stages)))
    reasons = [figures.reason for _, _, figures in told]
    assert [reason is None for reason in reasons] == [True, False, True, False, False, True]
    assert str(reasons[1]).startswith("timeout: ")
    assert str(reasons[3]).startswith("fault: ")
    assert reasons[4] == "internal_error: ValueError: planted, in two lines"
    assert told[0][2] == Figures(2.0, 2.5, 1755, 412.34, ("power_cap", "sw_thermal"))


def test_a_kernel_that_did_not_compile_is_never_launched() -> None:
    worker = ScriptedWorker()
    rows = [row(3), row(4, math_warpgroups=2)]
    told = measured(rows, [Visit(0, (0, 1))], worker, {rows[1].key.name: "ptxas\nerror"})
    assert [f.reason for _, _, f in sorted(told, key=lambda each: each[0])] == [
        None,
        "compile_failed: ptxas error",
    ]
    assert len(worker.timed) == 1


def test_a_process_lost_to_something_else_is_no_rows_doing() -> None:
    lost = [Outcome(OutcomeKind.DIED, 1.0, message="killed", exit_code=-9)]
    worker = ScriptedWorker(lambda p, c: lost.pop() if c.stages == 3 and lost else None)
    told = measured([row(2), row(3), row(4)], [Visit(0, (0, 1, 2))], worker)
    assert [figures.median_us for _, _, figures in told] == [2, 3, 4]


def test_a_process_that_is_lost_again_ends_the_sweep_and_costs_no_row() -> None:
    gone = Outcome(OutcomeKind.ERROR, 1.0, None, "GpuAbsent", "no GPU is visible")
    worker = ScriptedWorker(lambda p, c: gone if c.stages == 3 else None)
    told: Told = []
    runner = SweepRunner([row(2), row(3)], "h200", {}, lambda *m: told.append(m), worker)  # type: ignore[arg-type]
    with pytest.raises(GpuLost, match="no GPU is visible"):
        runner.run([Visit(0, (0, 1))])
    assert [index for index, _, _ in told] == [0]


def test_rows_that_fail_one_after_another_are_the_gpus_doing_and_left_for_another_time() -> None:
    fault = Outcome(OutcomeKind.ERROR, 1.0, None, "CUDARuntimeError", "an illegal address")
    worker = ScriptedWorker(lambda p, c: fault if c.split_k > 1 else None)
    rows = [row(2), *(row(3, split_k=2 + index) for index in range(FAILURES_IN_A_ROW))]
    told: Told = []
    runner = SweepRunner(rows, "h200", {}, lambda *m: told.append(m), worker)  # type: ignore[arg-type]
    with pytest.raises(GpuLost, match="illegal address"):
        runner.run([Visit(0, tuple(range(len(rows))))])
    assert [index for index, _, _ in told] == [0]
    fewer = measured(rows[:-1], [Visit(0, tuple(range(len(rows) - 1)))], worker)
    assert len(fewer) == len(rows) - 1


# The files


def add(file: ShardFile, index: int, turn: int = 0, reason: str | None = None) -> None:
    figures = Figures(reason=reason) if reason else Figures(5.123456, 6.0, 1755, 412.34, ("a", "b"))
    file.add(index, turn, row(2 + index, PROBLEMS[1]), figures)


def written(folder: Path) -> bytes:
    with ShardFile(folder, Shard(), FACTS, 6) as file:
        for index in range(4):
            add(file, index, reason="fault: a, b" if index == 2 else None)
        add(file, 1, turn=1)
    return (folder / "shard_0_of_1.csv").read_bytes()


def test_a_line_has_every_field_of_its_pair_and_its_figures(tmp_path: Path) -> None:
    written(tmp_path)
    rows = read_rows(tmp_path / "shard_0_of_1.csv")
    first = rows[0]
    pair = row(2, PROBLEMS[1])
    expected = {**pair.problem.to_dict(), **pair.config.to_dict()}
    expected.pop("family")
    assert {name: str(value) for name, value in expected.items()}.items() <= first.items()
    assert first["median_us"] == "5.1235"
    assert (first["sm_clock_mhz"], first["power_w"], first["throttle"]) == ("1755", "412.3", "a+b")
    assert (rows[2]["median_us"], rows[2]["reason"]) == ("", "fault: a, b")
    head = read_head(tmp_path / "shard_0_of_1.json")
    assert (head["measured"], head["failed"], head["complete"]) == (5, 1, False)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_cut_at_any_byte_it_goes_on_with_every_whole_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    whole = written(folder)
    path = folder / "shard_0_of_1.csv"
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept = whole[:cut].count(b"\n") - 1  # less the header
    with ShardFile(folder, Shard(), FACTS, 6) as file:
        assert len(file.done) == max(0, kept)
        for index in range(4):
            if (index, 0) not in file.done:
                add(file, index, reason="fault: a, b" if index == 2 else None)
        if (1, 1) not in file.done:
            add(file, 1, turn=1)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("driver", "581.2", "driver 580.1, here it is 581.2: give --out another folder"),
        ("device", "NVIDIA H100", "device NVIDIA H200, here it is NVIDIA H100"),
        ("packages", {"numpy": "3"}, "packages.numpy 2, here it is 3"),
        ("seed", 3, "or --seed 2 as before"),
        ("source_hash", "abc", "source_hash None, here it is abc"),
    ],
)
def test_a_folder_of_another_sweep_is_refused_by_the_fact_that_differs(
    tmp_path: Path, name: str, value: Any, words: str
) -> None:
    before = written(tmp_path)
    with pytest.raises(InvalidInput) as raised:
        ShardFile(tmp_path, Shard(), FACTS | {name: value}, 6)
    assert raised.value.field == "out"
    assert words in raised.value.message
    assert (tmp_path / "shard_0_of_1.csv").read_bytes() == before


def test_files_that_are_no_sweeps_are_refused(tmp_path: Path) -> None:
    whole = written(tmp_path)
    path, head = tmp_path / "shard_0_of_1.csv", tmp_path / "shard_0_of_1.json"
    lines = whole.splitlines(keepends=True)
    for text, words in (
        (b"a,b\n", "line 1"),
        (lines[0] + b"1,2\n", "line 2"),
        (lines[0] + lines[1] + lines[1], "twice"),
        (lines[0] + b"x" + lines[1], "line 2"),
        (b"\xff\n", "no CSV"),
    ):
        path.write_bytes(text)
        with pytest.raises(InvalidInput, match=words):
            ShardFile(tmp_path, Shard(), FACTS, 6)
    path.write_bytes(whole)
    for text in ("", "[]", '{"facts": 3}'):
        head.write_text(text)
        with pytest.raises(InvalidInput):
            ShardFile(tmp_path, Shard(), FACTS, 6)
    head.unlink()
    with pytest.raises(InvalidInput, match=r"has no shard_0_of_1\.json"):
        ShardFile(tmp_path, Shard(), FACTS, 6)
    assert path.read_bytes() == whole


def test_two_sweeps_do_not_write_one_file(tmp_path: Path) -> None:
    with ShardFile(tmp_path, Shard(), FACTS, 6) as file:
        add(file, 0)
        with pytest.raises(InvalidInput, match="another sweep"):
            ShardFile(tmp_path, Shard(), FACTS, 6)
    with ShardFile(tmp_path, Shard(), FACTS, 6) as again:
        assert again.done == {(0, 0)}


def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="file"):
        ShardFile(tmp_path / "file", Shard(), FACTS, 6)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_disk_that_is_full_is_said_and_is_no_rows_failure(tmp_path: Path) -> None:
    with ShardFile(tmp_path, Shard(), FACTS, 6) as file:
        kept, file._file = file._file, os.open("/dev/full", os.O_WRONLY)
        try:
            with pytest.raises(InvalidInput, match="can't be written"):
                add(file, 0)
        finally:
            os.close(file._file)
            file._file = kept
        assert not file.done


def test_what_differs_is_told_to_the_innermost_name() -> None:
    assert difference({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}) == ("a.c", 2, 3)
    assert difference({"a": 1}, {}) == ("a", 1, None)
    assert difference({"a": {}}, {"a": {}}) is None


# The whole of it

QUIET = Console(stderr=True, quiet=True)
Host = Callable[[ScriptedWorker], None]


@pytest.fixture
def bare_host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host with a GPU whose worker is scripted, and a design of 25 rows."""
    gpu = SimpleNamespace(name="NVIDIA H200", driver="580.1")
    monkeypatch.setattr(kernels.sweep, "require_gpu", lambda: (gpu, "h200"))
    monkeypatch.setattr(kernels.sweep, "make_design", lambda d, rows, seed: small_design(seed))
    monkeypatch.setattr(kernels.sweep_host, "precompile", lambda keys, progress: {})
    monkeypatch.setattr(kernels.sweep_host, "nvrtc_version", lambda: "13.5")

    def use(worker: ScriptedWorker) -> None:
        monkeypatch.setattr(kernels.sweep, "Worker", lambda: worker)

    return use


def test_a_sweep_that_is_interrupted_goes_on_and_measures_nothing_twice(
    tmp_path: Path, bare_host: Host
) -> None:
    left = [11]

    def interrupt(problem: Problem, config: Config) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    first = ScriptedWorker(interrupt)
    bare_host(first)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(Sweep(tmp_path), QUIET)
    head = read_head(tmp_path / "shard_0_of_1.json")
    assert (head["measured"], head["planned"], head["complete"]) == (11, 28, False)
    with pytest.raises(InvalidInput, match="11 of 28"):
        merge(tmp_path)
    assert merge(tmp_path, partial=True)["complete"] is False

    second = ScriptedWorker()
    bare_host(second)
    summary = run_sweep(Sweep(tmp_path), QUIET)
    assert len(first.timed) + len(second.timed) == 28
    assert (summary["measured"], summary["failed"], summary["complete"]) == (28, 0, True)
    record = json.loads((tmp_path / RECORD).read_text())
    assert (record["rows"], record["repeated"], record["complete"]) == (25, 3, True)
    assert len(record["dates"]) == 2
    assert record["repeat_noise"]["llm"] == {"rows": 2, "median": 0.0, "p95": 0.0}
    third = ScriptedWorker()
    bare_host(third)
    run_sweep(Sweep(tmp_path), QUIET)
    assert not third.timed


def test_killed_again_and_again_it_keeps_every_row_and_measures_none_twice(
    tmp_path: Path, bare_host: Host
) -> None:
    path = tmp_path / "shard_0_of_1.csv"
    lines: list[bytes] = []
    for least in (4, 9, 15):
        program = [sys.executable, str(Path(__file__).with_name("sweep_program.py")), str(tmp_path)]
        with subprocess.Popen(program) as process:
            while process.poll() is None:
                if path.exists() and path.read_bytes().count(b"\n") > least:
                    process.kill()
                time.sleep(0.005)
        assert process.returncode == -signal.SIGKILL
        kept = path.read_bytes().splitlines()
        assert kept[: len(lines)] == lines
        lines = kept
    last = ScriptedWorker()
    bare_host(last)
    assert run_sweep(Sweep(tmp_path), QUIET)["complete"]
    assert len(last.timed) == 28 - (len(lines) - 1)
    assert path.read_bytes().splitlines()[: len(lines)] == lines


def test_a_kernel_that_waited_when_a_compiler_died_is_compiled_where_it_is_timed(
    tmp_path: Path, bare_host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare_host(ScriptedWorker())
    refused, waiting = sorted({row.key for row in small_design().rows})
    reasons = {refused.name: "ptxas: no", waiting.name: COMPILER_DIED}
    monkeypatch.setattr(kernels.sweep_host, "precompile", lambda keys, progress: reasons)
    run_sweep(Sweep(tmp_path), QUIET)
    rows = read_rows(tmp_path / "shard_0_of_1.csv")
    failed = {row["layout"] for row in rows if row["reason"]}
    assert failed == {refused.layout}
    assert {row["reason"] for row in rows} == {"", "compile_failed: ptxas: no"}


def test_the_record_says_how_everything_was_measured(tmp_path: Path, bare_host: Host) -> None:
    bare_host(ScriptedWorker())
    run_sweep(Sweep(tmp_path, commit="abc"), QUIET)
    record = json.loads((tmp_path / RECORD).read_text())
    named = {"device", "driver", "nvrtc", "packages", "commit", "source_hash", "copy_hash"}
    named |= {"model_version", "profile_sha256", "protocol", "seed", "design_sha256", "dates"}
    assert named <= set(record)
    assert record["commit"] == "abc"
    assert record["protocol"]["sample"] == SAMPLE.to_dict()
    assert "not checked" in record["protocol"]["description"]


def test_shards_make_the_table_that_one_run_makes(tmp_path: Path, bare_host: Host) -> None:
    bare_host(ScriptedWorker())
    for index in range(2):
        summary = run_sweep(Sweep(tmp_path / "two", shard=Shard(index, 2)), QUIET)
        assert summary["table"] is None
        if not index:
            with pytest.raises(InvalidInput, match="lacks shard 1/2"):
                merge(tmp_path / "two")
    merge(tmp_path / "two")
    run_sweep(Sweep(tmp_path / "one"), QUIET)
    tables = [gzip.decompress((tmp_path / name / TABLE).read_bytes()) for name in ("one", "two")]
    assert tables[0] == tables[1]


def test_shards_of_two_sweeps_are_not_joined(tmp_path: Path, bare_host: Host) -> None:
    bare_host(ScriptedWorker())
    run_sweep(Sweep(tmp_path, shard=Shard(0, 2)), QUIET)
    for change, words in (
        ({"commit": "abc"}, "commit abc"),
        ({"seed": 7}, "seed 7"),
    ):
        run_sweep(Sweep(tmp_path / "other", shard=Shard(1, 2), **change), QUIET)  # type: ignore[arg-type]
        for file in (tmp_path / "other").iterdir():
            file.rename(tmp_path / file.name)
        with pytest.raises(InvalidInput, match=words):
            merge(tmp_path)
    for file in tmp_path.glob("shard_1_of_2.*"):
        file.unlink()
    run_sweep(Sweep(tmp_path / "three", shard=Shard(2, 3)), QUIET)
    for file in (tmp_path / "three").iterdir():
        file.rename(tmp_path / file.name)
    with pytest.raises(InvalidInput, match="others are of 2"):
        merge(tmp_path)


def test_what_was_measured_is_read_back_in_groups(tmp_path: Path, bare_host: Host) -> None:
    fault = Outcome(OutcomeKind.ERROR, 1.0, None, "CUDARuntimeError", "an illegal address")
    failing = ScriptedWorker(lambda p, c: fault if (p.m, c.stages) == (17, 5) else None)
    bare_host(failing)
    summary = run_sweep(Sweep(tmp_path), QUIET)
    assert summary["failed"] == 1
    groups = load_ground_truth(tmp_path / TABLE)
    assert [(g.problem, g.cold) for g in groups] == [
        *((problem, True) for problem in PROBLEMS),
        (PROBLEMS[2], False),
    ]
    assert [len(g.measured_us) for g in groups] == [7, 6, 7, 4]
    for group in groups:
        np.testing.assert_array_equal(group.measured_us, group.columns["stages"])
        assert set(group.columns) == set(Config("x", 1, 1, 1, 1).to_dict()) - {"family"}
    assert [int(np.isfinite(g.repeat_us).sum()) for g in groups] == [1, 1, 0, 1]
    assert set(groups[-1].role) == {"paper"}


def test_a_file_that_is_no_ground_truth_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv.gz"
    for content in (b"", b"plain", gzip.compress(b"a,b\n1,2\n"), gzip.compress(b"x" * 99)[:20]):
        path.write_bytes(content)
        with pytest.raises(InvalidInput) as raised:
            load_ground_truth(path)
        assert raised.value.field == "ground_truth"
    with pytest.raises(InvalidInput):
        load_ground_truth(tmp_path / "absent.csv.gz")


@pytest.mark.parametrize(
    ("text", "words"),
    [("2/2", "between 0 and 1"), ("0/0", "between 1"), ("-1/2", "i/n"), ("1", "i/n"), ("", "i/n")],
)
def test_a_shard_that_is_none_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as raised:
        parse_shard(text)
    assert raised.value.field == "shard"
    assert parse_shard("1/2") == Shard(1, 2)


def test_bad_arguments_a_missing_gpu_and_an_interruption_have_exit_codes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernels.verify, "host_gpu", lambda: None)
    out = str(tmp_path / "out")
    for words in (["--shard", "3/2"], ["--design", "0"], ["--seed", "-1"], ["--partial"]):
        assert main(["--ground-truth", "--out", out, *words]) == 2
        assert words[0].strip("-") in capsys.readouterr().err
    assert main(["--merge", "--out", out]) == 2
    assert main(["--ground-truth", "--out", out]) == 3
    assert "no NVIDIA GPU" in capsys.readouterr().err
    assert not Path(out).exists()
    with pytest.raises(SystemExit):
        main(["--out", out])

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(kernels.sweep, "run_sweep", interrupted)
    assert main(["--ground-truth", "--out", out]) == 130


def test_columns_are_the_files_own() -> None:
    assert COLUMNS[:2] == ("row", "turn")
    assert len(set(COLUMNS)) == len(COLUMNS)


# A clock that was held back


class Readings:
    """A monitor that names the power cap so many times."""

    def __init__(self, capped: int) -> None:
        self.left = capped

    def read(self) -> ClockReading:
        self.left -= 1
        return ClockReading(1500, 600.0, ("power_cap",) if self.left >= 0 else ())


def test_a_problem_waits_until_the_power_cap_lets_go(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(kernels.sweep_worker.time, "sleep", slept.append)
    monitor = Readings(7)
    assert rest(monitor)
    assert len(slept) == 7
    assert monitor.left == -1
    assert rest(Readings(0))
    assert len(slept) == 7


def test_it_waits_no_longer_than_it_may() -> None:
    started = time.monotonic()
    assert not rest(Readings(10**9), 0.05)
    assert time.monotonic() - started < 1


def mendable(folder: Path, clocks: dict[int, int]) -> list[dict[str, str]]:
    """A whole table whose rows ran at 1,980 MHz but for these."""
    design = small_design()
    with ShardFile(folder, Shard(), MENDED, len(design.rows) + 3) as file:
        for index, each in enumerate(design.rows):
            clock = clocks.get(index, 1980)
            file.add(index, 0, each, Figures(50.0, 50.5, clock, 300.0, ()))
        for index in design.repeated:
            file.add(index, 1, design.rows[index], Figures(51.0, 51.5, 1500, 300.0, ()))
    merge(folder)
    return read_table(folder)[0]


MENDED = {
    "device": "NVIDIA H200",
    "driver": "580.1",
    "sms": 132,
    "l2_bytes": 60 << 20,
    "nvrtc": "13.5",
    "packages": {"numpy": "2"},
    "source_hash": "a",
    "copy_hash": "b",
}


@pytest.fixture
def mending(monkeypatch: pytest.MonkeyPatch) -> ScriptedWorker:
    worker = ScriptedWorker()
    gpu = SimpleNamespace(name="NVIDIA H200", driver="580.1")
    monkeypatch.setattr(kernels.sweep_mend, "require_gpu", lambda: (gpu, "h200"))
    monkeypatch.setattr(kernels.sweep_mend, "Worker", lambda: worker)
    for name, value in {
        "precompile": lambda keys, progress: {},
        "nvrtc_version": lambda: "13.5",
        "package_versions": lambda: {"numpy": "2"},
        "source_hash": lambda: "a",
        "copy_hash": lambda: "b",
    }.items():
        monkeypatch.setattr(kernels.sweep_host, name, value)
    return worker


def test_short_launches_at_a_low_clock_are_measured_again_and_nothing_else(
    tmp_path: Path, mending: ScriptedWorker
) -> None:
    before = mendable(tmp_path, {3: 1500, 9: 1899, 10: 1905})
    assert held_back(before) == [(1, 1), (3, 0), (8, 1), (9, 0), (22, 1)]
    shown = mend(tmp_path, "abc", Console(quiet=True))
    assert (shown["measured_again"], shown["failed"]) == (5, 0)
    after, record = read_table(tmp_path)
    changed = {index for index, row in enumerate(after) if row != before[index]}
    assert changed == {1, 3, 8, 9, 22}
    assert float(after[3]["median_us"]) == int(after[3]["stages"])
    assert after[1]["median_us"] == before[1]["median_us"]
    assert float(after[1]["repeat_us"]) == int(after[1]["stages"])
    (entry,) = record["mended"]
    assert entry["commit"] == "abc"
    assert "100 us" in entry["rule"]
    assert mending.tasks[0].protocol == SAMPLE.with_cache("cold")
    assert load_ground_truth(tmp_path / TABLE)


def test_a_long_launch_stays_as_it_is(tmp_path: Path, mending: ScriptedWorker) -> None:
    rows = mendable(tmp_path, {3: 1500})
    rows[3]["median_us"] = "100.0"
    assert (3, 0) not in held_back(rows)


def test_a_measurement_that_fails_again_leaves_the_old_one(
    tmp_path: Path, mending: ScriptedWorker
) -> None:
    before = mendable(tmp_path, {3: 1500})
    failed = Outcome(OutcomeKind.ERROR, 0.1, error_type="LaunchFailed", message="planted")
    mending.before = lambda problem, config: failed if config.stages == 5 else None
    shown = mend(tmp_path, None, Console(quiet=True))
    assert shown["failed"] == 1
    assert read_table(tmp_path)[0][3] == before[3]


def test_what_was_measured_before_the_gpu_was_lost_is_kept_and_gone_on_from(
    tmp_path: Path, mending: ScriptedWorker
) -> None:
    before = mendable(tmp_path, {3: 1500, 9: 1500})
    assert before[9]["stages"] == "4"

    def lost(problem: Problem, config: Config) -> None:
        if mending.timed:
            raise GpuLost("planted")

    mending.before = lost
    with pytest.raises(GpuLost):
        mend(tmp_path, None, Console(quiet=True))
    table, record = read_table(tmp_path)
    assert record["mended"][0]["measured_again"] == 1
    mending.before = lambda problem, config: None
    mend(tmp_path, None, Console(quiet=True))
    assert sum(entry["measured_again"] for entry in read_table(tmp_path)[1]["mended"]) >= 5
    assert held_back(table)


def test_a_mended_table_is_not_merged_over(tmp_path: Path, mending: ScriptedWorker) -> None:
    mendable(tmp_path, {3: 1500})
    mend(tmp_path, None, Console(quiet=True))
    with pytest.raises(InvalidInput, match="was mended"):
        merge(tmp_path)


@pytest.mark.parametrize("name", ["device", "driver", "nvrtc", "source_hash", "copy_hash"])
def test_a_table_of_something_else_is_not_mended(
    name: str, tmp_path: Path, mending: ScriptedWorker
) -> None:
    mendable(tmp_path, {3: 1500})
    record = json.loads((tmp_path / RECORD).read_text())
    (tmp_path / RECORD).write_text(json.dumps(record | {name: "other"}))
    with pytest.raises(InvalidInput, match=f"{name} other"):
        mend(tmp_path, None, Console(quiet=True))


def test_a_folder_without_a_table_is_refused(tmp_path: Path, mending: ScriptedWorker) -> None:
    with pytest.raises(InvalidInput, match="holds no table"):
        mend(tmp_path, None, Console(quiet=True))
