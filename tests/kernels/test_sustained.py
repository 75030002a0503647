"""Holding the GPU for a second, on one whose clock the test sets."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cupy")

import kernels.checking as checking
import kernels.cublas as comparison
import kernels.session as sessions
import kernels.sides as making
import kernels.sustained as sustaining
from kernels.host import ClockReading
from kernels.protocol import BENCH, SUSTAINED, SustainedProtocol
from kernels.replay import prepare
from kernels.sustained import Hold, SustainedTask, averaged, figures, hold, run_sustained
from solver.config import Config
from solver.problem import Problem
from tests.kernels.fake_gpu import CLOCK, fake_session, side

SHORT = SustainedProtocol(
    warmup_ms=5.0, settle_ms=10.0, hold_ms=50.0, least_holds=6, most_holds=8, half_width=0.01
)
LARGE = Problem(8192, 8192, 8192)
CONFIG = Config("sm90_gemm", 64, 64, 64, 3)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = fake_session(monkeypatch)
    made.warm = True
    monkeypatch.setattr(sessions, "session", lambda: made)
    monkeypatch.setattr(making, "kernel_of", lambda *_: None)
    monkeypatch.setattr(making, "input_sets", lambda *_: ([None, None], False))
    monkeypatch.setattr(making, "own_side", lambda *_: side(made, "ours", 1600.0, 2))
    return made


def theirs(session: Any, monkeypatch: pytest.MonkeyPatch, span: Any) -> None:
    enqueue = side(session, "cublas", span, 2).enqueue
    monkeypatch.setattr(comparison, "cublas_products", lambda *_: ("torch.mm", enqueue))


def task() -> SustainedTask:
    return SustainedTask(LARGE, CONFIG, "h200", SHORT, "cold")


def test_a_hold_lasts_as_long_as_it_is_told_and_counts_what_comes_after_it_settled(
    session: Any,
) -> None:
    graph = prepare(session, side(session, "a", 1000.0, 2), BENCH, False)
    before_us, before = session.stream.now_us, len(session.stream.log)
    held = hold(session, graph, SHORT)
    assert session.stream.now_us - before_us == pytest.approx(60e3)
    assert len(session.stream.log) - before == 5 + 25
    assert held == Hold(pytest.approx(1000.0), CLOCK.sm_clock_mhz, CLOCK.power_w)


def test_the_sides_hold_in_turn_and_the_ratio_is_cublas_over_ours(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs(session, monkeypatch, 1648.0)
    found = run_sustained(task())
    assert found.sustained_us == pytest.approx(1600.0)
    assert found.sustained_cublas_us == pytest.approx(1648.0)
    assert found.sustained_ratio_to_cublas == pytest.approx(1.03)
    assert (found.sustained_note, found.sustained_holds) == (None, 6)
    assert (found.sustained_sm_clock_mhz, found.sustained_power_w) == (1755, 640.0)
    blocks = [
        name
        for name, before in zip(session.stream.log, ["", *session.stream.log], strict=False)
        if name != before
    ]
    assert blocks[-6:] == ["cublas*2", "ours*2"] * 3  # the order alternates: two of a kind meet
    assert set(found.to_dict()) >= {"sustained_ratio_low", "sustained_ratio_high"}


@pytest.mark.parametrize("details", [(), ("C[0, 0] is 3, must be 4",)])
def test_the_best_of_several_is_held_once_its_results_are_checked(
    session: Any, monkeypatch: pytest.MonkeyPatch, details: tuple[str, ...]
) -> None:
    checked = SimpleNamespace(passed=not details, details=details)
    seen = []

    def check(_session: Any, _kernel: Any, problem: Problem, config: Config, *rest: Any) -> Any:
        seen.append((problem, config, rest[-1]))
        return checked

    spans = {64: 1600.0, 128: 1500.0, 192: 1700.0}
    monkeypatch.setattr(
        making, "own_side", lambda _s, _p, c, *_: side(session, f"n{c.tile_n}", spans[c.tile_n], 2)
    )
    monkeypatch.setattr(making, "most_sms", lambda *_: 132)
    monkeypatch.setattr(checking, "check_config", check)
    theirs(session, monkeypatch, 1530.0)
    others = (replace(CONFIG, tile_n=128), replace(CONFIG, tile_n=192))
    found = run_sustained(replace(task(), others=others, seed=7))
    assert seen == [(LARGE, others[0], 7)]
    if details:
        assert found.sustained_us is None
        assert "is 3, must be 4" in str(found.sustained_note)
    else:
        assert found.sustained_us == pytest.approx(1500.0)
        assert found.sustained_ratio_to_cublas == pytest.approx(1.02)
        assert found.sustained_config == others[0].to_dict()
        assert found.sustained_tried == 3


def test_a_ratio_that_stays_wide_says_so_after_the_most_holds(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = iter(range(10**6))
    theirs(session, monkeypatch, lambda: 1500.0 + 300.0 * (next(spans) // 60 % 2))
    found = run_sustained(task())
    assert found.sustained_holds == SHORT.most_holds
    assert "half-width" in str(found.sustained_note)


def test_without_cublas_ours_is_held_alone(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: Any) -> None:
        raise comparison.CublasAbsent("torch: no")

    monkeypatch.setattr(comparison, "cublas_products", absent)
    found = run_sustained(task())
    assert found.sustained_us == pytest.approx(1600.0)
    assert found.sustained_ratio_to_cublas is None
    assert found.sustained_note == "none: torch: no"
    assert found.sustained_holds == SHORT.least_holds


def test_inputs_that_would_have_to_be_flushed_are_not_held(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "input_sets", lambda *_: ([None], True))
    assert "not run" in str(run_sustained(task()).sustained_note)


def test_clock_and_power_are_means_of_what_was_told() -> None:
    readings = [
        ClockReading(1400, 680.0, ()),
        ClockReading(1410, None, ()),
        ClockReading(None, 700.0, ()),
    ]
    assert averaged(5.0, readings) == Hold(5.0, 1405.0, 690.0)
    assert averaged(5.0, [ClockReading(None, None, ())]) == Hold(5.0, None, None)


def test_figures_are_of_paired_holds() -> None:
    ours = [Hold(100.0, 1400.0, 690.0), Hold(110.0, 1300.0, 690.0)] * 3
    cublas = [Hold(102.0, 1400.0, 690.0), Hold(112.2, 1300.0, 690.0)] * 3
    found = figures([ours, cublas], SUSTAINED, None)
    assert found.sustained_ratio_to_cublas == pytest.approx(1.02)
    assert found.sustained_ratio_low == found.sustained_ratio_high == pytest.approx(1.02)
    assert found.sustained_us == pytest.approx(105.0)
    assert found.sustained_sm_clock_mhz == 1350


def test_what_is_held_is_what_keeps_a_gpu_busy() -> None:
    assert LARGE.flops == sustaining.LEAST_FLOPS
