"""Choosing among configurations in a GPU process, without the GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cupy")

import kernels.race as racing
import kernels.session as sessions
import kernels.sides as making
from kernels.choose import ChoiceTask, run_choice
from kernels.errors import CompileFailed
from kernels.protocol import CHOICE
from kernels.race import Lap, Race
from solver.config import Config
from solver.problem import Problem

PROBLEM = Problem(512, 512, 512)
CONFIGS = tuple(Config("sm90_gemm", 64, 64, 64, stages) for stages in (3, 4, 5))


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel_of(session: Any, problem: Problem, config: Config, device: str) -> Any:
        if config.stages == 4:
            raise CompileFailed("k", "ptxas refused", "log")
        return None

    def race(session: Any, sides: list[Any], protocol: Any, flush: bool) -> Race:
        assert (protocol, flush) == (CHOICE, False)
        return Race(tuple(Lap(10.0 - place, 5 + place) for place in range(len(sides))), 1)

    monkeypatch.setattr(sessions, "session", lambda: SimpleNamespace())
    monkeypatch.setattr(making, "kernel_of", kernel_of)
    monkeypatch.setattr(making, "input_sets", lambda *_: ([None] * 3, False))
    monkeypatch.setattr(making, "own_side", lambda *_: object())
    monkeypatch.setattr(racing, "race", race)


def test_those_that_load_race_and_the_winner_is_told_by_its_place_among_all() -> None:
    choice = run_choice(ChoiceTask(PROBLEM, CONFIGS, "h200", CHOICE))
    assert choice.winner == 2
    assert [tried.median_us for tried in choice.tried] == [10.0, None, 9.0]
    assert [tried.rounds for tried in choice.tried] == [5, 0, 6]
    assert str(choice.tried[1].failure).startswith("CompileFailed: ")
    assert choice.tried[0].to_dict() == {"median_us": 10.0, "rounds": 5, "failure": None}


def test_where_none_loads_there_is_no_winner() -> None:
    choice = run_choice(ChoiceTask(PROBLEM, CONFIGS[1:2], "h200", CHOICE))
    assert choice.winner is None
    assert choice.tried[0].failure is not None
