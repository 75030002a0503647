"""Turns every exception of a request into a problem document."""

from __future__ import annotations

import logging
from typing import get_type_hints

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException

from app.api.access import methods_of
from app.api.responses import problem_response
from app.errors import Unavailable
from app.problem_documents import (
    BAD_METHOD,
    KINDS,
    NOT_FOUND,
    document,
    from_exception,
    invalid_request,
)
from solver.errors import WarpwrightError
from solver.limits import shortened

log = logging.getLogger(__name__)


def install(app: FastAPI) -> None:
    """Register the handlers."""
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(WarpwrightError, _on_expected)


def error_response(error: Exception) -> Response:
    """The answer to an exception; what nobody expected is logged and says nothing of its inside."""
    problem = from_exception(error)
    if problem.status == 500:
        log.error("the request failed", exc_info=error)
    retry_after_s = error.retry_after_s if isinstance(error, Unavailable) else None
    headers = None if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return problem_response(problem, headers=headers)


async def _on_expected(request: Request, error: Exception) -> Response:
    return error_response(error)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = f"{request.method} {shortened(request.url.path)}"
    match error.status_code:
        case 404:
            problem = document(NOT_FOUND, f"{where}: no such route; /docs lists them")
        case 405:
            # Starlette's own names the methods of the first route at this address alone.
            allowed = _methods_at(request)
            problem = document(BAD_METHOD, f"{where}: this route takes {allowed}")
            return problem_response(problem, headers={"Allow": allowed})
        case status:
            kind = next((kind for kind in KINDS if kind.status == status), None)
            if kind is None:
                return error_response(error)
            problem = document(kind, str(error.detail))
    return problem_response(problem, headers=error.headers)


def _methods_at(request: Request) -> str:
    """The methods of all routes at a request's address."""
    routes = iter_route_contexts(request.app.routes)
    path = request.scope["path"]
    at_it = [route for route in routes if route.path_regex and route.path_regex.match(path)]
    return ", ".join(sorted({method for route in at_it for method in methods_of(route)}))


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = error.errors()
    # FastAPI's paths begin with where in the request the value was, `body` or `query`; a route's
    # parameter of that name has the model.
    model = get_type_hints(request.scope["endpoint"])[faults[0]["loc"][0]]
    faults = [{**fault, "loc": fault["loc"][1:]} for fault in faults]
    return problem_response(invalid_request(faults, model))
