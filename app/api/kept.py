"""Answers at an address: what is sent for them, and the short way to those that are kept."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.answering import Given
from app.api.conditional import caching, has_current
from app.api.responses import EncodedResponse, answer_response
from app.services import Services

PATH = "/v1/optimize"


def addressed_response(scope: Scope, given: Given, max_age_s: int) -> Response:
    """The answer to a GET, or 304 where the caller has it."""
    validators = ((b"etag", given.answer.etag), *caching(max_age_s))
    if has_current(scope["headers"], given.answer.etag):
        return EncodedResponse(b"", validators, status=304)
    return answer_response(given, headers=validators)


class KeptAnswers:
    """Answers a GET whose very query string was answered before from memory, which spares it the
    routing, the validation and the dependencies that all of its kind would go through again.

    Must stand innermost: whatever refuses a request (its host, its key) comes before it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == PATH and scope["method"] == "GET":
            services: Services = scope["app"].state.services
            answer = services.answering.recall(scope["query_string"])
            if answer is not None:
                given = Given(answer, "hit", {})
                max_age_s = services.settings.answer_max_age_s
                await addressed_response(scope, given, max_age_s)(scope, receive, send)
                return
        await self._app(scope, receive, send)
