"""Turns every exception of a request into a problem document."""

from __future__ import annotations

import logging
from typing import get_type_hints

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app.api.responses import problem_response
from app.errors import Unavailable
from app.problem_documents import (
    BAD_METHOD,
    KINDS,
    MALFORMED,
    NOT_FOUND,
    document,
    from_exception,
    invalid,
)
from app.schemas.faults import describe, shortened
from solver.errors import WarpwrightError

log = logging.getLogger(__name__)

FAULTS_SHOWN = 32
"""Faults that one document names: a body can hold thousands."""


def install(app: FastAPI) -> None:
    """Register the handlers."""
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(WarpwrightError, _on_expected)
    app.add_exception_handler(Exception, _on_unexpected)


async def _on_expected(request: Request, error: Exception) -> Response:
    problem = from_exception(error)
    if problem.status == 500:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, Unavailable) else None
    return problem_response(problem, headers=headers)


async def _on_unexpected(request: Request, error: Exception) -> Response:
    # The server logs the traceback; the caller learns nothing of the inside.
    return problem_response(from_exception(error))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{request.method} {shortened(request.url.path)}"
    match error.status_code:
        case 404:
            problem = document(NOT_FOUND, f"{where}: no such route; /docs lists them")
        case 405:
            allowed = (error.headers or {}).get("Allow", "")
            problem = document(BAD_METHOD, f"{where}: this route takes {allowed}")
        case 400:
            problem = document(MALFORMED, "the body must be JSON and could not be read as such")
        case status:
            kind = next((kind for kind in KINDS if kind.status == status), None)
            if kind is None:
                return await _on_unexpected(request, error)
            problem = document(kind, str(error.detail))
    return problem_response(problem, headers=error.headers)


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = error.errors()
    broken = next((fault for fault in faults if fault["type"] == "json_invalid"), None)
    if broken is not None:
        reason = broken.get("ctx", {}).get("error", "it could not be read")
        return problem_response(document(MALFORMED, f"the body must be JSON: {reason}"))
    # FastAPI's paths begin with where in the request the value was, `body` or `query`; a route's
    # parameter of that name has the model.
    model = get_type_hints(request.scope["endpoint"])[faults[0]["loc"][0]]
    named = [describe({**f, "loc": f["loc"][1:]}, model) for f in faults[:FAULTS_SHOWN]]
    return problem_response(invalid(named, left_out=len(faults) - len(named)))
