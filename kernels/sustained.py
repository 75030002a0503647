"""A product at the clock and power that it holds for a second, next to cuBLAS, in a GPU process.

Everything of CUDA is imported inside the functions, so that the process that only names them
never loads it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from kernels.host import ClockReading
from kernels.protocol import Protocol, SustainedProtocol
from kernels.statistics import ratio_interval
from solver.config import Config
from solver.problem import Problem

LEAST_FLOPS = 1 << 40
"""A product from which on it is worth asking: 8192 cubed. One that is over in less time is not
what keeps a GPU busy for seconds."""
_POLL_S = 0.02
TRIAL_HOLD_MS = 300.0
"""How long each of several configurations is held before the one that holds best is compared."""


@dataclass(frozen=True, slots=True)
class SustainedTask:
    """A configuration that is known to be right; ``cache`` is cold or warm.

    ``others`` are configurations that may hold better: what is fastest for a moment may draw so
    much power that it is not for a second. The best of all is compared, once its own results were
    checked on inputs from ``seed``.
    """

    problem: Problem
    config: Config
    device: str
    protocol: SustainedProtocol
    cache: str
    sms: int | None = None
    others: tuple[Config, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SustainedResult:
    """Times per launch while a side holds the GPU, and what it ran at; the ratio is cuBLAS's
    time over ours, of holds that follow one another. None where there was nothing to compare
    with; ``sustained_note`` says why, or why the interval is wide. ``sustained_config`` is what was
    held, the best of ``sustained_tried`` configurations."""

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
    sustained_config: dict[str, Any] | None = None
    sustained_tried: int | None = None

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
    from kernels.sides import input_sets

    current, problem, protocol = session(), task.problem, task.protocol
    short = BENCH.with_cache(task.cache)
    sets, flush = input_sets(current, problem, short)
    if flush:
        return SustainedResult(
            sustained_note="not run: inputs too small, or memory too short, to stay cold"
        )
    config, wrong = _holds_best(current, task, sets, short)
    if wrong:
        return SustainedResult(sustained_note=f"{config} holds best and is wrong: {wrong}")
    sides = [_side(current, task, config, sets)]
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
    return replace(
        figures(holds, protocol, absent),
        sustained_config=config.to_dict(),
        sustained_tried=1 + len(task.others),
    )


def _side(session: Any, task: SustainedTask, config: Config, sets: Any) -> Any:
    from kernels.sides import kernel_of, own_side

    kernel = kernel_of(session, task.problem, config, task.device)
    return own_side(session, task.problem, config, kernel, task.sms, sets)


def _holds_best(
    session: Any, task: SustainedTask, sets: Any, short: Protocol
) -> tuple[Config, str | None]:
    """The configuration of a task with the shortest launches in a short hold of each, and what its
    results have against it."""
    from kernels.checking import check_config
    from kernels.replay import prepare, spend, warm_device
    from kernels.sides import kernel_of, most_sms

    if not task.others:
        return task.config, None
    configs = (task.config, *task.others)
    graphs = [prepare(session, _side(session, task, c, sets), short, False) for c in configs]
    warm_device(session, graphs)
    spend(session, graphs, task.protocol.warmup_ms)
    trial = replace(task.protocol, hold_ms=TRIAL_HOLD_MS)
    held = [hold(session, graph, trial).launch_us for graph in graphs]
    config = configs[held.index(min(held))]
    if config == task.config:
        return config, None
    kernel = kernel_of(session, task.problem, config, task.device)
    sms = most_sms(session, task.sms)
    result = check_config(session, kernel, task.problem, config, sms, task.seed)
    return config, None if result.passed else "; ".join(result.details)
