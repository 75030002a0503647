"""Holding configurations in a GPU process, on a stream that keeps the time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cupy")

import kernels.checking as checking
import kernels.session as sessions
import kernels.sides as making
from kernels.host import ClockReading
from kernels.power import worker
from kernels.power.load import AHEAD, GraphLoad
from kernels.power.meter import HoldProtocol
from kernels.power.worker import HoldTask, power_facts, run_holds
from kernels.protocol import BENCH
from kernels.replay import prepare
from solver.config import Config
from solver.problem import Problem
from tests.kernels.fake_gpu import fake_session, side

CONFIGS = (Config("sm90_gemm", 64, 64, 64, 3), Config("sm90_gemm", 64, 128, 64, 3))
PROTOCOL = HoldProtocol(settle_s=0.004, hold_s=0.02, poll_s=0.001, idle_s=0.03)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = fake_session(monkeypatch)
    made.warm, made.sms, made.l2_bytes = True, 132, 50 << 20
    counter = iter(range(0, 10**9, 7))
    made.monitor = SimpleNamespace(
        energy_mj=lambda: next(counter),
        read=lambda: ClockReading(1600, 500.0, ()),
        power_limit_w=lambda: 700.0,
    )
    made.release = lambda: None
    monkeypatch.setattr(sessions, "session", lambda: made)
    monkeypatch.setattr(making, "kernel_of", lambda *_: None)
    monkeypatch.setattr(making, "input_sets", lambda *_: ([None, None], False))
    names = {CONFIGS[0]: ("a", 1000.0), CONFIGS[1]: ("b", 3000.0)}
    monkeypatch.setattr(making, "own_side", lambda s, p, config, *_: side(made, *names[config], 2))
    return made


def task(**more: Any) -> HoldTask:
    return HoldTask(Problem(512, 512, 512), CONFIGS, "h200", "cold", protocol=PROTOCOL, **more)


def test_a_load_is_chunks_ahead_and_tells_the_time_of_a_launch(session: Any) -> None:
    graph = prepare(session, side(session, "a", 1000.0, 2), BENCH, False)
    load = GraphLoad(session, graph)
    before_us = session.stream.now_us
    load.top_up()
    assert session.stream.now_us - before_us >= AHEAD * 25e3
    load.begin()
    load.top_up()
    assert load.launch_us() == pytest.approx(1000.0)


def test_sides_are_held_in_turn_in_alternating_order(session: Any) -> None:
    found = run_holds(task(rounds=3))
    assert found.failure is None
    assert [len(side) for side in found.holds] == [3, 3]
    for side_, launch_us in zip(found.holds, (1000.0, 3000.0), strict=True):
        for held in side_:
            assert held.launch_us == pytest.approx(launch_us)
            assert held.power_w > 0
            assert held.sm_clock_mhz == 1600
    blocks = [
        name[0]
        for name, before in zip(session.stream.log, ["", *session.stream.log], strict=False)
        if name != before
    ]
    assert "".join(blocks)[-4:] == "abab"  # a, b; b, a; a, b: like meets like


def test_a_wrong_result_is_not_held(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = iter((True, False))

    def check(*_: Any) -> Any:
        return SimpleNamespace(passed=next(passed), details=("off by one",))

    monkeypatch.setattr(checking, "check_config", check)
    before = len(session.stream.log)
    found = run_holds(task(seed=3))
    assert found.failure is not None
    assert found.failure.endswith("is wrong: off by one")
    assert len(session.stream.log) == before


def test_inputs_that_do_not_stay_cold_are_told(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "input_sets", lambda *_: ([None], True))
    assert run_holds(task()).failure == "inputs too small, or memory too short, to stay cold"


def test_the_idle_device_is_watched_without_a_launch(session: Any) -> None:
    facts = power_facts(PROTOCOL)
    assert facts["power_limit_w"] == 700.0
    assert facts["idle_power_w"] > 0
    assert facts["idle_sm_clock_mhz"] == 1600
    assert not session.stream.log


def test_naming_the_functions_loads_no_cuda() -> None:
    functions: tuple[Callable[..., Any], ...] = (worker.run_holds, worker.power_facts)
    assert all(not hasattr(worker, name) for name in ("cp", "session"))
    assert functions
