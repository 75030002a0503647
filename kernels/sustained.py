"""A product at the clock and power that it holds for a second, next to cuBLAS, in a GPU process.

Everything of CUDA is imported inside the functions, so that the process that only names them
never loads it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from kernels.host import ClockReading
from kernels.protocol import SustainedProtocol
from kernels.statistics import ratio_interval
from solver.config import Config
from solver.problem import Problem

LEAST_FLOPS = 1 << 40
"""A product from which on it is worth asking: 8192 cubed. One that is over in less time is not
what keeps a GPU busy for seconds."""
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class SustainedTask:
    """A configuration that is known to be right; ``cache`` is cold or warm."""

    problem: Problem
    config: Config
    device: str
    protocol: SustainedProtocol
    cache: str
    sms: int | None = None


@dataclass(frozen=True, slots=True)
class SustainedResult:
    """Times per launch while a side holds the GPU, and what it ran at; the ratio is cuBLAS's
    time over ours, of holds that follow one another. None where there was nothing to compare
    with; ``sustained_note`` says why, or why the interval is wide."""

    sustained_us: float | None = None
    sustained_cublas_us: float | None = None
    sustained_ratio_to_cublas: float | None = None
    sustained_ratio_low: float | None = None
    sustained_ratio_high: float | None = None
    sustained_note: str | None = None
    sustained_sm_clock_mhz: int | None = None
    sustained_cublas_sm_clock_mhz: int | None = None
    sustained_power_w: float | None = None
    sustained_cublas_power_w: float | None = None
    sustained_holds: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The result under its own field names."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Hold:
    """One side's time per launch over a hold, and the clock and power read meanwhile."""

    launch_us: float
    sm_clock_mhz: float | None
    power_w: float | None


def averaged(launch_us: float, readings: Sequence[ClockReading]) -> Hold:
    """A hold from what was read while it lasted."""
    clocks = [r.sm_clock_mhz for r in readings if r.sm_clock_mhz is not None]
    powers = [r.power_w for r in readings if r.power_w is not None]
    return Hold(launch_us, fmean(clocks) if clocks else None, fmean(powers) if powers else None)


def hold(session: Any, graph: Any, protocol: SustainedProtocol) -> Hold:
    """Replay one side for ``settle_ms`` and then, timed, for ``hold_ms``, without a pause."""
    from kernels.replay import elapsed_us, event

    stream = session.stream

    def enqueue(span_ms: float) -> int:
        replays: int = max(1, math.ceil(span_ms * 1e3 / graph.replay_us))
        for _ in range(replays):
            graph.replay()
        return replays

    enqueue(protocol.settle_ms)
    start = event(stream)
    replays = enqueue(protocol.hold_ms)
    end = event(stream)
    readings = []
    while not end.done:
        if start.done:
            readings.append(session.monitor.read())
        time.sleep(_POLL_S)
    if not readings:
        readings.append(session.monitor.read())
    return averaged(elapsed_us(start, end) / (replays * graph.launches), readings)


def figures(
    holds: Sequence[Sequence[Hold]], protocol: SustainedProtocol, absent: str | None
) -> SustainedResult:
    """The result of the sides' holds, ours first; ``absent`` says why there is only ours."""
    ours = holds[0]
    theirs = holds[1] if len(holds) > 1 else ()
    ratios = [b.launch_us / a.launch_us for a, b in zip(ours, theirs, strict=False)]
    interval = ratio_interval(ratios, protocol.confidence) if ratios else None
    note = absent
    if interval is not None and interval.half_width > protocol.half_width:
        note = f"half-width {interval.half_width:.1%} after {len(ratios)} holds of each side"
    return SustainedResult(
        sustained_us=fmean(h.launch_us for h in ours),
        sustained_cublas_us=fmean(h.launch_us for h in theirs) if theirs else None,
        sustained_ratio_to_cublas=interval.ratio if interval else None,
        sustained_ratio_low=interval.low if interval else None,
        sustained_ratio_high=interval.high if interval else None,
        sustained_note=note,
        sustained_sm_clock_mhz=_whole(_mean([h.sm_clock_mhz for h in ours])),
        sustained_cublas_sm_clock_mhz=_whole(_mean([h.sm_clock_mhz for h in theirs])),
        sustained_power_w=_mean([h.power_w for h in ours]),
        sustained_cublas_power_w=_mean([h.power_w for h in theirs]),
        sustained_holds=len(ours),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def run_sustained(task: SustainedTask) -> SustainedResult:
    """Time a configuration and cuBLAS in turn, each for a second at a time.

    Raises what compiling and launching raise, and CUDA's own error where a kernel faults.
    """
    from kernels.cublas import CublasAbsent, cublas_products
    from kernels.protocol import BENCH
    from kernels.replay import Side, prepare, spend, warm_device
    from kernels.session import session
    from kernels.sides import input_sets, kernel_of, own_side

    current, problem, protocol = session(), task.problem, task.protocol
    kernel = kernel_of(current, problem, task.config, task.device)
    short = BENCH.with_cache(task.cache)
    sets, flush = input_sets(current, problem, short)
    if flush:
        return SustainedResult(
            sustained_note="not run: inputs too small, or memory too short, to stay cold"
        )
    sides = [own_side(current, problem, task.config, kernel, task.sms, sets)]
    absent = None
    try:
        _, products = cublas_products(sets, problem, current.stream)
        sides.append(Side(products, len(sets)))
    except CublasAbsent as error:
        absent = f"none: {error}"
    graphs = [prepare(current, side, short, flush) for side in sides]
    warm_device(current, graphs)
    spend(current, graphs, protocol.warmup_ms)
    holds: list[list[Hold]] = [[] for _ in graphs]
    for number in range(protocol.most_holds):
        for side in range(len(graphs))[:: -1 if number % 2 else 1]:
            holds[side].append(hold(current, graphs[side], protocol))
        if number + 1 >= protocol.least_holds:
            result = figures(holds, protocol, absent)
            if result.sustained_note is None or absent is not None:
                break
    return figures(holds, protocol, absent)
