"""A configuration against the fastest of others, without the GPU."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cupy")

import kernels.against as against
import kernels.checking as checking
import kernels.measure as measuring
import kernels.session as sessions
import kernels.sides as making
import kernels.worker as worker
from kernels.against import Against, AgainstTask, run_against
from kernels.choose import Choice, ChoiceTask, Tried
from kernels.protocol import CHOICE, VERIFY
from kernels.statistics import RatioInterval, summarise
from kernels.worker import Task
from solver.config import Config
from solver.problem import Problem

PROBLEM = Problem(512, 512, 512)
OWN, *OTHERS = (Config("sm90_gemm", 64, 64, 64, stages) for stages in (3, 4, 5))
TASK = AgainstTask(PROBLEM, OWN, tuple(OTHERS), "h200", 7, VERIFY)
RATIO = RatioInterval(0.9, 0.89, 0.91, 20, None)


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A GPU process whose race the second of the others wins; ``wrong`` are its check's details."""
    state = SimpleNamespace(winner=1, wrong=(), measured=[])

    def choice(task: ChoiceTask) -> Choice:
        assert (task.configs, task.protocol) == (tuple(OTHERS), CHOICE)
        return Choice((Tried(9.0, 20), Tried(8.0, 20)), state.winner)

    def checked(session: Any, kernel: Any, problem: Any, config: Config, *_: Any) -> Any:
        assert config == OTHERS[state.winner]
        return SimpleNamespace(passed=not state.wrong, details=state.wrong)

    def measure(session: Any, sides: list[Any], protocol: Any, flush: bool) -> Any:
        state.measured = sides
        timings = tuple(summarise([time] * 20, 4) for time in (10.0, 9.0))
        return SimpleNamespace(timings=timings, ratio=RATIO)

    monkeypatch.setattr(against, "run_choice", choice)
    monkeypatch.setattr(sessions, "session", lambda: SimpleNamespace(sms=132))
    monkeypatch.setattr(making, "kernel_of", lambda *_: None)
    monkeypatch.setattr(making, "input_sets", lambda *_: ([None], False))
    monkeypatch.setattr(making, "own_side", lambda session, problem, config, *_: config)
    monkeypatch.setattr(checking, "check_config", checked)
    monkeypatch.setattr(measuring, "measure", measure)
    return state


def test_the_winner_of_the_race_is_timed_afresh_next_to_the_configuration_itself(
    on_gpu: SimpleNamespace,
) -> None:
    found = run_against(TASK)
    assert on_gpu.measured == [OWN, OTHERS[1]]
    assert (found.config, found.failure) == (OTHERS[1].to_dict(), None)
    assert (found.ratio, found.low, found.high, found.rounds) == (0.9, 0.89, 0.91, 20)
    assert (found.own_us, found.time_us) == (10.0, 9.0)
    assert [each["median_us"] for each in found.tried] == [9.0, 8.0]


def test_a_fastest_one_that_is_wrong_is_a_failure_and_no_rival(on_gpu: SimpleNamespace) -> None:
    on_gpu.wrong = ("exact round: 3 elements wrong",)
    found = run_against(TASK)
    assert (found.failure, found.ratio) == ("exact round: 3 elements wrong", None)
    assert on_gpu.measured == []


def test_where_no_other_runs_there_is_nothing_to_compare_with(on_gpu: SimpleNamespace) -> None:
    on_gpu.winner = None
    found = run_against(TASK)
    assert found.config is None
    assert found.note == "none of the other configurations could be run"


def test_a_task_with_others_ends_with_the_comparison_and_one_without_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = SimpleNamespace(registers=168, kernel_id="k", nvrtc="13.5")
    session = SimpleNamespace(sms=132, gpu=SimpleNamespace(to_dict=dict))
    monkeypatch.setattr(sessions, "session", lambda: session)
    monkeypatch.setattr(making, "kernel_of", lambda *_: SimpleNamespace(compiled=compiled))
    monkeypatch.setattr(worker, "_time", lambda task: {"median_us": 10.0})
    asked: list[AgainstTask] = []

    def run(task: AgainstTask) -> Against:
        asked.append(task)
        return Against(ratio=0.9)

    monkeypatch.setattr(worker, "run_against", run)
    task = Task(PROBLEM, OWN, "h200", 7, VERIFY, check=False, against=tuple(OTHERS))
    result = worker.run_task(task)
    assert result.against is not None
    assert (result.median_us, result.against["ratio"]) == (10.0, 0.9)
    assert asked == [TASK]
    assert worker.run_task(replace(task, against=())).against is None
