"""What is timed, captured in CUDA graphs: the same launches again and again, CPU out of the way."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cupy as cp

from kernels.protocol import Protocol
from kernels.session import Session

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


class Graph:
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
        self.passes = passes
        self.launches = passes * side.launches
        self.replay_us = replay_us
        self._graph.upload(stream)

    def replay(self) -> None:
        """Enqueue the whole graph."""
        self._graph.launch(self._stream)


def elapsed_us(first: Any, last: Any) -> float:
    """GPU time from one event to another, both reached."""
    return float(cp.cuda.get_elapsed_time(first, last)) * 1e3


def event(stream: Any) -> Any:
    """An event that the stream reaches after what is on it now."""
    made = cp.cuda.Event()
    made.record(stream)
    return made


def prepare(session: Session, side: Side, protocol: Protocol, flush: bool) -> Graph:
    """Capture a side with as many rotations as make a replay long enough."""
    side.enqueue()  # loads code and library workspaces: neither may happen during capture
    session.stream.synchronize()
    graph = Graph(session, side, 1)
    graph.replay()
    first = event(session.stream)
    for _ in range(_PROBE_REPLAYS):
        graph.replay()
    last = event(session.stream)
    last.synchronize()
    replay_us = max(elapsed_us(first, last) / _PROBE_REPLAYS, 0.1)
    if flush or replay_us >= protocol.replay_us:  # a flushed set is cold only once per replay
        graph.replay_us = replay_us
        return graph
    passes = min(_MAX_PASSES, math.ceil(protocol.replay_us / replay_us))
    return Graph(session, side, passes, passes * replay_us)


def spend(session: Session, graphs: Sequence[Graph], spend_ms: float) -> None:
    """Replay in turn until this much GPU time has gone by."""
    spent_ms = 0.0
    while spent_ms < spend_ms:
        first = event(session.stream)
        for _ in range(rounds_at_once(graphs)):
            for graph in graphs:
                graph.replay()
        last = event(session.stream)
        last.synchronize()
        spent_ms += elapsed_us(first, last) / 1e3


def rest(protocol: Protocol, spent_ms: float) -> None:
    """Leave the GPU idle after ``spent_ms`` of its time, as long as ``protocol`` says."""
    if protocol.rest:
        time.sleep(protocol.rest * spent_ms / 1e3)


def rounds_at_once(graphs: Sequence[Graph]) -> int:
    """Rounds, each of one replay of every graph, to enqueue before the CPU waits."""
    round_ms = sum(graph.replay_us for graph in graphs) / 1e3
    return max(1, min(BATCH_ROUNDS, int(BATCH_MS / round_ms)))


def warm_device(session: Session, graphs: Sequence[Graph]) -> None:
    """Bring the device out of its idle state, once in a process."""
    if not session.warm:
        spend(session, graphs, DEVICE_WARMUP_MS)
        session.warm = True
