"""Timing on the GPU: CUDA events around graph replays, both sides of a comparison interleaved."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cupy as cp

from kernels.host import ClockReading
from kernels.process import report
from kernels.protocol import Protocol, finished
from kernels.session import Session
from kernels.statistics import RatioInterval, Timing, summarise

BATCH_ROUNDS = 8  # rounds enqueued before the CPU waits, so that the GPU never does
BATCH_MS = 40.0  # of GPU time in a batch at most, unless a single round takes longer
DEVICE_WARMUP_MS = 500.0  # once per process: clocks and temperature leave their idle state
_PROBE_REPLAYS = 3
_MAX_PASSES = 256


@dataclass(frozen=True, slots=True)
class Side:
    """Something to time: ``enqueue`` puts ``launches`` launches on the session's stream, each
    on another input set, and allocates nothing."""

    enqueue: Callable[[], None]
    launches: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """Timings of the sides in order, the ratio second over first, clocks around it all.

    ``clock_after`` is read while the last replays still run. ``flushed``: the L2 was flushed
    before each replay.
    """

    timings: tuple[Timing, ...]
    ratio: RatioInterval | None
    clock_before: ClockReading
    clock_after: ClockReading
    flushed: bool


class _Graph:
    """A captured side: ``passes`` rotations of its launches, replayed as one.

    ``replay_us`` is a first estimate of how long that takes.
    """

    def __init__(self, session: Session, side: Side, passes: int, replay_us: float = 0.0) -> None:
        stream = session.stream
        stream.begin_capture()
        for _ in range(passes):
            side.enqueue()
        self._graph = stream.end_capture()
        self._stream = stream
        self.launches = passes * side.launches
        self.replay_us = replay_us
        self._graph.upload(stream)

    def replay(self) -> None:
        """Enqueue the whole graph."""
        self._graph.launch(self._stream)


def _elapsed_us(first: Any, last: Any) -> float:
    return float(cp.cuda.get_elapsed_time(first, last)) * 1e3


def _event(stream: Any) -> Any:
    event = cp.cuda.Event()
    event.record(stream)
    return event


def _prepare(session: Session, side: Side, protocol: Protocol, flush: bool) -> _Graph:
    """Capture a side with as many rotations as make a replay long enough."""
    side.enqueue()  # loads code and library workspaces: neither may happen during capture
    session.stream.synchronize()
    graph = _Graph(session, side, 1)
    graph.replay()
    first = _event(session.stream)
    for _ in range(_PROBE_REPLAYS):
        graph.replay()
    last = _event(session.stream)
    last.synchronize()
    replay_us = max(_elapsed_us(first, last) / _PROBE_REPLAYS, 0.1)
    if flush or replay_us >= protocol.replay_us:  # a flushed set is cold only once per replay
        graph.replay_us = replay_us
        return graph
    passes = min(_MAX_PASSES, math.ceil(protocol.replay_us / replay_us))
    return _Graph(session, side, passes, passes * replay_us)


def _spend(session: Session, graphs: Sequence[_Graph], spend_ms: float) -> None:
    """Replay in turn until this much GPU time has gone by."""
    round_ms = sum(graph.replay_us for graph in graphs) / 1e3
    spent_ms = 0.0
    while spent_ms < spend_ms:
        first = _event(session.stream)
        for _ in range(max(1, min(BATCH_ROUNDS, int(BATCH_MS / round_ms)))):
            for graph in graphs:
                graph.replay()
        last = _event(session.stream)
        last.synchronize()
        spent_ms += _elapsed_us(first, last) / 1e3


def measure(
    session: Session, sides: Sequence[Side], protocol: Protocol, flush: bool = False
) -> Measurement:
    """Time one side, or two interleaved in alternating order, by ``protocol``.

    Rounds go on until ``protocol.finished``: enough of them, and for two sides an interval
    that is narrow enough or a note that says why it is not.
    """
    stream = session.stream
    graphs = [_prepare(session, side, protocol, flush) for side in sides]
    if not session.warm:
        _spend(session, graphs, DEVICE_WARMUP_MS)
        session.warm = True
    clock_before = session.monitor.read()
    _spend(session, graphs, protocol.warmup_ms)

    round_ms = sum(graph.replay_us for graph in graphs) / 1e3
    batch_rounds = max(1, min(BATCH_ROUNDS, int(BATCH_MS / round_ms)))
    times_us: list[list[float]] = [[] for _ in graphs]
    spent_ms = 0.0
    rounds = 0
    while True:
        graphs[0].replay()  # untimed: the CPU runs ahead from here
        marks: list[tuple[int, Any, Any]] = []
        batch = _event(stream)
        for index in range(rounds, rounds + batch_rounds):
            for side in range(len(graphs))[:: -1 if index % 2 else 1]:
                if flush:
                    session.flush_l2(protocol.l2_multiple)
                start = _event(stream)
                graphs[side].replay()
                marks.append((side, start, _event(stream)))
        clock_after = session.monitor.read()
        marks[-1][2].synchronize()
        for side, start, end in marks:
            times_us[side].append(_elapsed_us(start, end) / graphs[side].launches)
        spent_ms += _elapsed_us(batch, marks[-1][2]) / 1e3
        rounds += batch_rounds
        ratios = [b / a for a, b in zip(*times_us, strict=True)] if len(graphs) == 2 else []
        stop, interval = finished(protocol, rounds, spent_ms, ratios)
        half_width = None if interval is None else interval.half_width
        report("timing", rounds=rounds, half_width=half_width)
        if stop:
            break
    return Measurement(
        tuple(summarise(t, g.launches) for t, g in zip(times_us, graphs, strict=True)),
        interval,
        clock_before,
        clock_after,
        flush,
    )
