"""Values that are made once, whichever of several threads comes first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

Value = TypeVar("Value")
_ABSENT: Any = object()


class Once(Generic[Value]):
    """Values by key. Of threads that want one that is not there, one makes it and the others wait;
    those that want another do not. What failed is tried again. Beyond ``limit`` values the oldest
    goes first."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._values: dict[Hashable, Value] = {}
        self._locks: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made where it is not there. What ``make`` raises goes through."""
        with suppress(KeyError):  # another thread may let it go meanwhile
            return self._values[key]
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            value = self._values.get(key, _ABSENT)
            if value is _ABSENT:
                value = make()
                self._keep(key, value)
            return cast("Value", value)

    def _keep(self, key: Hashable, value: Value) -> None:
        with self._lock:
            if self._limit is not None and len(self._values) >= self._limit:
                oldest = next(iter(self._values))
                del self._values[oldest]
                self._locks.pop(oldest, None)
            self._values[key] = value

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._values.clear()
            self._locks.clear()
