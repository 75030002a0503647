"""The load of a hold: replays of a graph, some chunks ahead of the GPU. Worker processes only."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from kernels.replay import Graph, elapsed_us, event
from kernels.session import Session

CHUNK_MS = 25.0
AHEAD = 3
"""Chunks on their way at a time: enough for the GPU never to wait for the CPU between two polls,
few enough for the driver's queue never to be full."""


class GraphLoad:
    """A ``kernels.power.meter.Load`` of one side's launches."""

    def __init__(self, session: Session, graph: Graph) -> None:
        self._session, self._graph = session, graph
        self._replays = max(1, math.ceil(CHUNK_MS * 1e3 / graph.replay_us))
        self._on_way: deque[Any] = deque()
        self._last: Any = None
        self._first: Any = None
        self._chunks = 0

    def top_up(self) -> None:
        """Enqueue as much as is missing; returns at once."""
        while self._on_way and self._on_way[0].done:
            self._on_way.popleft()
        while len(self._on_way) < AHEAD:
            for _ in range(self._replays):
                self._graph.replay()
            self._last = event(self._session.stream)
            self._on_way.append(self._last)
            self._chunks += 1

    def begin(self) -> None:
        """Count launches and their time from what is enqueued next."""
        self._first = event(self._session.stream)
        self._chunks = 0

    def launch_us(self) -> float:
        """Wait for all; time per launch since ``begin``."""
        self.top_up()
        self._last.synchronize()
        self._on_way.clear()
        return elapsed_us(self._first, self._last) / (
            self._chunks * self._replays * self._graph.launches
        )
