"""A whole sweep of given problems on a GPU that is another model, cut off and gone on with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import kernels.problem_sweep
import kernels.sweep_host
from kernels.errors import GpuLost, StepFailed
from kernels.gpu_lock import release, take
from kernels.host import HostGpu
from kernels.problem_sweep import SweepResult, plan, sweep_problems
from kernels.process import Outcome, OutcomeKind
from kernels.sweep_worker import ROW, RowsTask, time_rows
from kernels.worker import device_facts
from solver.config import Config
from solver.problem import Problem
from solver.problem_sweep import ProblemSweep
from tests.kernels.kept_rows import Kept

GPU = HostGpu("NVIDIA H200", "GPU-0", "580", 2**37, (9, 0), 1980, ())
SWEEP = ProblemSweep(
    (Problem(512, 512, 512), Problem(300, 200, 100, layout="tt")), top_k=4, covering=3
)
FACTS = {"sms": 132, "l2_bytes": 60 << 20}
DIED = Outcome(OutcomeKind.DIED, 0.1, message="the process was ended by SIGSEGV", exit_code=-11)
LOST = Outcome(OutcomeKind.DIED, 0.1, message="killed", exit_code=-9)


class FakeGpu:
    """Does arithmetic here; a row takes 10 µs and one more for each stage. ``instead`` may give an
    outcome in a configuration's stead."""

    running, halted = True, False

    def __init__(self) -> None:
        self.instead: dict[Config, Outcome] = {}
        self.timed: list[Config] = []
        self.locked = False

    def call(
        self, function: Any, arguments: Any, deadline_s: float, on_report: Any = None
    ) -> Outcome:
        if function is plan:
            try:
                return Outcome(OutcomeKind.OK, 0.1, value=plan(*arguments))
            except Exception as error:
                return Outcome(OutcomeKind.ERROR, 0.1, None, type(error).__name__, str(error))
        if function is device_facts:
            return Outcome(OutcomeKind.OK, 0.1, value=FACTS)
        if function in (take, release):
            self.locked = function is take
            return Outcome(OutcomeKind.OK, 0.1)
        assert function is time_rows
        assert self.locked, "a launch without the GPU's lock"
        (task,) = arguments
        return self._time(task, on_report)

    def _time(self, task: RowsTask, on_report: Any) -> Outcome:
        assert task.protocol.cache == SWEEP.cache
        for index, config in enumerate(task.configs):
            if config in self.instead:
                self.locked = False  # the process is replaced, and the lock gone with it
                return self.instead[config]
            self.timed.append(config)
            on_report(
                {
                    "stage": ROW,
                    "index": index,
                    "median_us": 10.0 + config.stages,
                    "p95_us": 20.0,
                    "sm_clock_mhz": 1980,
                    "power_w": 300.0,
                    "throttle": ["power_cap"],
                }
            )
        return Outcome(OutcomeKind.OK, 0.1)


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was compiled; nothing is."""
    names: list[str] = []

    def compile_all(keys: Any, advance: Any) -> dict[str, str]:
        for key in keys:
            names.append(key.name)
            advance()
        return {}

    monkeypatch.setattr(kernels.problem_sweep, "compile_all", compile_all)
    monkeypatch.setattr(kernels.sweep_host, "nvrtc_version", lambda: "13.5")
    return names


def run(
    gpu: FakeGpu,
    kept: Kept | None = None,
    sweep: ProblemSweep = SWEEP,
    host: HostGpu = GPU,
    told: list[Any] | None = None,
) -> SweepResult:
    def tell(*words: Any) -> None:
        if told is not None:
            told.append(words)

    worker: Any = gpu
    return sweep_problems(sweep, host, "h200", worker, kept or Kept(), tell)


def test_every_row_is_measured_and_summed_up(compiled: list[str]) -> None:
    gpu, kept, told = FakeGpu(), Kept(), []
    found = run(gpu, kept, told=told)
    record = found.record
    assert (found.failed, record["planned"], record["measured"]) == (0, 14, 14)
    assert sorted(kept.rows) == list(range(14))
    assert len(compiled) == len(set(compiled)) > 1
    assert (record["device"], record["uuid"], record["nvrtc"]) == ("NVIDIA H200", "GPU-0", "13.5")
    assert record["protocol"]["cache"] == "cold"
    for place, summary in enumerate(record["problems"]):
        mine = [row for row in kept.rows.values() if row["problem"] == place]
        best = min(row["median_us"] for row in mine)
        pick = next(row for row in mine if row["pick"])
        assert (summary["rows"], summary["failed"]) == (7, 0)
        assert summary["best"]["median_us"] == best
        assert summary["pick"]["config"] == pick["config"]
        assert summary["regret"] == pytest.approx(pick["median_us"] / best - 1)
    assert [words for words in told if words[0] == "measure"][-1] == ("measure", 14, 14)
    assert not gpu.locked


def test_one_that_was_cut_off_goes_on_and_measures_nothing_twice() -> None:
    gpu, kept = FakeGpu(), Kept()
    rows = plan(SWEEP, "h200")
    last = rows[-1].row.config
    gpu.instead[last] = LOST
    with pytest.raises(GpuLost):
        run(gpu, kept)
    before = len(kept.rows)
    assert 7 <= before < 14
    gpu.instead.clear()
    told: list[Any] = []
    found = run(gpu, kept, told=told)
    assert (found.record["measured"], len(gpu.timed)) == (14, 14)
    assert ("measure", before, 14) in told


@pytest.mark.parametrize("what", ["driver", "uuid", "seed"])
def test_rows_of_another_host_or_design_are_measured_again(what: str) -> None:
    gpu, kept = FakeGpu(), Kept()
    run(gpu, kept)
    if what == "seed":
        run(gpu, kept, sweep=replace(SWEEP, seed=5))
    else:
        run(gpu, kept, host=replace(GPU, **{what: "another"}))
    assert len(gpu.timed) == 28


def test_what_was_measured_whole_is_not_measured_again() -> None:
    gpu, kept = FakeGpu(), Kept()
    first = run(gpu, kept).record
    again = run(gpu, kept).record
    assert len(gpu.timed) == 14
    assert {**again, "seconds": 0} == {**first, "seconds": 0}


def test_a_row_that_faults_is_its_own_loss_and_its_process_gets_the_lock_again() -> None:
    gpu, kept = FakeGpu(), Kept()
    bad = next(row.row.config for row in plan(SWEEP, "h200") if row.pick)
    gpu.instead[bad] = DIED
    found = run(gpu, kept)
    failed = [row for row in kept.rows.values() if row["reason"] is not None]
    assert found.failed == len(failed) >= 1
    assert all("SIGSEGV" in row["reason"] and row["median_us"] is None for row in failed)
    first = found.record["problems"][0]
    assert (first["pick"], first["regret"]) == (None, None)
    assert first["best"] is not None


def test_a_kernel_that_can_not_be_compiled_is_never_launched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compile_all(keys: Any, advance: Any) -> dict[str, str]:
        return {key.name: "no registers left" for key in keys}

    monkeypatch.setattr(kernels.problem_sweep, "compile_all", compile_all)
    gpu, kept = FakeGpu(), Kept()
    found = run(gpu, kept)
    assert (found.failed, gpu.timed) == (14, [])
    assert {row["reason"] for row in kept.rows.values()} == {"compile_failed: no registers left"}
    assert [summary["best"] for summary in found.record["problems"]] == [None, None]


def test_one_that_is_ended_while_it_compiles_compiles_no_further(compiled: list[str]) -> None:
    gpu = FakeGpu()
    gpu.halted = True
    with pytest.raises(GpuLost, match="ended while it compiled"):
        run(gpu)
    assert len(compiled) == 1


def test_a_configuration_that_is_not_legal_here_is_a_step_that_fails() -> None:
    sweep = replace(SWEEP, configs=(Config("sm90_gemm", 64, 64, 64, 99),))
    with pytest.raises(StepFailed, match="plan: IllegalConfig"):
        run(FakeGpu(), sweep=sweep)
