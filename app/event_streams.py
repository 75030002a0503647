"""Following a job's events: a bounded number of clients, each asking the database by turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from starlette.concurrency import run_in_threadpool

from app.errors import Busy, NotFound, StoreUnavailable
from app.store.job import JobEvent
from app.store.jobs import JobStore

POLL_S = 0.5


class EventStreams:
    """At most ``most`` at a time. They end with their job, or with the service.

    The events themselves are in the database, so that a client goes on where it left off whatever
    happened to the service in between.
    """

    def __init__(self, store: JobStore, most: int) -> None:
        self._store = store
        self._most = most
        self._closing = asyncio.Event()
        self.open = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """One of the places, for as long as a client follows; Busy where none is left."""
        if self.open >= self._most:
            raise Busy(f"{self.open} clients follow events; at most {self._most} may")
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    async def follow(self, job_id: str, after: int) -> AsyncIterator[JobEvent]:
        """Events of a job past number ``after``, as they come, to the one that ends it."""
        while True:
            try:
                events, over = await run_in_threadpool(self._look, job_id, after)
            except StoreUnavailable:
                events, over = [], False  # it may be back at the next turn
            except NotFound:
                return  # ended, and forgotten since
            for event in events:
                yield event
                after = event.number
            if over or await self._closed_within(POLL_S):
                return

    def _look(self, job_id: str, after: int) -> tuple[list[JobEvent], bool]:
        """What is new, and whether nothing more will come, which is asked first."""
        over = self._store.get(job_id).ended is not None
        return self._store.events(job_id, after), over

    def close(self) -> None:
        """End every stream; clients come back to the next service."""
        self._closing.set()

    async def _closed_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return False
        return True
