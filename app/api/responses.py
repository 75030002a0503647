"""JSON out: answers with their timings beside them, errors as problem documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import Response

from app.logs import REQUEST_ID
from app.problem_documents import MEDIA_TYPE, REQUEST_URN, ProblemDocument


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
        headers["Server-Timing"] = ", ".join(
            f"{name};dur={value:.3f}" for name, value in timings_ms.items()
        )
    return Response(
        json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")),
        status_code=status,
        headers=headers,
        media_type="application/json",
    )


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
