"""What every request gets: an id, headers that protect its answer, a count, a line in the log.

Stands outermost, so that no answer goes without, whatever refused or broke it off.
"""

from __future__ import annotations

import logging
import re
import time
import uuid

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.access import AccessTable
from app.api.responses import problem_response
from app.logs import REQUEST_ID
from app.metrics import Metrics
from app.problem_documents import from_exception

log = logging.getLogger(__name__)
access_log = logging.getLogger("app.requests")

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
PROTECTING = tuple(
    (name.encode(), value.encode())
    for name, value in {
        "x-content-type-options": "nosniff",
        "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-store",
    }.items()
)
"""Headers of every answer that does not set them itself. Strict-Transport-Security is not among
them: who ends TLS before this service knows whether all of its host's names have it."""


class RequestObserver:
    """Takes the caller's ``X-Request-ID`` where it is sane, else makes one, and returns it.

    Counts and times the request under its route's template and, with ``access_log``, writes a
    line: never the path, query or headers, which may hold what nobody may read. The request's
    state has as ``entry`` its route, None where there is none. An exception that nothing else
    caught is logged here and answered.
    """

    def __init__(
        self, app: ASGIApp, table: AccessTable, metrics: Metrics, access_log: bool
    ) -> None:
        self._app = app
        self._table = table
        self._metrics = metrics
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        entry = self._table.find(scope)
        state = scope.setdefault("state", {})
        state["entry"] = entry
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if SANE_ID.fullmatch(given) else uuid.uuid4().hex
        reset = REQUEST_ID.set(request_id)
        status = 0

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message.get("headers", ())
                names = {name for name, _ in headers}
                ours = [pair for pair in PROTECTING if pair[0] not in names]
                ours.append((b"x-request-id", request_id.encode()))
                # Not in place: a route may keep its headers for the next answer.
                message = {**message, "headers": [*headers, *ours]}
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:
            log.exception("the request broke off")
            if status:  # too late to say so: the connection is closed without the answer's end
                raise
            await problem_response(from_exception(error))(scope, receive, watch)
        finally:
            seconds = time.perf_counter() - begun
            # A template, never the path itself: labels must stay few.
            route = "none" if entry is None else entry.path
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.count_request(method, route, status, seconds)
            if self._access_log:
                caller = state.get("caller")
                access_log.info(
                    "request",
                    extra={
                        "method": method,
                        "route": route,
                        "status": status,
                        "ms": round(seconds * 1e3, 3),
                        "key_id": None if caller is None else caller.key_id or None,
                    },
                )
            REQUEST_ID.reset(reset)
