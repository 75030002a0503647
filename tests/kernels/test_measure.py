"""The timing loop against a GPU whose clock the test sets."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("cupy")

import kernels.replay as replaying
from kernels.measure import measure
from kernels.protocol import BENCH
from kernels.race import race
from tests.kernels.fake_gpu import CLOCK, fake_session, side


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    return fake_session(monkeypatch)


def test_a_time_is_per_launch_and_a_ratio_is_the_second_over_the_first(session: Any) -> None:
    sides = [side(session, "ours", 10.0, 3), side(session, "cublas", 9.0, 3)]
    measured = measure(session, sides, BENCH)
    assert measured.timings[0].median_us == pytest.approx(10.0)
    assert measured.timings[1].median_us == pytest.approx(9.0)
    assert measured.timings[0].launches_per_replay == 21  # 7 rotations make 200 us
    assert measured.ratio is not None
    assert measured.ratio.ratio == pytest.approx(0.9)
    assert measured.ratio.note is None
    assert measured.clock_after == CLOCK


def test_sides_alternate_their_order(session: Any) -> None:
    sides = [side(session, "a", 100.0, 2), side(session, "b", 100.0, 2)]
    measure(session, sides, BENCH)
    last_batch = session.stream.log[-16:]
    assert last_batch == ["a*2", "b*2", "b*2", "a*2"] * 4


def test_a_flush_comes_before_each_replay_and_is_not_timed(session: Any) -> None:
    measured = measure(session, [side(session, "a", 2.0, 50)], BENCH, flush=True)
    assert session.stream.log[-4:] == ["flush", "a*50"] * 2
    assert measured.timings[0].median_us == pytest.approx(2.0)
    assert measured.timings[0].launches_per_replay == 50
    assert measured.flushed


def test_the_device_is_warmed_up_once(session: Any) -> None:
    measure(session, [side(session, "a", 1000.0, 1)], BENCH)
    first_us = session.stream.now_us
    assert first_us > 1e3 * replaying.DEVICE_WARMUP_MS
    measure(session, [side(session, "a", 1000.0, 1)], BENCH)
    assert session.stream.now_us - first_us < 1e3 * replaying.DEVICE_WARMUP_MS


def test_slow_launches_are_not_repeated_for_ever(session: Any) -> None:
    session.warm = True
    measure(session, [side(session, "a", 50_000.0, 2)], replace(BENCH, warmup_ms=0.0))
    assert session.stream.now_us < 2e6


def test_a_gpu_rests_as_long_as_the_protocol_says_and_rest_is_not_timed(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests_s: list[float] = []
    monkeypatch.setattr(time, "sleep", rests_s.append)
    session.warm = True
    sides = [side(session, name, span, 1) for name, span in (("a", 1000.0), ("b", 1300.0))]
    protocol = replace(BENCH, warmup_ms=0.0, min_rounds=24, half_width=0.0, budget_ms=50.0)
    assert measure(session, sides, protocol).timings[1].median_us == pytest.approx(1300.0)
    assert not rests_s
    assert measure(session, sides, replace(protocol, rest=2.0)).timings[1].replays >= 24
    # Three batches of eight rounds, and none after the last.
    assert rests_s == pytest.approx([2 * (8 * 2.3) / 1e3] * 2)
    rests_s.clear()
    race(session, sides, replace(protocol, rest=0.5, max_rounds=24), drop=False)
    assert rests_s == pytest.approx([0.5 * (8 * 2.3) / 1e3] * 2)
