"""Lets a request through to its route where its key has the scope that the route needs.

Plain ASGI, before the body is read: a stranger can make the service read none.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from app.api.access import Entry
from app.api.errors import error_response
from app.api.guards import BODY_METHODS
from app.api.responses import problem_response
from app.errors import Unavailable
from app.key_ring import KeyRing
from app.keys import KEY_WORDS, LOOPBACK, NOBODY, ApiKey, Caller, Scope, read
from app.problem_documents import NO_KEY, NO_SCOPE, RATE_LIMITED, ProblemDocument, document
from app.rate_limit import Bucket
from app.services import Services
from app.settings import Settings

CHALLENGE = 'Bearer realm="warpwright"'
HOW = "send Authorization: Bearer ww_..., as `warpwright keys create` prints it"


class Refusal(Exception):
    """Why a request goes no further; ``reason`` is what it is counted under."""

    def __init__(self, reason: str, problem: ProblemDocument, headers: Mapping[str, str]) -> None:
        super().__init__(reason)
        self.reason = reason
        self.problem = problem
        self.headers = headers


class KeyGuard:
    """Refuses requests without a valid key (401), beyond the key's requests per minute (429) and
    without the scope (403). The request's state has as ``caller`` whom it let in.

    A key that is given is held to what it allows even where none is required. An address that is
    no route's needs a key of any scope.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._required = settings.keys_required

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        services: Services = scope["app"].state.services
        try:
            caller = await self._caller(scope, services.keys)
        except Refusal as refusal:
            services.metrics.refused.labels(refusal.reason).inc()
            # Its body is not read, so the connection can't carry another request.
            close = {"Connection": "close"} if scope["method"] in BODY_METHODS else {}
            response = problem_response(refusal.problem, headers={**refusal.headers, **close})
            await response(scope, receive, send)
            return
        except Unavailable as error:
            await error_response(error)(scope, receive, send)
            return
        scope["state"]["caller"] = caller
        await self._app(scope, receive, _saying_what_remains(caller.bucket, send))

    async def _caller(self, scope: Connection, keys: KeyRing) -> Caller:
        entry: Entry | None = scope["state"]["entry"]
        needed = None if entry is None else entry.scope
        given = Headers(scope=scope).getlist("authorization")
        if entry is not None and needed is None:
            return NOBODY if self._required else LOOPBACK
        if not given and not self._required:
            return LOOPBACK
        key = await _key(given, keys)
        caller = Caller(key.id, key.scopes, key.gpu_seconds_per_day, keys.bucket(key))
        if caller.bucket is not None and not caller.bucket.take():
            raise _too_many(key, caller.bucket)
        if needed is not None and not caller.may(needed):
            raise _no_scope(needed)
        return caller


async def _key(given: list[str], keys: KeyRing) -> ApiKey:
    """The valid key that the Authorization headers hold."""
    if not given:
        raise _no_key("missing", f"a key is needed: {HOW}")
    if len(given) > 1:
        raise _no_key("malformed", f"there are {len(given)} Authorization headers: {HOW}")
    scheme, _, text = given[0].partition(" ")
    if scheme.lower() != "bearer":
        raise _no_key("malformed", f"the Authorization header is not of the scheme Bearer: {HOW}")
    text = text.strip(" ")
    parts = read(text)
    if parts is None:
        raise _no_key(
            "malformed",
            f"the Authorization header holds no whole key: one is {KEY_WORDS}; "
            f"what was sent has {len(text)}",
        )
    key_id, secret = parts
    key = await keys.find(key_id)
    # The same words for both, so that they don't tell which ids there are.
    if key is None:
        raise _no_key("unknown", "there is no such key")
    if not key.is_opened_by(secret):
        raise _no_key("wrong", "there is no such key")
    if key.revoked_at is not None:
        raise _no_key("revoked", f"the key {key.id} was revoked")
    if key.expires_at is not None and key.expires_at <= datetime.now(UTC):
        at = key.expires_at.isoformat(timespec="seconds")
        raise _no_key("expired", f"the key {key.id} expired at {at}")
    return key


def _no_key(reason: str, detail: str) -> Refusal:
    error = "" if reason == "missing" else ', error="invalid_token"'
    return Refusal(reason, document(NO_KEY, detail), {"WWW-Authenticate": CHALLENGE + error})


def _no_scope(needed: Scope) -> Refusal:
    challenge = f'{CHALLENGE}, error="insufficient_scope", scope="{needed}"'
    problem = document(NO_SCOPE, f"this needs a key with the scope {needed}")
    return Refusal("scope", problem, {"WWW-Authenticate": challenge})


def _too_many(key: ApiKey, bucket: Bucket) -> Refusal:
    problem = document(
        RATE_LIMITED,
        f"the key {key.id} may make {key.requests_per_minute} requests a minute; "
        f"the next in {bucket.retry_after_s} s",
    )
    headers = {"Retry-After": str(bucket.retry_after_s), **bucket.headers()}
    return Refusal("requests_per_minute", problem, headers)


def _saying_what_remains(bucket: Bucket | None, send: Send) -> Send:
    """``send`` with the key's limit in the answer's headers."""
    if bucket is None:
        return send

    async def with_limits(message: Message) -> None:
        if message["type"] == "http.response.start":
            limits = [(n.lower().encode(), v.encode()) for n, v in bucket.headers().items()]
            # Not in place: a route may keep its headers for the next answer.
            message = {**message, "headers": [*message.get("headers", ()), *limits]}
        await send(message)

    return with_limits
