"""How a traced build is launched and read, on a GPU that is played: numpy in CuPy's place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy")

import kernels.launch
import kernels.measure
import kernels.replay
import kernels.session
import kernels.sides
from kernels.errors import TraceUnreadable
from kernels.launch_plan import LaunchPlan, plan_launch
from kernels.protocol import SAMPLE, Protocol
from kernels.replay import Side
from kernels.sources import Variant
from kernels.statistics import RatioInterval, Timing
from kernels.trace import trace_of
from kernels.trace_launch import LAUNCHES, TraceTask, launch_traced
from solver.config import Config
from solver.problem import Problem

sys.path.insert(0, str(Path(__file__).parent))
from played_trace import Pace, stripes_of

PROBLEM, CONFIG = Problem(64 * 200, 64, 64 * 12), Config("sm90_gemm", 64, 64, 64, 4)
CLOCK_GHZ = 2  # played_trace's: a timer's nanosecond has two cycles


@dataclass
class Gpu:
    """132 SMs that play a launch whenever the traced side is replayed."""

    plan: LaunchPlan
    wrong: bool = False
    wanders: bool = False
    now: int = 10**10
    log: list[str] = field(default_factory=list)
    records: Any = None
    output: Any = field(default_factory=lambda: np.zeros((4, 4), np.uint16))

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        self.records = np.zeros(shape, dtype)
        return self.records

    def enqueue(self, which: str) -> None:
        self.log.append(f"enqueue {which}")
        self.output[...] = 7 + (self.wrong and which == "traced")

    def replay(self) -> None:
        """A launch in which the CTAs with two units take the longest, and the eleventh of all."""
        self.log.append("replay")
        self.now += 600_000
        launch = self.log.count("replay")
        for cta in range(self.plan.grid):
            late = 100 + 10 * launch if cta == 11 else 0
            truth = Pace(400, 900 + late, 500, 3000).play(self.plan, cta)
            sm = cta + (1000 * launch if self.wanders else 0)
            self.records[cta] = stripes_of(self.plan, cta, truth, self.now, sm=sm)


Play = Callable[..., Gpu]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    def arrange(wrong: bool = False, flush: bool = False, wanders: bool = False) -> Gpu:
        gpu = Gpu(plan_launch(PROBLEM, CONFIG, 132), wrong, wanders)
        gpu.log = []
        session = SimpleNamespace(sms=132, flush_l2=lambda multiple: gpu.log.append("flush"))
        c = SimpleNamespace(lines=gpu.output, view=gpu.output)
        compiled = SimpleNamespace(kernel_id="kernel-traced", spill_bytes=0)

        def compile_kernel(key: Any, *, variant: Variant) -> Any:
            assert variant is Variant.TRACED
            return compiled

        def own_side(
            _: Any, problem: Any, config: Any, kernel: Any, sms: Any, sets: Any, progress: int = 0
        ) -> Side:
            which = "traced" if kernel.compiled is compiled else "shipped"
            assert bool(progress) == (which == "traced")
            return Side(lambda: gpu.enqueue(which), 1)

        def measure(_: Any, sides: Any, protocol: Protocol, flushed: bool) -> Any:
            assert flushed is flush
            timings = tuple(Timing(us, us, us, 15, 1, us, us) for us in (50.0, 50.5))
            ratio = RatioInterval(1.01, 1.005, 1.015, 15, None)
            clock = SimpleNamespace(sm_clock_mhz=1755)
            return SimpleNamespace(timings=timings, ratio=ratio, clock_after=clock)

        def asnumpy(array: Any) -> Any:
            assert array.flags.c_contiguous  # or CuPy forgets the session's stream
            return np.copy(array)

        fake = SimpleNamespace(
            zeros=gpu.zeros,
            uint64=np.uint64,
            asnumpy=asnumpy,
            ascontiguousarray=np.ascontiguousarray,
        )
        monkeypatch.setitem(sys.modules, "cupy", fake)
        monkeypatch.setattr(kernels.session, "session", lambda: session)
        monkeypatch.setattr("kernels.compile.compile_kernel", compile_kernel)
        monkeypatch.setattr(
            kernels.launch,
            "LoadedKernel",
            SimpleNamespace(load=lambda c: SimpleNamespace(compiled=c)),
        )
        monkeypatch.setattr(kernels.launch, "address", lambda array: 4096)
        monkeypatch.setattr(
            kernels.sides, "kernel_of", lambda *_: SimpleNamespace(compiled="what ships")
        )
        sets = [SimpleNamespace(c=c)]
        monkeypatch.setattr(kernels.sides, "input_sets", lambda *_: (sets, flush))
        monkeypatch.setattr(kernels.sides, "own_side", own_side)
        monkeypatch.setattr(kernels.measure, "measure", measure)
        monkeypatch.setattr(
            kernels.replay, "prepare", lambda *_: SimpleNamespace(replay=gpu.replay)
        )
        return gpu

    return arrange


TASK = TraceTask(PROBLEM, CONFIG, "h200", SAMPLE)


def test_the_critical_cta_of_several_launches_is_read_with_its_clock(play: Play) -> None:
    gpu = play()
    found = launch_traced(TASK)
    assert gpu.log == ["enqueue shipped", "enqueue traced", *["replay"] * 2 * LAUNCHES]
    assert (found.kernel_id, found.sms) == ("kernel-traced", 132)
    assert (found.shipped_us, found.traced_us, found.ratio) == (50.0, 50.5, 1.01)
    assert len(found.ctas) == LAUNCHES
    for number, critical in enumerate(found.ctas):
        late = 100 + 10 * (2 * number + 2)
        assert (critical.cta, critical.sm) == (11, 11)
        assert critical.clock_mhz == pytest.approx(1000.0 * CLOCK_GHZ)
        assert critical.clock_from == "timer"
        assert critical.span == Pace(400, 900 + late, 500, 3000).play(gpu.plan, 11).done
        # 2 units of 12 products and a store each, and what precedes them.
        assert critical.stripes.shape == (gpu.plan.warps, 4 + 2 * 13)


def test_where_no_sm_had_both_launches_the_clock_is_the_drivers(play: Play) -> None:
    play(wanders=True)
    found = launch_traced(TASK)
    assert {(cta.clock_mhz, cta.clock_from) for cta in found.ctas} == {(1755, "nvml")}
    assert trace_of(TASK, found)["clock_from"] == "nvml"


def test_what_was_read_is_laid_over_the_model(play: Play) -> None:
    play()
    trace = trace_of(TASK, launch_traced(TASK))
    assert (trace["cta"], trace["units"], trace["iterations"]) == (11, 2, 24)
    assert trace["clock_mhz"] == 2000.0
    assert trace["wait"]["measured_us"] == pytest.approx(sorted(trace["waits_us"])[2])
    assert trace["disturbance"]["traced_us"] == 50.5


def test_the_l2_is_flushed_before_each_replay_where_inputs_are_cold_only_so(play: Play) -> None:
    gpu = play(flush=True)
    launch_traced(TASK)
    assert gpu.log[2:] == ["flush", "replay"] * 2 * LAUNCHES


def test_a_traced_build_with_another_product_is_refused(play: Play) -> None:
    gpu = play(wrong=True)
    with pytest.raises(TraceUnreadable, match="another product"):
        launch_traced(TASK)
    assert "replay" not in gpu.log
