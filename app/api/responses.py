"""JSON out: answers with their timings beside them, errors as problem documents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import Response

from app.answering import Given
from app.logs import REQUEST_ID
from app.problem_documents import MEDIA_TYPE, REQUEST_URN, ProblemDocument
from app.strict_json import dump

Header = tuple[bytes, bytes]


class EncodedResponse(Response):
    """Bytes and headers as they are sent: nothing is left to work out for each request."""

    def __init__(self, body: bytes, headers: Iterable[Header], *, status: int = 200) -> None:
        self.body = body
        self.status_code = status
        self.background = None
        self.raw_headers = list(headers)


def answer_response(given: Given, *, headers: Iterable[Header] = ()) -> Response:
    """An answer, and in Server-Timing where it comes from and what it took."""
    body = given.answer.body
    timings = server_timing(given.timings_ms)
    if given.source != "miss":
        timings = f"cache;desc={given.source}" + (f", {timings}" if timings else "")
    return EncodedResponse(
        body,
        (
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"server-timing", timings.encode()),
            *headers,
        ),
    )


def json_response(
    body: Any,
    *,
    status: int = 200,
    timings_ms: Mapping[str, float] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A JSON response; ``timings_ms`` travel in Server-Timing, so that the body stays pure."""
    headers = dict(headers or {})
    if timings_ms is not None:
        headers["Server-Timing"] = server_timing(timings_ms)
    return Response(
        dump(body),
        status_code=status,
        headers=headers,
        media_type="application/json",
    )


def server_timing(timings_ms: Mapping[str, float]) -> str:
    """Steps and their milliseconds, as the Server-Timing header has them."""
    return ", ".join(f"{name};dur={value:.3f}" for name, value in timings_ms.items())


def problem_response(
    problem: ProblemDocument, *, headers: Mapping[str, str] | None = None
) -> Response:
    """An RFC 9457 response, which names the request that is being answered."""
    if (request_id := REQUEST_ID.get()) is not None:
        problem = problem.model_copy(update={"instance": REQUEST_URN + request_id})
    return Response(
        json.dumps(problem.body(), ensure_ascii=False),
        status_code=problem.status,
        headers=dict(headers or {}),
        media_type=MEDIA_TYPE,
    )
