"""When an answer is due, and what keeps the time of a proof steady."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

NEVER_MS = 2**32 - 1  # Z3's own word for no time limit


class OutOfTime(Exception):
    """The deadline passed before Z3 had decided."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of ``time.monotonic``, or none."""

    at_s: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the moment has come."""
        return self.at_s is not None and time.monotonic() >= self.at_s

    @property
    def left_ms(self) -> int:
        """Milliseconds left, as Z3 takes them; at least 1."""
        if self.at_s is None:
            return NEVER_MS
        return max(1, int((self.at_s - time.monotonic()) * 1e3))


NEVER = Deadline()


def collector_off(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` without Python's cyclic collector: a collection amid calls of Z3 has crashed
    other projects, and with Z3's objects on the heap it takes some 40 ms."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        enabled = gc.isenabled()
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            if enabled:
                gc.enable()

    return wrapped
