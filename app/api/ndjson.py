"""Streams of JSON lines that stop when nobody reads them any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from itertools import islice
from typing import TypeVar

from fastapi.responses import StreamingResponse
from starlette.types import Send

T = TypeVar("T")


class NdjsonResponse(StreamingResponse):
    """JSON values, a line each.

    Where the client has gone the lines' generator is closed before the response ends.
    """

    media_type = "application/x-ndjson"

    def __init__(self, lines: AsyncGenerator[bytes, None], status_code: int = 200) -> None:
        # A proxy that gathers the lines would hide that they are there.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(lines, status_code, headers)
        self._lines = lines

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._lines):
            await super().stream_response(send)


async def as_completed(
    items: Iterable[T], line: Callable[[int, T], Awaitable[bytes]], *, window: int
) -> AsyncGenerator[bytes, None]:
    """``line(index, item)`` of each item, in order of completion.

    At most ``window`` are under way or not yet taken: the reader's pace is the work's, and what
    a slow one holds is bounded. Closing it cancels what is under way; the rest is not begun.
    """
    numbered = iter(enumerate(items))
    pending: set[asyncio.Task[bytes]] = set()
    try:
        while True:
            for index, item in islice(numbered, window - len(pending)):
                pending.add(asyncio.ensure_future(line(index, item)))
            if not pending:
                return
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
