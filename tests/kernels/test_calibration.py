"""A whole calibration on a GPU that is another model: its rows come from constants of the test's
own, what NVML and the driver say is given as data."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernels.calibrate
import kernels.calibration
import kernels.process
import kernels.sweep_host
from kernels import calibration_rules as rules
from kernels.calibrate import main
from kernels.calibration import Asked, Calibration, calibrate
from kernels.calibration_worker import FitResult, FitTask
from kernels.errors import GpuLost, StepFailed
from kernels.host import GpuUse, HostGpu
from kernels.process import Outcome, OutcomeKind
from kernels.sweep_runner import Figures
from kernels.sweep_worker import ROW, RowsTask
from solver.calibration.rows import FAMILY, RowGroup, predict_us, with_constants
from solver.device import DeviceProfile, load_profile, shipped_text
from solver.errors import InvalidInput
from solver.ground_truth import CONFIG_FIELDS
from solver.model_version import MODEL_VERSION
from solver.split import is_held_out

H200 = load_profile("h200")
GPU = HostGpu("NVIDIA H200", "GPU-0", "580", 2**37, (9, 0), 1980, ())
QUIET = GpuUse(busy=0.0, others=0, throttle=(), highest_clock_mhz=1980)
FAST = Figures(median_us=10.0, p95_us=10.0, sm_clock_mhz=1980)
CEILINGS = {
    "read_bandwidth": {"read_gb_per_s": 4600.0, "read_bytes": 1},
    "copy_bandwidth": {"copy_gb_per_s": 3900.0},
    "tensor_peak": {"tensor_tflops": 900.0},
}


def off(factors: dict[str, float], device: DeviceProfile = H200) -> DeviceProfile:
    values = {name: factor * device.constant(FAMILY, name) for name, factor in factors.items()}
    return with_constants(device, values, "another GPU")


class FakeGpu:
    """Runs what is arithmetic here, answers what is the GPU's: rows take what ``truth`` says, those
    that may be fitted to off by a ``noise`` of their own each, the second time ``apart`` longer, at
    a clock and with the throttle reasons given."""

    running, halted = True, False

    def __init__(
        self,
        truth: DeviceProfile,
        *,
        noise: float = 0.0,
        apart: float = 0.001,
        clock_mhz: int = 1980,
        throttle: tuple[str, ...] = (),
        outcomes: dict[str, Outcome] | None = None,
    ) -> None:
        self._truth, self._noise, self._apart = truth, noise, apart
        self._clock_mhz, self._throttle = clock_mhz, throttle
        self._outcomes = outcomes or {}
        self._seen: set[Any] = set()
        self.called: list[str] = []

    def __enter__(self) -> FakeGpu:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def call(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        deadline_s: float,
        on_report: Callable[[dict[str, Any]], None] | None = None,
    ) -> Outcome:
        name = function.__name__
        self.called.append(name)
        if name in self._outcomes:
            return self._outcomes[name]
        if name == "time_rows":
            assert on_report is not None
            self._time(arguments[0], on_report)
            return Outcome(OutcomeKind.OK, 1.0)
        if name == "device_facts":
            return Outcome(OutcomeKind.OK, 1.0, value={"sms": 132, "l2_bytes": 62914560})
        if name in ("take", "release"):
            return Outcome(OutcomeKind.OK, 1.0)
        if name in CEILINGS:
            return Outcome(OutcomeKind.OK, 1.0, value=CEILINGS[name])
        before, kernels.process._tell = kernels.process._tell, on_report
        try:
            return Outcome(OutcomeKind.OK, 1.0, value=function(*arguments))
        finally:
            kernels.process._tell = before

    def _time(self, task: RowsTask, on_report: Callable[[dict[str, Any]], None]) -> None:
        columns = {n: np.array([getattr(c, n) for c in task.configs]) for n in CONFIG_FIELDS}
        group = RowGroup(
            task.problem, task.protocol.cache == "cold", columns, np.ones(len(task.configs))
        )
        for index, time_us in enumerate(predict_us(group, self._truth)):
            key = (task.problem, task.configs[index])
            is_fresh = is_held_out(task.problem.m, task.problem.n, task.problem.k)
            off = 0.0 if is_fresh else random.Random(repr(key)).gauss(0, self._noise)
            longer = math.exp(off) * (1 + self._apart * (key in self._seen))
            self._seen.add(key)
            on_report(
                {
                    "stage": ROW,
                    "index": index,
                    "median_us": float(time_us) * longer,
                    "p95_us": float(time_us) * longer,
                    "sm_clock_mhz": self._clock_mhz,
                    "power_w": 300.0,
                    "throttle": list(self._throttle),
                }
            )


Given = Callable[[GpuUse], None]


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """A host with an H200 that is quiet, or as the test says; nothing is compiled."""

    def use(facts: GpuUse) -> None:
        monkeypatch.setattr(kernels.calibration, "gpu_use", lambda uuid, own_contexts: facts)

    for module in (kernels.calibration, kernels.calibrate):
        monkeypatch.setattr(module, "require_gpu", lambda *_: (GPU, "h200"))
    monkeypatch.setattr(kernels.calibration, "compile_all", lambda keys, advance: {})
    monkeypatch.setattr(kernels.sweep_host, "nvrtc_version", lambda: "13.5")
    use(QUIET)
    return use


def run(gpu: FakeGpu, asked: Asked | None = None, told: list[Any] | None = None) -> Calibration:
    def tell(*words: Any) -> None:
        if told is not None:
            told.append(words)

    return calibrate(asked or Asked(rows=60), gpu, tell)  # type: ignore[arg-type]


SLOWER = {"hbm_bytes_per_us": 0.75, "l2_bytes_per_us": 0.8, "launch_us": 1.5}


def test_a_gpu_that_the_profile_is_wrong_of_is_learnt() -> None:
    told: list[Any] = []
    gpu = FakeGpu(off(SLOWER))
    found = run(gpu, Asked(rows=100), told)
    record = found.record
    assert found.refusal is None
    assert record["error"] < 0.02 < record["error_present"]
    assert (record["rows"], record["failed"], record["scratch"]) == (100, 0, False)
    assert record["fresh_rows"] > 40
    assert found.text is not None
    profile = json.loads(found.text)
    assert profile["calibration"]["error"] == pytest.approx(record["error"], abs=1e-5)
    assert profile["calibration"]["present_sha256"] == H200.sha256
    hbm = profile["models"][FAMILY]["hbm_bytes_per_us"]
    expected = 0.75 * H200.constant(FAMILY, "hbm_bytes_per_us")
    assert hbm["value"] == pytest.approx(expected, rel=0.05)
    assert "NVIDIA H200" in hbm["source"]
    steps = list(dict.fromkeys(step for step, _, _ in told))
    assert steps == ["look", "ceilings", "design", "measure", "fit"]
    assert ("measure", record["planned"] + 20, record["planned"] + 20) in told
    assert gpu.called[0] == "take"
    assert gpu.called[-1] == "release"


def test_a_profile_that_is_right_already_is_not_replaced_by_a_worse_one() -> None:
    found = run(FakeGpu(H200, noise=0.05))
    record = found.record
    assert record["fitted_error"] < record["fitted_error_before"]
    assert record["error"] > 0.001 > record["error_present"]
    assert found.refusal is not None
    assert found.refusal.reason == "predicts_worse"
    assert f"the present profile {record['error_present']:.2%}" in found.refusal.details


def test_a_profile_that_could_not_stand_in_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored, it would have kept every later question of the device from its answer."""
    monkeypatch.setattr(kernels.calibration, "fit_rows", _fits_a_lag_above_1)
    found = run(FakeGpu(H200))
    assert found.refusal is not None
    assert found.refusal.reason == "unfit"
    assert "release_lag_fraction must be at most 1" in found.refusal.details


def _fits_a_lag_above_1(task: FitTask) -> FitResult:
    raw = json.loads(shipped_text("h200")) | {"calibration": {"model_version": MODEL_VERSION}}
    raw["models"][FAMILY]["release_lag_fraction"]["value"] = 1.2
    return FitResult(0.05, 0.04, 0.05, 0.04, 1, json.dumps(raw))


@pytest.mark.parametrize(
    ("gpu", "reason", "words"),
    [
        (FakeGpu(H200, apart=0.05), "noisy", "5.0% apart in the median of 20 rows"),
        (FakeGpu(H200, clock_mhz=1400), "clock_held", "ran at 1400 MHz.*highest clock is 1980"),
        (FakeGpu(H200, throttle=("sw_thermal",)), "gpu_throttled", "sw_thermal"),
    ],
)
def test_rows_of_a_gpu_that_is_held_back_are_not_fitted_to(
    gpu: FakeGpu, reason: str, words: str
) -> None:
    found = run(gpu)
    assert found.refusal is not None
    assert found.refusal.reason == reason
    assert re.search(words, found.refusal.details)
    assert found.text is None
    assert "fit_rows" not in gpu.called


@pytest.mark.parametrize(
    ("use", "reason", "words"),
    [
        (replace(QUIET, busy=0.4), "gpu_shared", "40% busy with work of others"),
        (replace(QUIET, busy=None, others=1), "gpu_shared", "another process has a context"),
        (replace(QUIET, busy=None, others=3), "gpu_shared", "3 other processes have a context"),
        (replace(QUIET, throttle=("hw_thermal",)), "gpu_throttled", "hw_thermal"),
    ],
)
def test_a_gpu_that_is_shared_or_throttled_is_refused_before_anything_is_measured(
    use: GpuUse, reason: str, words: str, given: Given
) -> None:
    given(use)
    gpu = FakeGpu(H200)
    found = run(gpu)
    assert found.refusal is not None
    assert (found.refusal.reason, found.text) == (reason, None)
    assert words in found.refusal.details
    assert "time_rows" not in gpu.called
    assert gpu.called[-1] == "release"


def test_what_nvml_does_not_tell_refuses_nothing() -> None:
    assert rules.of_use(replace(QUIET, others=2)) is None  # they wait
    silent = GpuUse(busy=None, others=None, throttle=("not_reported",), highest_clock_mhz=None)
    assert rules.of_use(silent) is None
    assert rules.of_rows([replace(FAST, sm_clock_mhz=None)] * 20, None) is None


def test_the_power_cap_is_the_models_own_and_refuses_nothing() -> None:
    assert rules.of_rows([replace(FAST, throttle=("power_cap",))] * 20, 1980) is None
    long = replace(FAST, median_us=4000.0, sm_clock_mhz=1300)
    assert rules.of_rows([FAST, long, long, long], 1980) is None


def test_bounds_are_where_they_are_said_to_be() -> None:
    assert rules.of_use(replace(QUIET, busy=rules.BUSY)) is None
    broken = Figures(reason="fault: planted")
    assert rules.of_rows([broken] * 2 + [FAST] * 18, 1980) is None
    refused = rules.of_rows([broken] * 3 + [FAST] * 17, 1980)
    assert refused is not None
    assert refused.details == "3 of 20 rows failed, the first with fault: planted"
    hot = replace(FAST, throttle=("hw_slowdown",))
    assert rules.of_rows([hot] + [FAST] * 19, 1980) is None
    assert rules.of_rows([hot] * 2 + [FAST] * 18, 1980) is not None
    assert rules.of_repeats({1: 10.0, 2: 10.0}, {1: 10.19, 2: 10.19}) is None
    assert rules.of_repeats({1: 10.0}, {1: 10.3}) is not None
    nothing_twice = rules.of_repeats({1: 10.0}, {2: 10.0})
    assert nothing_twice is not None
    assert nothing_twice.reason == "rows_failed"
    assert rules.of_errors(0.05, 0.05, 52) is None
    assert rules.of_errors(0.05, math.nextafter(0.05, 1), 52) is not None


def test_a_process_that_is_lost_is_the_gpus_and_another_failure_names_its_step() -> None:
    killed = Outcome(OutcomeKind.DIED, 1.0, message="ended by SIGKILL", exit_code=-9)
    with pytest.raises(GpuLost, match="SIGKILL"):
        run(FakeGpu(H200, outcomes={"design_rows": killed}))
    raised = Outcome(OutcomeKind.ERROR, 1.0, None, "ValueError", "no sums")
    with pytest.raises(StepFailed, match="tensor_peak: ValueError: no sums"):
        run(FakeGpu(H200, outcomes={"tensor_peak": raised}))


def test_one_that_is_halted_while_it_compiles_ends_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu, told = FakeGpu(H200), []

    def compile_all(keys: list[Any], advance: Callable[[], None]) -> dict[str, str]:
        advance()
        gpu.halted = True
        advance()
        raise AssertionError("it went on")

    monkeypatch.setattr(kernels.calibration, "compile_all", compile_all)
    with pytest.raises(GpuLost, match="while it compiled"):
        run(gpu, told=told)
    assert [words[:2] for words in told if words[0] == "compile"] == [("compile", 1)]


@pytest.mark.parametrize(
    ("field", "value"), [("rows", 39), ("rows", 2001), ("seed", -1), ("seed", 2**31)]
)
def test_what_is_asked_for_has_limits(field: str, value: int) -> None:
    with pytest.raises(InvalidInput) as refused:
        Asked(**{field: value})
    assert refused.value.field == field


# The command


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeGpu], None]:
    monkeypatch.delenv("WARPWRIGHT_PROFILES", raising=False)

    def use(gpu: FakeGpu) -> None:
        monkeypatch.setattr(kernels.calibrate, "Worker", lambda: gpu)

    return use


def test_the_command_stores_a_better_profile_where_it_is_told(
    on: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on(FakeGpu(off(SLOWER)))
    folder = tmp_path / "profiles"
    monkeypatch.setenv("WARPWRIGHT_PROFILES", str(folder))
    assert main(["--rows", "60", "--commit", "abc"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["status"] == "stored"
    assert record["out"] == str(folder / "h200.json")
    profile = load_profile("h200")
    assert profile.calibration is not None
    assert profile.calibration["commit"] == "abc"
    on(FakeGpu(off(SLOWER)))  # the second time there is nothing to gain, or it gets better still
    again = main(["--rows", "60"])
    record = json.loads(capsys.readouterr().out)
    assert record["error_present"] < 0.03
    assert (again, record["status"]) in [(1, "refused"), (0, "stored")]


def test_a_dry_run_stores_nothing(
    on: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on(FakeGpu(off(SLOWER)))
    out = tmp_path / "p.json"
    assert main(["--dry-run", "--rows", "40", "--out", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "judged"
    assert not out.exists()


def test_a_refusal_is_told_with_its_reason_and_leaves_what_was_there(
    on: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on(FakeGpu(H200, clock_mhz=1200))
    out = tmp_path / "p.json"
    out.write_text("mine")
    assert main(["--rows", "60", "--out", str(out)]) == 1
    record = json.loads(capsys.readouterr().out)
    assert (record["status"], record["reason"], record["out"]) == ("refused", "clock_held", None)
    assert out.read_text() == "mine"


@pytest.mark.parametrize("place", ["", "file/h200.json"])
def test_a_place_where_no_file_can_be_put_is_told_before_anything_is_measured(
    place: str, on: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = FakeGpu(H200)
    on(gpu)
    (tmp_path / "file").write_text("")
    assert main(["--out", str(tmp_path / place)]) == 2
    assert "error: out: " in capsys.readouterr().err
    assert gpu.called == []


def test_a_present_profile_that_can_not_be_used_is_told_before_anything_is_measured(
    on: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = FakeGpu(H200)
    on(gpu)
    monkeypatch.setenv("WARPWRIGHT_PROFILES", str(tmp_path))
    raw = json.loads(shipped_text("h200")) | {"calibration": {"model_version": "0"}}
    (tmp_path / "h200.json").write_text(json.dumps(raw))
    assert main(["--dry-run"]) == 3
    told = " ".join(capsys.readouterr().err.split())
    assert "of model 0" in told
    assert "take it out and calibrate" in told
    assert gpu.called == []


def test_without_a_place_for_the_profile_nothing_is_measured(
    on: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = FakeGpu(H200)
    on(gpu)
    assert main([]) == 2
    assert "WARPWRIGHT_PROFILES names no folder" in capsys.readouterr().err.replace("\n", " ")
    assert gpu.called == []
