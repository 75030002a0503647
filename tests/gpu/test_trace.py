"""Traced builds on the GPU: what their records must satisfy whatever the times are."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.launch_plan import plan_launch
from kernels.launch_units import work_of
from kernels.overlay import PHASES
from kernels.process import OutcomeKind, Worker
from kernels.protocol import SAMPLE, Protocol
from kernels.trace import trace_of
from kernels.trace_events import PASS_CYCLES, events_of
from kernels.trace_launch import LAUNCHES, TracedLaunches, TraceTask, launch_traced
from kernels.trace_records import STEP_ROOM, read_cta
from kernels.verify import VerificationRequest, verify
from solver.config import Config
from solver.problem import Problem
from tests.gpu.gpu_functions import check_traced

DEADLINE_S = 240.0
SQUARE = Problem(1024, 1024, 2048)
CASES = {
    "plain": (SQUARE, Config("sm90_gemm", 64, 128, 64, 4)),
    "several units": (Problem(4096, 2048, 1024), Config("sm90_gemm", 64, 128, 64, 4)),
    "in flight": (
        Problem(4096, 2048, 1024),
        Config("sm90_gemm", 128, 128, 64, 4, mma_in_flight=1, dma_warps=2, math_warpgroups=2),
    ),
    "register split": (
        SQUARE,
        Config("sm90_gemm", 128, 256, 64, 3, math_warpgroups=2, register_split=1),
    ),
    "cluster": (SQUARE, Config("sm90_gemm", 64, 128, 64, 4, cluster_n=2, mma_in_flight=1)),
    "split": (Problem(128, 1024, 8192), Config("sm90_gemm", 64, 128, 64, 4, split_k=8)),
    "uneven split": (
        Problem(128, 1024, 64 * 101),
        Config("sm90_gemm", 64, 128, 64, 4, split_k=8, mma_in_flight=1),
    ),
    "unaligned": (Problem(500, 499, 1001, layout="tt"), Config("sm90_gemm", 64, 64, 64, 4)),
}


def launched(
    worker: Worker, device: str, problem: Problem, config: Config, protocol: Protocol = SAMPLE
) -> tuple[TraceTask, TracedLaunches]:
    task = TraceTask(problem, config, device, protocol)
    outcome = worker.call(launch_traced, (task,), DEADLINE_S)
    assert outcome.kind is OutcomeKind.OK, f"{outcome.error_type}: {outcome.message}"
    return task, outcome.value


@pytest.mark.parametrize("cache", ["cold", "warm"])
@pytest.mark.parametrize("name", CASES)
def test_records_are_those_of_every_k_iteration_in_order(
    worker: Worker, device: str, name: str, cache: str
) -> None:
    problem, config = CASES[name]
    task, found = launched(worker, device, problem, config, SAMPLE.with_cache(cache))
    plan = plan_launch(problem, config, found.sms)
    assert len(found.ctas) == LAUNCHES
    for critical in found.ctas:
        assert 0 <= critical.cta < plan.grid
        assert 300 < critical.clock_mhz < 2500
        steps = read_cta(plan, critical.cta, critical.stripes)
        assert steps.dropped == 0
        units = work_of(plan, critical.cta)
        assert len(steps.unit) == sum(len(unit.iterations) for unit in units)
        for rows in (steps.loads, steps.asks, steps.has, steps.closes):
            assert (np.diff(rows, axis=1) > 0).all()
        assert (steps.asks < steps.has).all()
        assert (steps.loads.max(axis=0) < steps.has.min(axis=0)).all(), "loaded, then multiplied"
        # A slot is loaded again when the product that read it is over, not when it began.
        again = steps.loads[:, config.stages :].min(axis=0)
        assert (again > steps.has[:, : -config.stages].max(axis=0)).all()
        assert (steps.done > steps.closes[:, -1]).all()
        if (name, cache) == ("in flight", "warm"):
            assert (steps.has - steps.asks).min() < 4 * PASS_CYCLES, "a full barrier is passed soon"
        events = events_of(plan, steps, critical.clock_mhz)
        span_us = critical.span / critical.clock_mhz
        assert (events.math_end > events.math_start).all()
        assert float(events.epilogue_end[-1]) <= span_us + 0.01
        busy_us = float((events.math_end - events.math_start).sum())
        if not config.mma_in_flight:
            assert events.wait_us + busy_us <= span_us + 0.01
        assert 0 < events.wait_us < span_us
        assert span_us < 1.2 * found.traced_us + 2.0, "launches overlap only as they set up"
    trace = trace_of(task, found)
    assert trace["disturbance"]["ratio"] < 1.3
    assert trace["iterations"] > 0
    assert all(trace["phases"][phase]["events"] for phase in PHASES if phase != "load_end")


def test_what_there_is_no_room_for_is_dropped_and_counted(worker: Worker, device: str) -> None:
    iterations = STEP_ROOM + 500
    problem, config = Problem(64, 64, 64 * iterations), Config("sm90_gemm", 64, 64, 64, 4)
    task, found = launched(worker, device, problem, config)
    trace = trace_of(task, found)
    assert trace["dropped"] == 500
    assert trace["iterations"] == STEP_ROOM


@pytest.mark.parametrize("name", CASES)
def test_a_traced_kernels_product_is_exact(worker: Worker, device: str, name: str) -> None:
    problem, config = CASES[name]
    outcome = worker.call(check_traced, (problem, config), DEADLINE_S)
    assert outcome.kind is OutcomeKind.OK, f"{outcome.error_type}: {outcome.message}"
    assert outcome.value == ""


def test_a_verification_carries_its_trace(device: str) -> None:
    problem, config = CASES["in flight"]
    result = verify(VerificationRequest(problem, config, 10.0, trace=True), DEADLINE_S)
    assert result.passed, result.details
    assert result.trace is not None
    assert result.trace["kernel_id"] == f"{result.kernel_id}-traced"
    assert result.trace["timeline"]["shown"] > 0
    plain = verify(VerificationRequest(problem, config, 10.0), DEADLINE_S)
    assert plain.trace is None
