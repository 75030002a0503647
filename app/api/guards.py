"""What stands before the routes: whose requests are taken, and how large and slow they may be.

Plain ASGI, so that a body is refused while it streams and no route ever sees it.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.responses import problem_response
from app.problem_documents import (
    BAD_HOST,
    BAD_ORIGIN,
    NOT_JSON,
    SLOW_BODY,
    TOO_LARGE,
    ProblemDocument,
    document,
)
from app.settings import Settings, is_loopback

BODY_METHODS = ("POST", "PUT", "PATCH")


def host_name(authority: str) -> str:
    """The host of a Host header or of an origin's authority, without its port."""
    authority = authority.strip().lower()
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]


class CallerGuard:
    """Refuses foreign hosts (421) and foreign origins (403).

    A service without a key on loopback must not be reachable from a web page: neither by a
    name that was rebound to 127.0.0.1, which the Host header gives away, nor by a form or a
    fetch of another origin. Bound to other addresses the Host is held against
    ``allowed_hosts`` where any are set; the origin rule holds everywhere.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._names = settings.allowed_hosts
        self._check_host = settings.loopback or bool(settings.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refusal = self._refusal(Headers(scope=scope))
            if refusal is not None:
                await problem_response(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> ProblemDocument | None:
        hosts = headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else ""
        name = host_name(host)
        if self._check_host and not (is_loopback(name) or name in self._names):
            return document(
                BAD_HOST,
                f"the Host header must be a loopback name or one of WARPWRIGHT_ALLOWED_HOSTS, "
                f"got {host!r}",
            )
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return document(BAD_ORIGIN, f"the Origin must be this service's own, got {origin!r}")
        return None


class BodyGuard:
    """Takes JSON bodies up to a size (413, 415) that arrive within a deadline (408).

    The body is read whole before the route runs, so a streamed one is cut at the limit.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._limit = settings.body_bytes
        self._deadline_s = settings.body_deadline_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in BODY_METHODS:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self._limit:
            await self._refuse(self._too_large(), scope, receive, send)
            return
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json" and not (
            media_type.startswith("application/") and media_type.endswith("+json")
        ):
            refusal = document(
                NOT_JSON, f"Content-Type must be application/json, got {media_type or 'none'!r}"
            )
            await self._refuse(refusal, scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._deadline_s):
                body = await self._read(receive)
        except TimeoutError:
            refusal = document(SLOW_BODY, f"the body must arrive within {self._deadline_s:g} s")
            await self._refuse(refusal, scope, receive, send)
            return
        if body is None:
            await self._refuse(self._too_large(), scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive) -> bytes | None:
        """The body, or None once it is over the limit."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b"".join(parts)
            part = message.get("body", b"")
            size += len(part)
            if size > self._limit:
                return None
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_large(self) -> ProblemDocument:
        return document(TOO_LARGE, f"the body must be at most {self._limit} bytes")

    async def _refuse(
        self, refusal: ProblemDocument, scope: Scope, receive: Receive, send: Send
    ) -> None:
        # The rest of the body is not read, so the connection can't carry another request.
        response = problem_response(refusal, headers={"Connection": "close"})
        await response(scope, receive, send)


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
