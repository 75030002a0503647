"""Timing on the GPU: CUDA events around graph replays, both sides of a comparison interleaved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernels.host import ClockReading
from kernels.process import report
from kernels.protocol import Protocol, finished
from kernels.replay import (
    Side,
    elapsed_us,
    event,
    prepare,
    rest,
    rounds_at_once,
    spend,
    warm_device,
)
from kernels.session import Session
from kernels.statistics import RatioInterval, Timing, summarise


@dataclass(frozen=True, slots=True)
class Measurement:
    """Timings of the sides in order, the ratio second over first where there are two, clocks around
    it all. ``times_us`` has each side's µs per launch, round by round.

    ``clock_after`` is read while the last replays still run. ``flushed``: the L2 was flushed
    before each replay.
    """

    timings: tuple[Timing, ...]
    ratio: RatioInterval | None
    clock_before: ClockReading
    clock_after: ClockReading
    flushed: bool
    times_us: tuple[tuple[float, ...], ...] = ()


def measure(
    session: Session, sides: Sequence[Side], protocol: Protocol, flush: bool = False
) -> Measurement:
    """Time one side, or several interleaved in alternating order, by ``protocol``.

    Rounds go on until ``protocol.finished``: enough of them, and for two sides an interval
    that is narrow enough or a note that says why it is not.
    """
    stream = session.stream
    graphs = [prepare(session, side, protocol, flush) for side in sides]
    warm_device(session, graphs)
    clock_before = session.monitor.read()
    spend(session, graphs, protocol.warmup_ms)

    batch_rounds = rounds_at_once(graphs)
    times_us: list[list[float]] = [[] for _ in graphs]
    spent_ms = 0.0
    rounds = 0
    while True:
        graphs[0].replay()  # untimed: the CPU runs ahead from here
        marks: list[tuple[int, Any, Any]] = []
        batch = event(stream)
        for index in range(rounds, rounds + batch_rounds):
            for side in range(len(graphs))[:: -1 if index % 2 else 1]:
                if flush:
                    session.flush_l2(protocol.l2_multiple)
                start = event(stream)
                graphs[side].replay()
                marks.append((side, start, event(stream)))
        clock_after = session.monitor.read()
        marks[-1][2].synchronize()
        for side, start, end in marks:
            times_us[side].append(elapsed_us(start, end) / graphs[side].launches)
        batch_ms = elapsed_us(batch, marks[-1][2]) / 1e3
        spent_ms += batch_ms
        rounds += batch_rounds
        ratios = [b / a for a, b in zip(*times_us, strict=True)] if len(graphs) == 2 else []
        stop, interval = finished(protocol, rounds, spent_ms, ratios)
        half_width = None if interval is None else interval.half_width
        report("timing", rounds=rounds, half_width=half_width)
        if stop:
            break
        rest(protocol, batch_ms)
    return Measurement(
        tuple(summarise(t, g.launches) for t, g in zip(times_us, graphs, strict=True)),
        interval,
        clock_before,
        clock_after,
        flush,
        tuple(map(tuple, times_us)),
    )
