"""The keys as the running service knows them: read from the database, at most seconds old."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from app.keys import ApiKey
from app.rate_limit import Bucket

FRESH_S = 1.0
"""How long what was read is believed: a revocation takes effect within it."""


class KeyRing:
    """All keys in memory, so that a request with a known one asks no database.

    An id that is not among them waits for a reading that begins after it asked, so that a fresh
    key works at once; however many ask, one reading runs at a time. Where the database can't be
    read, keys that were read longer ago are not believed: StoreUnavailable.
    """

    def __init__(
        self,
        read: Callable[[], Mapping[str, ApiKey]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._clock = clock
        self._keys: Mapping[str, ApiKey] = {}
        self._buckets: dict[str, Bucket] = {}
        self._read_at = float("-inf")
        self._lock = asyncio.Lock()
        # Its own thread: a database that keeps every other one waiting must not keep this.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="keys")

    async def find(self, key_id: str) -> ApiKey | None:
        """The key of an id."""
        asked_at = self._clock()
        if key_id not in self._keys or asked_at - self._read_at >= FRESH_S:
            await self._refresh(asked_at)
        return self._keys.get(key_id)

    def bucket(self, key: ApiKey) -> Bucket | None:
        """What is left of a key's requests; None where they have no limit."""
        if key.requests_per_minute is None:
            return None
        if key.id not in self._buckets:
            self._buckets[key.id] = Bucket(key.requests_per_minute, self._clock)
        return self._buckets[key.id]

    def close(self) -> None:
        """End the reading thread."""
        self._thread.shutdown(wait=False)

    async def _refresh(self, asked_at: float) -> None:
        async with self._lock:
            if self._read_at >= asked_at:  # by one that waited before this one
                return
            begun_at = self._clock()
            loop = asyncio.get_running_loop()
            self._keys = await loop.run_in_executor(self._thread, self._read)
            self._read_at = begun_at
            for ended in self._buckets.keys() - self._keys.keys():
                del self._buckets[ended]
