"""Launching a traced build beside the kernel that ships: how long each takes, and what was kept.

For a GPU process, as ``kernels.worker``: everything of CUDA is imported inside the functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.errors import TraceUnreadable
from kernels.launch_plan import plan_launch
from kernels.process import launching, report
from kernels.protocol import Protocol
from kernels.sources import TRACE_RECORDS, Variant
from kernels.trace_records import STEPS, Words, clock_mhz, read_heads
from solver.config import Config
from solver.families import sm90_gemm as family
from solver.problem import Problem

LAUNCHES = 5
"""Launches that are read: an odd number, so that one wait is in the middle."""


@dataclass(frozen=True, slots=True)
class TraceTask:
    """A configuration to trace, its inputs cold or in the L2 as ``protocol`` says, which also
    says how long the traced kernel and the one that ships are timed in turn."""

    problem: Problem
    config: Config
    device: str
    protocol: Protocol


@dataclass(frozen=True, slots=True)
class CriticalCta:
    """The CTA of one launch that took the longest from its first load on: ``span`` cycles at
    ``clock_mhz``, which is by the device's timer, or, where ``clock_from`` is ``nvml``, what the
    driver read. ``stripes``: its warps' records, (warps, R), as far as any kept some."""

    cta: int
    sm: int
    clock_mhz: float
    clock_from: str
    span: int
    stripes: Words


@dataclass(frozen=True, slots=True)
class TracedLaunches:
    """What tracing a configuration gave. ``shipped_us`` and ``traced_us`` are medians of times per
    launch, taken in turn; ``ratio`` is the traced kernel's over the other's, from ``low`` to
    ``high``, ``note`` why that is wide."""

    kernel_id: str
    spill_bytes: int
    sms: int
    shipped_us: float
    traced_us: float
    ratio: float
    low: float
    high: float
    rounds: int
    note: str | None
    ctas: tuple[CriticalCta, ...]


def launch_traced(task: TraceTask) -> TracedLaunches:
    """Time the traced kernel and the one that ships in turn, then read LAUNCHES launches.

    Raises what compiling and launching raise, and TraceUnreadable where the traced build's product
    differs from that of the kernel that ships, or where records make no sense.
    """
    import cupy as cp

    from kernels.bits import to_host
    from kernels.compile import compile_kernel
    from kernels.launch import LoadedKernel, address
    from kernels.measure import measure
    from kernels.replay import prepare
    from kernels.session import session
    from kernels.sides import input_sets, kernel_of, own_side

    current, problem, config, protocol = session(), task.problem, task.config, task.protocol
    shipped = kernel_of(current, problem, config, task.device)
    report("tracing")
    key = family.compile_key(config, problem.dtype, problem.kernel_layout)
    traced = LoadedKernel.load(compile_kernel(key, variant=Variant.TRACED))
    launching(traced.compiled.kernel_id)
    plan = plan_launch(problem, config, current.sms)
    sets, flush = input_sets(current, problem, protocol)
    records = cp.zeros((plan.grid, plan.warps, TRACE_RECORDS), cp.uint64)
    sides = (
        own_side(current, problem, config, shipped, None, sets),
        own_side(current, problem, config, traced, None, sets, address(records)),
    )
    outputs = []
    for side in sides:
        sets[-1].c.lines.fill(0xFFFF)
        side.enqueue()
        outputs.append(sets[-1].c.view.copy())
    if not bool((outputs[0] == outputs[1]).all()):
        raise TraceUnreadable(f"{traced.compiled.kernel_id} has another product than what ships")
    del outputs

    measured = measure(current, sides, protocol, flush)
    if measured.ratio is None:
        raise ValueError("two sides give a ratio")
    graph = prepare(current, sides[1], protocol, flush)

    def replay() -> Any:
        """Enqueue a replay, and a copy of the heads that its last launch left."""
        if flush:
            current.flush_l2(protocol.l2_multiple)
        graph.replay()
        return records[:, :, : STEPS + 1].copy()

    ctas = []
    for _ in range(LAUNCHES):
        # Both are enqueued before either is read: the clock between them is a busy GPU's.
        before, last = [read_heads(plan, to_host(cp, x)) for x in [replay() for _ in range(2)]]
        cta, timed = int(np.argmax(last.span)), clock_mhz(before, last)
        clock = measured.clock_after.sm_clock_mhz if timed is None else timed
        if clock is None:
            raise TraceUnreadable("neither the device's timer nor its driver tells the SM clock")
        ctas.append(
            CriticalCta(
                cta,
                int(last.sm[cta]),
                clock,
                "nvml" if timed is None else "timer",
                int(last.span[cta]),
                to_host(cp, records[cta, :, : int(last.room[cta])]),
            )
        )
    return TracedLaunches(
        kernel_id=traced.compiled.kernel_id,
        spill_bytes=traced.compiled.spill_bytes,
        sms=current.sms,
        shipped_us=measured.timings[0].median_us,
        traced_us=measured.timings[1].median_us,
        ratio=measured.ratio.ratio,
        low=measured.ratio.low,
        high=measured.ratio.high,
        rounds=measured.ratio.rounds,
        note=measured.ratio.note,
        ctas=tuple(ctas),
    )
