"""SIGINT and SIGTERM, from the moment a service is being started to the moment it has ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

STOPPING = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """A signal ended what was under way: no handler had been named for it yet."""


class StopSignals:
    """Catches both signals while it is entered, and remembers which came.

    Until ``hand_to`` names who acts on them, one is raised as Stopped where the program stands;
    from ``ignore`` on, what has to be closed is closed whatever comes. Only the main thread can
    catch signals; elsewhere this does nothing.
    """

    def __init__(self) -> None:
        self.seen: list[signal.Signals] = []
        self._act: Callable[[int, FrameType | None], None] = self._stop
        self._before: list[tuple[signal.Signals, signal.Handlers]] = []

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = [(each, signal.signal(each, self._note)) for each in STOPPING]  # type: ignore[misc]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each, handler in self._before:
            signal.signal(each, handler)

    def hand_to(self, act: Callable[[int, FrameType | None], None]) -> None:
        """Have ``act`` called with each signal, also with those that came before: Python drops what
        a handler raises inside a finaliser."""
        earlier = tuple(self.seen)
        self._act = act
        for number in earlier:
            act(number, None)

    def ignore(self) -> None:
        """Only remember what comes from now on."""
        self._act = lambda number, frame: None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.seen.append(signal.Signals(number))
        self._act(number, frame)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        raise Stopped
