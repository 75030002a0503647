"""Holding a GPU whose energy counter and clock the test sets, and what is made of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from kernels.bench_plan import InvalidPlan
from kernels.errors import GpuAbsent, PowerUnread
from kernels.host import ClockMonitor, ClockReading
from kernels.power import __main__ as command
from kernels.power import run
from kernels.power.answers import Asked, judge, read_answers, score, verdict_words
from kernels.power.meter import HOLD, Held, Idle, hold
from kernels.power.run import Options
from kernels.power.worker import Holds, HoldTask
from kernels.process import Outcome, OutcomeKind
from kernels.sweep_file import Shard
from solver.config import Config
from solver.errors import InvalidInput
from solver.problem import Problem

CONFIG = Config("sm90_gemm", 64, 64, 64, 3)
OTHER = Config("sm90_gemm", 64, 128, 64, 3)
THIRD = Config("sm90_gemm", 64, 128, 64, 2)
PROBLEM = Problem(512, 512, 512)


class Device:
    """A clock that polls move, and a counter of millijoules that steps now and then."""

    def __init__(self, power_w: Callable[[float], float], step_s: float = 0.02) -> None:
        self.now_s = 100.0
        self.begun_s = self.now_s
        self.power_w, self.step_s = power_w, step_s
        self.joules = 5000.0
        self.told_mj = 5_000_000
        self.next_s = self.now_s + step_s

    def sleep(self, span_s: float) -> None:
        for _ in range(4):  # finer than a poll
            self.now_s += span_s / 4
            self.joules += self.power_w(self.now_s - self.begun_s) * span_s / 4
            if self.now_s >= self.next_s:
                self.told_mj = int(self.joules * 1e3)
                self.next_s += self.step_s

    def now(self) -> float:
        return self.now_s

    def energy_mj(self) -> int:
        return self.told_mj

    def read(self) -> ClockReading:
        return ClockReading(1500, self.power_w(self.now_s - self.begun_s), ("power_cap",))


class Launches(Idle):
    """A load that counts how often it was asked for more."""

    def __init__(self) -> None:
        self.asked = 0
        self.begun_at = -1

    def top_up(self) -> None:
        self.asked += 1

    def begin(self) -> None:
        self.begun_at = self.asked

    def launch_us(self) -> float:
        return 250.0


def held_on(device: Device, load: Any, **changes: Any) -> Held:
    return hold(load, device, replace(HOLD, **changes), device.now, device.sleep)


@pytest.mark.parametrize("step_s", [0.02, 0.1])
def test_power_is_what_the_counter_gains_from_step_to_step(step_s: float) -> None:
    device, load = Device(lambda _: 640.0, step_s), Launches()
    held = held_on(device, load)
    assert held.power_w == pytest.approx(640.0, rel=0.003)
    assert held.energy_j == pytest.approx(640.0 * 250e-6, rel=0.003)
    assert HOLD.hold_s <= held.span_s < HOLD.hold_s + 2.5 * step_s
    assert (held.launch_us, held.sm_clock_mhz, held.driver_power_w) == (250.0, 1500.0, 640.0)
    assert held.throttle == ("power_cap",)
    assert load.asked - load.begun_at > 400  # it never ran dry


def test_what_precedes_the_settled_load_is_not_counted() -> None:
    device = Device(lambda at: 100.0 if at < 0.35 else 500.0)
    assert held_on(device, Launches()).power_w == pytest.approx(500.0, rel=0.003)
    swinging = Device(lambda at: 300.0 if int(at * 20) % 2 else 700.0)
    assert held_on(swinging, Launches()).power_w == pytest.approx(500.0, rel=0.03)


def test_a_counter_that_stands_still_is_told() -> None:
    device = Device(lambda _: 640.0, step_s=1e9)
    with pytest.raises(PowerUnread, match="has not moved for 2 s"):
        held_on(device, Launches())
    assert device.now_s - device.begun_s < 3


class Nvml:
    """NVML of a GPU that has no energy counter."""

    class NVMLError(Exception):
        """What its calls raise."""

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int:
        raise self.NVMLError("Not Supported")

    nvmlDeviceGetEnforcedPowerLimit = nvmlDeviceGetTotalEnergyConsumption


def monitor(nvml: Any) -> ClockMonitor:
    made = object.__new__(ClockMonitor)
    made._pynvml, made._handle = nvml, 7
    return made


def test_a_gpu_without_a_counter_is_told_what_it_lacks() -> None:
    with pytest.raises(PowerUnread, match=r"counts no energy .*Not Supported.*MIG"):
        monitor(Nvml()).energy_mj()
    with pytest.raises(PowerUnread, match="no power limit"):
        monitor(Nvml()).power_limit_w()
    able = SimpleNamespace(
        NVMLError=Nvml.NVMLError,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: 10 * handle,
        nvmlDeviceGetEnforcedPowerLimit=lambda handle: 700_000,
    )
    assert (monitor(able).energy_mj(), monitor(able).power_limit_w()) == (70, 700.0)


# The plan's rows, and going on with them.


def row(config: Config = CONFIG, **more: Any) -> dict[str, Any]:
    return {
        "suite": "x",
        "cache": "warm",
        "role": "sample",
        **PROBLEM.to_dict(),
        "config": config.to_dict(),
        "predicted_us": 9.0,
        **more,
    }


def plan_of(folder: Path, rows: list[dict[str, Any]], name: str = "plan.json") -> Path:
    path = folder / name
    path.write_text(json.dumps({"suite": "power", "rows": rows}), "utf-8")
    return path


HELD = Held(600.0, 10.0, 0.006, 1700.0, 601.0, (), 1.1)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A GPU process whose answers the test gives."""
    seen = SimpleNamespace(tasks=[], answers={}, facts={"power_limit_w": 700.0}, clock=0.0)

    class Calls:
        running = True

        def __enter__(self) -> Calls:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def call(self, function: Any, arguments: Any, deadline_s: float) -> Outcome:
            if function is run.power_facts:
                device = {"sms": 132, "l2_bytes": 50 << 20, "idle_power_w": 75.0}
                value = {**device, "idle_sm_clock_mhz": 345.0, **seen.facts}
                return seen.answers.get("facts", Outcome(OutcomeKind.OK, 0.1, value))
            (task,) = arguments
            seen.tasks.append(task)
            seen.clock += 2.0
            holds = tuple((HELD,) * task.rounds for _ in task.configs)
            return seen.answers.get(task.configs[0], Outcome(OutcomeKind.OK, 1.0, Holds(holds)))

    monkeypatch.setattr(run, "Worker", Calls)
    monkeypatch.setattr(run, "require_gpu", lambda: (SimpleNamespace(name="X"), "h200"))
    monkeypatch.setattr(run, "host_facts", lambda gpu, device: {"device": gpu.name})
    monkeypatch.setattr(run, "compile_failures", lambda keys, progress: {})
    monkeypatch.setattr(run, "own_commit", lambda: "abc")
    monkeypatch.setattr(run.time, "monotonic", lambda: seen.clock)
    return seen


def quiet() -> Console:
    return Console(quiet=True)


def read(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return record


def test_each_row_is_held_and_recorded_with_what_it_is(tmp_path: Path, gpu: Any) -> None:
    plan, out = plan_of(tmp_path, [row(), row(OTHER)]), tmp_path / "power.json"
    assert run.measure_rows(plan, Options(out), quiet())
    record = read(out)
    assert (record["suite"], record["complete"], record["measured"]) == ("power", True, 2)
    assert (record["power_limit_w"], record["idle_power_w"]) == (700.0, 75.0)
    first = record["rows"][0]
    assert (first["row"], first["status"], first["power_w"]) == (0, "passed", 600.0)
    assert first["config"] == CONFIG.to_dict()
    assert {"energy_j", "launch_us", "sm_clock_mhz", "throttle"} <= set(first)
    assert [task.cache for task in gpu.tasks] == ["warm", "warm"]


def test_shards_and_a_budget_leave_the_rest_for_another_time(tmp_path: Path, gpu: Any) -> None:
    plan = plan_of(tmp_path, [row(), row(OTHER), row(THIRD), row(replace(OTHER, stages=4))])
    out = tmp_path / "power.json"
    assert run.measure_rows(plan, Options(out, Shard(1, 2)), quiet())
    assert [r["row"] for r in read(out)["rows"]] == [1, 3]
    assert not read(out)["complete"]
    assert run.measure_rows(plan, Options(out, budget_s=3.0), quiet())
    assert [r["row"] for r in read(out)["rows"]] == [1, 3, 0]
    assert run.measure_rows(plan, Options(out), quiet())
    assert [r["row"] for r in read(out)["rows"]] == [1, 3, 0, 2]
    assert read(out)["complete"]
    assert len(gpu.tasks) == 4  # none twice


def test_a_row_that_fails_costs_no_other_and_is_held_again(tmp_path: Path, gpu: Any) -> None:
    plan, out = plan_of(tmp_path, [row(), row(OTHER)]), tmp_path / "power.json"
    gpu.answers[CONFIG] = Outcome(OutcomeKind.TIMEOUT, 60.0, message="killed")
    assert not run.measure_rows(plan, Options(out), quiet())
    failed, passed = read(out)["rows"]
    assert (failed["status"], failed["power_w"], passed["status"]) == ("failed", None, "passed")
    assert "timeout" in failed["details"]
    gpu.answers.clear()
    assert run.measure_rows(plan, Options(out), quiet())
    assert [(r["row"], r["status"]) for r in read(out)["rows"]] == [(1, "passed"), (0, "passed")]


def test_an_illegal_row_is_not_launched(tmp_path: Path, gpu: Any) -> None:
    plan = plan_of(tmp_path, [row(replace(CONFIG, stages=12, tile_n=256))])
    assert not run.measure_rows(plan, Options(tmp_path / "o.json"), quiet())
    assert "illegal" in read(tmp_path / "o.json")["rows"][0]["details"]
    assert not gpu.tasks


def test_a_record_of_another_plan_or_gpu_is_not_gone_on_with(tmp_path: Path, gpu: Any) -> None:
    out = tmp_path / "power.json"
    run.measure_rows(plan_of(tmp_path, [row()]), Options(out), quiet())
    with pytest.raises(InvalidInput, match="was begun with plan_sha256"):
        run.measure_rows(plan_of(tmp_path, [row(OTHER)], "other.json"), Options(out), quiet())
    gpu.facts["idle_power_w"] = 80.0  # differs from run to run
    assert run.measure_rows(plan_of(tmp_path, [row()]), Options(out), quiet())
    out.write_text("{}", "utf-8")
    with pytest.raises(InvalidInput, match=r"no record of kernels\.power"):
        run.measure_rows(plan_of(tmp_path, [row()]), Options(out), quiet())


@pytest.mark.parametrize("what", ["facts", CONFIG])
def test_a_gpu_without_a_counter_ends_the_run(tmp_path: Path, gpu: Any, what: Any) -> None:
    words = "NVML counts no energy"
    gpu.answers[what] = Outcome(OutcomeKind.ERROR, 1.0, None, "PowerUnread", words)
    with pytest.raises(PowerUnread, match=words):
        run.measure_rows(plan_of(tmp_path, [row()]), Options(tmp_path / "o.json"), quiet())


def test_a_lost_environment_ends_the_run(tmp_path: Path, gpu: Any) -> None:
    gpu.answers[CONFIG] = Outcome(OutcomeKind.ERROR, 1.0, None, "CompilerAbsent", "no NVRTC")
    with pytest.raises(GpuAbsent, match="no NVRTC"):
        run.measure_rows(plan_of(tmp_path, [row()]), Options(tmp_path / "o.json"), quiet())


# Answers.


def question(**more: Any) -> dict[str, Any]:
    answers = {"pick": CONFIG, "weighted": OTHER, "capped": THIRD}
    return {
        **PROBLEM.to_dict(),
        "cache": "warm",
        "weights": {"time": 1.0, "energy": 10.0},
        "cap_w": 500,
        "answers": {role: {"config": c.to_dict(), "predicted": {}} for role, c in answers.items()},
        **more,
    }


def answers_of(folder: Path, questions: Any) -> Path:
    path = folder / "answers.json"
    path.write_text(json.dumps({"questions": questions}), "utf-8")
    return path


def asked(folder: Path, **more: Any) -> Asked:
    (found,) = read_answers(answers_of(folder, [question(**more)]))
    return found


def holds(power_w: float, launch_us: float, spread: float = 0.002) -> list[Held]:
    """Eight of them, some above and some below."""
    factors = [1 + spread * off for off in (-1.5, -1, -0.5, -0.1, 0.1, 0.5, 1, 1.5)]
    return [
        Held(power_w * f, launch_us * f, power_w * launch_us * f * f / 1e6, 1500.0, None, (), 1.1)
        for f in factors
    ]


def judged(
    folder: Path, weighted: list[Held], capped: list[Held], **more: Any
) -> tuple[str, str, dict[str, Any]]:
    found = judge(
        asked(folder, **more),
        {"pick": holds(650, 100), "weighted": weighted, "capped": capped},
    )
    return found["weighted"]["verdict"], found["capped"]["verdict"], found


def test_a_score_is_time_and_energy_by_their_weights() -> None:
    held = Held(500.0, 100.0, 0.05, None, None, (), 1.1)
    assert score(held, {"time": 1.0, "energy": 10.0}) == pytest.approx(100 + 10 * 50)


def test_answers_hold_where_the_measured_sum_is_lower_and_the_power_below_its_cap(
    tmp_path: Path,
) -> None:
    weighted, capped, found = judged(tmp_path, holds(560, 108), holds(480, 140))
    assert (weighted, capped) == ("holds", "holds")
    assert found["weighted"]["score_ratio_to_pick"]["high"] < 1
    assert found["measured"]["capped"]["power_w_high"] <= 500
    assert found["measured"]["pick"]["energy_j"] == pytest.approx(0.065, rel=0.01)


def test_answers_fail_where_the_opposite_is_sure_and_are_undecided_between(tmp_path: Path) -> None:
    assert judged(tmp_path, holds(650, 104), holds(520, 140))[:2] == ("fails", "fails")
    near = judged(tmp_path, [*holds(650, 100)[4:], *holds(650, 100)[:4]], holds(500, 140))
    assert near[:2] == ("undecided", "undecided")


def test_a_weighted_answer_that_is_the_pick_is_called_so(tmp_path: Path) -> None:
    same = question()
    same["answers"]["weighted"] = same["answers"]["pick"]
    assert judged(tmp_path, holds(650, 104), holds(480, 140), **same)[0] == "the pick itself"


@pytest.mark.parametrize(
    ("questions", "words"),
    [
        ([], "a list of questions"),
        (None, "a list of questions"),
        ([{}], r"questions\[0\]: is no question"),
        ([question(), question(cap_w="x")], r"questions\[1\]: is no question"),
        ([question(weights={"time": 1})], r"questions\[0\]: is no question"),
        ([question(cache="hot")], r"questions\[0\].cache"),
        ([question(m=0)], r"questions\[0\].m"),
        ([question(answers={"pick": {}})], r"questions\[0\]: is no question"),
    ],
)
def test_a_wrong_file_of_answers_is_told_by_its_place(
    tmp_path: Path, questions: Any, words: str
) -> None:
    with pytest.raises(InvalidPlan, match=words):
        read_answers(answers_of(tmp_path, questions))


def test_answers_are_held_in_turn_checked_and_judged(tmp_path: Path, gpu: Any) -> None:
    path, out = answers_of(tmp_path, [question(), question(cap_w=700)]), tmp_path / "held.json"
    assert not run.measure_answers(path, Options(out), quiet())
    (task, _) = gpu.tasks
    assert isinstance(task, HoldTask)
    assert (task.configs, task.rounds, task.seed is None) == ((CONFIG, OTHER, THIRD), 8, False)
    first, second = read(out)["rows"]
    assert (first["status"], first["details"]) == ("failed", "the capped answer does not hold")
    assert (second["capped"]["verdict"], second["status"]) == ("holds", "passed")
    words = verdict_words(second)
    assert words.startswith("512 x 512 x 512: weighted undecided (1.000 of the pick's sum")
    assert words.endswith("capped holds (600 W, 600 to 600, of 700 W)")
    gpu.answers[CONFIG] = Outcome(OutcomeKind.OK, 1.0, Holds(failure="wrong"))
    path.write_text(json.dumps({"questions": [question()]}), "utf-8")
    assert not run.measure_answers(path, Options(tmp_path / "other.json"), quiet())
    assert read(tmp_path / "other.json")["rows"][0]["details"] == "wrong"


# The command.


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["nowhere.json"], 2),
        (["--answers", "nowhere.json"], 2),
        (["plan.json", "--shard", "2/2"], 2),
        (["plan.json", "--rounds", "5"], 2),
        (["plan.json", "--budget-s", "0"], 2),
    ],
)
def test_a_wrong_option_is_told(
    arguments: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    plan_of(tmp_path, [row()])
    assert command.main([*arguments, "--out", "o.json"]) == code
    assert not gpu.tasks


def test_without_a_gpu_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    plan = plan_of(tmp_path, [row()])
    assert command.main([str(plan), "--out", str(tmp_path / "o.json")]) == 3
