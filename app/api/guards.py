"""What stands before the routes: whose requests are taken, and how large and slow they may be.

Plain ASGI, so that a body is refused while it streams and no route ever sees it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.bodies import BodyParser
from app.api.responses import problem_response
from app.problem_documents import (
    BAD_HOST,
    BAD_ORIGIN,
    MALFORMED,
    NOT_JSON,
    SLOW_BODY,
    TOO_LARGE,
    ProblemDocument,
    document,
)
from app.schemas.faults import shown
from app.settings import Settings, is_loopback
from app.strict_json import Refused

BODY_METHODS = ("POST", "PUT", "PATCH")
AUTHORITY = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{1,5})?")
JSON_TYPE = re.compile(r'application/json(\s*;\s*charset=("utf-8"|utf-8))?', re.IGNORECASE)


def host_name(authority: str) -> str:
    """The host of a Host header or of an origin's authority, without its port.

    Empty for what is no host with an optional port, whatever its beginning looks like.
    """
    match = AUTHORITY.fullmatch(authority.lower())
    return "" if match is None else match["address"] or match["name"]


def checks_hosts(settings: Settings) -> bool:
    """Whether requests for some hosts are refused: bound beyond loopback without names to allow,
    the service can't know by which it is reached.
    """
    return settings.loopback or bool(settings.allowed_hosts)


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
        self._check_host = checks_hosts(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refusal = self._refusal(Headers(scope=scope), scope.get("scheme", "http"))
            if refusal is not None:
                await problem_response(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers, scheme: str) -> ProblemDocument | None:
        hosts = headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else ""
        name = host_name(host)
        if self._check_host and not (is_loopback(name) or name in self._names):
            return document(
                BAD_HOST,
                f"the Host header must be a loopback name or one of WARPWRIGHT_ALLOWED_HOSTS, "
                f"got {shown(host)}",
            )
        for origin in headers.getlist("origin"):
            if origin.lower() != f"{scheme}://{host.lower()}":
                return document(
                    BAD_ORIGIN, f"the Origin must be this service's own, got {shown(origin)}"
                )
        return None


class BodyGuard:
    """Takes JSON bodies (400, 415) up to a size (413) that arrive within a deadline (408).

    The body is read whole before the route runs, so a streamed one is cut at the limit; the
    request's state has as ``arrived_s`` when that was (``time.monotonic``), and as ``json`` the
    value. ``limits`` are in bytes, by path, where the settings' ``body_bytes`` is not the limit.
    """

    def __init__(
        self, app: ASGIApp, settings: Settings, limits: Mapping[str, int] | None = None
    ) -> None:
        self._app = app
        self._limit = settings.body_bytes
        self._limits = limits or {}
        self._deadline_s = settings.body_deadline_s
        self._parser = BodyParser()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["method"] not in BODY_METHODS
            or scope["state"]["entry"] is None  # no route takes this, whatever its body
        ):
            await self._app(scope, receive, send)
            return
        limit = self._limits.get(scope["path"], self._limit)
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > limit:
            await self._refuse(_too_large(limit), scope, receive, send)
            return
        media_type = headers.get("content-type", "").strip()
        if not JSON_TYPE.fullmatch(media_type):
            refusal = document(
                NOT_JSON,
                f"Content-Type must be application/json in UTF-8, got {shown(media_type)}",
            )
            await self._refuse(refusal, scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._deadline_s):
                body = await _read(receive, limit)
        except TimeoutError:
            refusal = document(SLOW_BODY, f"the body must arrive within {self._deadline_s:g} s")
            await self._refuse(refusal, scope, receive, send)
            return
        if body is None:
            await self._refuse(_too_large(limit), scope, receive, send)
            return
        scope["state"]["arrived_s"] = time.monotonic()
        try:
            scope["state"]["json"] = await self._parser.parse(body)
        except Refused as refused:
            refusal = document(MALFORMED, f"the body must be JSON: {refused}")
            await problem_response(refusal)(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    async def _refuse(
        self, refusal: ProblemDocument, scope: Scope, receive: Receive, send: Send
    ) -> None:
        # The rest of the body is not read, so the connection can't carry another request.
        response = problem_response(refusal, headers={"Connection": "close"})
        await response(scope, receive, send)


async def _read(receive: Receive, limit: int) -> bytes | None:
    """The body, or None once it is over the limit."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b"".join(parts)
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            return None
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(limit: int) -> ProblemDocument:
    return document(TOO_LARGE, f"the body must be at most {limit} bytes")


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
