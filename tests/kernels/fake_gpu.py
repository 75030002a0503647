"""A GPU for timing code whose clock the test sets."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import kernels.replay as replaying
from kernels.host import ClockReading
from kernels.replay import Side

CLOCK = ClockReading(1755, 640.0, ())
Span = float | Callable[[], float]


class FakeStream:
    """Time passes by what is enqueued; a capture collects it instead."""

    def __init__(self) -> None:
        self.now_us = 0.0
        self.log: list[str] = []
        self.captured: list[tuple[str, Span]] | None = None

    def work(self, name: str, span: Span) -> None:
        if self.captured is not None:
            self.captured.append((name, span))
            return
        self.now_us += span() if callable(span) else span
        self.log.append(name)

    def begin_capture(self) -> None:
        self.captured = []

    def end_capture(self) -> Any:
        work, self.captured = self.captured or [], None

        def launch(stream: FakeStream) -> None:
            stream.now_us += sum(span() if callable(span) else span for _, span in work)
            stream.log.append(f"{work[0][0]}*{len(work)}")

        return SimpleNamespace(launch=launch, upload=lambda stream: None)

    def synchronize(self) -> None:
        assert self.captured is None


class FakeEvent:
    done = True

    def record(self, stream: FakeStream) -> None:
        assert stream.captured is None
        self.time_us = stream.now_us

    def synchronize(self) -> None:
        pass


def fake_session(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session whose stream keeps the time, in CuPy's place."""
    cuda = SimpleNamespace(
        Event=FakeEvent,
        get_elapsed_time=lambda first, last: (last.time_us - first.time_us) / 1e3,
    )
    monkeypatch.setattr(replaying, "cp", SimpleNamespace(cuda=cuda))
    stream = FakeStream()
    return SimpleNamespace(
        stream=stream,
        monitor=SimpleNamespace(read=lambda: CLOCK),
        warm=False,
        flush_l2=lambda multiple: stream.work("flush", 60.0),
    )


def side(session: Any, name: str, span: Span, launches: int) -> Side:
    """Launches that take so many microseconds each."""

    def enqueue() -> None:
        for _ in range(launches):
            session.stream.work(name, span)

    return Side(enqueue, launches)
