"""uvicorn's server, and how it ends: new work refused, open requests let end, the rest cut."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from app.services import Services

log = logging.getLogger(__name__)

TICK_S = 0.1
LATE_S = 5
"""How much later than ours uvicorn's own deadline is: it would call a cut request an error."""


class HttpServer(uvicorn.Server):
    """Serves ``app`` by the protocol ``http``, and calls ``on_start`` once requests are answered.

    Its signals come to ``handle_exit`` from outside. What ``on_start`` raises ends the server, and
    is its ``failure`` then. Once it stops, open requests may take ``connections_s``; at another
    SIGINT they are cut at once, and the running job is ended.
    """

    def __init__(
        self,
        app: FastAPI,
        http: type[asyncio.Protocol],
        on_start: Callable[[], None],
        connections_s: float,
    ) -> None:
        config = uvicorn.Config(
            self._call,
            interface="asgi3",
            http=http,
            log_config=None,  # its logs go where ours do
            access_log=False,  # app.api.observe writes it
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=int(connections_s) + LATE_S,
        )
        super().__init__(config)
        self._app = app
        self._on_start = on_start
        self._connections_s = connections_s
        self._hurried = False
        self._cutting = False
        self.failure: Exception | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: uvicorn's own sends them again at the end, and SIGTERM would be the end."""
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; at a further SIGINT, wait for nothing."""
        if self.should_exit and sig == signal.SIGINT:
            self._hurried = True
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets)
        if self.started and not self.should_exit:
            try:
                self._on_start()
            except Exception as error:
                self.failure = error
                self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new work before open requests are waited for."""
        services: Services = self._app.state.services
        services.gpu.drain()
        services.streams.close()
        patience = asyncio.create_task(self._lose_patience(services))
        try:
            await super().shutdown(sockets)
        finally:
            patience.cancel()

    async def _lose_patience(self, services: Services) -> None:
        end = time.monotonic() + self._connections_s
        while not self._hurried and time.monotonic() < end:
            await asyncio.sleep(TICK_S)
        await self._cut()
        while not self._hurried:
            await asyncio.sleep(TICK_S)
        services.gpu.give_up()

    async def _cut(self) -> None:
        """Close every connection and end what is still at work for one."""
        state = self.server_state
        if not state.tasks:
            return
        log.warning("open requests are cut: the service stops", extra={"open": len(state.tasks)})
        self._cutting = True
        for connection in list(state.connections):
            transport: Any = connection.transport
            transport.abort()
        await asyncio.sleep(0)  # uvicorn hears that they are gone, and misses no answer
        for task in list(state.tasks):
            task.cancel()

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if scope["type"] != "http" or not self._cutting:
                raise
