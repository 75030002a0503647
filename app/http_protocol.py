"""HTTP connections: uvicorn's protocol with deadlines for callers that send or read too slowly, and
a limit on how many are open.

uvicorn has a deadline for a connection on which nothing is asked; one on which half a request was
sent, or from which an answer is not read, it would keep for ever.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.metrics import Drop
from app.settings import Settings

HEAD_BYTES_MAX = 65_536
"""A request's line and headers. The parser has no limit of its own."""

SEND_BUFFER_BYTES = 2**17
"""What the kernel may hold of what a caller does not read. By default that grows to megabytes, of
which a third must have been read before the kernel takes more: a slow reader would look like none.
"""


class _Phase(Enum):
    """How much of a request has arrived."""

    NOTHING = auto()
    HEAD = auto()
    """Not yet all of its line and headers."""
    BODY = auto()
    """Not yet all of its body."""


def protocol(settings: Settings, on_drop: Callable[[Drop], None]) -> type[HttpToolsProtocol]:
    """The protocol class for ``uvicorn.Config(http=...)``; ``on_drop`` hears of each connection
    that was refused or ended for a limit.
    """
    # uvicorn makes the instances, and hands them nothing of ours.
    return type("Protocol", (_Protocol,), {"settings": settings, "on_drop": staticmethod(on_drop)})


class _Protocol(HttpToolsProtocol):
    """Ends a connection

    - whose next request's line and headers take longer than ``head_deadline_s``, or more bytes
      than HEAD_BYTES_MAX;
    - that has its answer and takes longer than ``body_deadline_s`` for the rest of its body
      (until it has, the application watches over the body);
    - that leaves an answer unread for longer than ``write_deadline_s``;
    - that is one more than ``connections``.
    """

    settings: ClassVar[Settings]
    on_drop: ClassVar[Callable[[Drop], None]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._phase = _Phase.NOTHING
        self._head_bytes = 0
        self._arrived_bytes = 0
        """What a head that ends with the bytes in hand can have at most."""
        self._large = False
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    # Of the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        bound_kernel(transport.get_extra_info("socket"), self.settings.write_deadline_s)
        if len(self.connections) > self.settings.connections:
            self._refuse(Drop.TOO_MANY, HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections.")
        else:
            self._watch_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._reading, self._writing):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._arrived_bytes = self._head_bytes + len(data)
        if self._phase is not _Phase.BODY:
            self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            self._watch_writing()
        elif self._phase is not _Phase.BODY and self._head_bytes > HEAD_BYTES_MAX:
            self._refuse_head()
        else:
            self._watch_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None and not self.transport.is_closing():
            self._writing.cancel()
            self._writing = None

    # Of the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase = _Phase.HEAD

    def on_headers_complete(self) -> None:
        if self._arrived_bytes > HEAD_BYTES_MAX and self._whole_head_bytes() > HEAD_BYTES_MAX:
            self._large = True
            raise ValueError("the head is too large")  # the parser's error, answered below
        super().on_headers_complete()
        self._enter(_Phase.BODY)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._enter(_Phase.NOTHING)

    def send_400_response(self, msg: str) -> None:
        if self._large:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    # Of the answer

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_writing()
        else:
            self._watch_reading()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_writing()

    # Ours

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _enter(self, phase: _Phase) -> None:
        self._phase = phase
        self._head_bytes = 0
        self._stop_reading_timer()

    def _whole_head_bytes(self) -> int:
        """The line's address and the headers, each with what stands around it."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _stop_reading_timer(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _watch_reading(self) -> None:
        """Set the timer for what is awaited of the caller, unless it runs; stop it for nothing."""
        deadline_s = self._awaited_within_s()
        if deadline_s is None:
            self._stop_reading_timer()
        elif self._reading is None:
            self._reading = self.loop.call_later(deadline_s, self._on_slow)

    def _awaited_within_s(self) -> float | None:
        if self._answering:
            return None
        if self._phase is _Phase.BODY:
            return self.settings.body_deadline_s
        if self._phase is _Phase.NOTHING and self.timeout_keep_alive_task is not None:
            return None  # uvicorn's timer, which any byte stops
        return self.settings.head_deadline_s

    def _on_slow(self) -> None:
        self._reading = None
        if self.transport.is_closing():
            return
        if self._phase is _Phase.HEAD:
            words = f"The request's headers must arrive within {self.settings.head_deadline_s:g} s."
            self._refuse(Drop.SLOW_HEAD, HTTPStatus.REQUEST_TIMEOUT, words)
        else:  # nothing was asked, or what was asked has its answer
            slow = Drop.SLOW_BODY if self._phase is _Phase.BODY else Drop.SLOW_HEAD
            type(self).on_drop(slow)
            self.transport.close()
            self._watch_writing()

    def _refuse_head(self) -> None:
        words = f"The request's headers must be at most {HEAD_BYTES_MAX} bytes."
        self._refuse(Drop.LARGE_HEAD, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, words)

    def _refuse(self, reason: Drop, status: HTTPStatus, words: str) -> None:
        """Say in plain text why, and close; no route was found, so that it is nobody's answer."""
        type(self).on_drop(reason)
        if self._answering:  # to an earlier request, in whose answer this would stand
            self.transport.abort()
            return
        lines = (
            f"HTTP/1.1 {status.value} {status.phrase}",
            "content-type: text/plain; charset=utf-8",
            f"content-length: {len(words)}",
            *(["retry-after: 1"] if status is HTTPStatus.SERVICE_UNAVAILABLE else []),
            "connection: close",
        )
        self.transport.write("\r\n".join([*lines, "", words]).encode("ascii"))
        self.transport.close()
        self._watch_writing()

    def _watch_writing(self) -> None:
        """Give the caller until the deadline to read what waits to be sent to it, or what must be
        sent before a connection that is closing is gone.
        """
        if self._writing is None:
            deadline_s = self.settings.write_deadline_s
            self._writing = self.loop.call_later(deadline_s, self._on_unread)

    def _on_unread(self) -> None:
        self._writing = None
        type(self).on_drop(Drop.UNREAD)
        self.transport.abort()


def bound_kernel(connection: socket.socket, write_deadline_s: float) -> None:
    """Bound what the kernel holds for a caller that does not read, and for how long it holds what
    a caller that is no longer there does not confirm.
    """
    with suppress(OSError):  # macOS: of a caller that has gone already
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            # Twice: where both would hold, the protocol is to know of it first, and count it.
            timeout_ms = max(1, round(2e3 * write_deadline_s))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
