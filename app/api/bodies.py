"""Bodies parsed once for each request, large ones where they keep nobody else waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from app.strict_json import parse

LARGE_BYTES = 16_384
"""Bodies beyond it are parsed in a thread; shorter ones take about a millisecond, and a thread's
turn as long."""


class BodyParser:
    """Parses bodies, and large ones in a thread, one at a time.

    ``app.strict_json`` calls back into Python for each value, so that the thread gives the event
    loop its turns; of several such threads each would take turns from it. The thread is this one's
    own: those that others share may all be waiting for a database.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bodies")

    async def parse(self, body: bytes) -> Any:
        """The body's value; None where there is none. Raises Refused."""
        if len(body) <= LARGE_BYTES:
            return parse(body) if body else None
        return await asyncio.get_running_loop().run_in_executor(self._thread, parse, body)


class ParsedRoute(APIRoute):
    """A route that takes its body's value as ``BodyGuard`` left it with the request's state."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_parsed(request: Request) -> Response:
            return await handle(_ParsedRequest(request.scope, request.receive))

        return handle_parsed


class _ParsedRequest(Request):
    async def json(self) -> Any:
        return self.state.json
