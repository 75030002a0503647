"""The OpenAPI document: FastAPI's, with what routes have in common stated once, here: who may ask,
which problem documents come back.

It names no response that an operation can't give: a route says which kinds of problems it has of
its own (``problems``), what it shares with others follows from its scope and its body.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.api.access import AccessTable, Entry
from app.api.guards import checks_hosts
from app.problem_documents import (
    BAD_HOST,
    BAD_ORIGIN,
    DEFECT,
    INVALID,
    KINDS,
    MALFORMED,
    MEDIA_TYPE,
    NO_KEY,
    NO_SCOPE,
    NOT_JSON,
    RATE_LIMITED,
    SLOW_BODY,
    TOO_LARGE,
    UNAVAILABLE,
    ProblemDocument,
    ProblemKind,
)
from app.schemas.queries import without_null
from app.settings import Settings

SHAPE = {"$ref": "#/components/schemas/ProblemDocument"}
KEY_SCHEME = "key"
OF_EVERY_ROUTE = (BAD_ORIGIN, DEFECT)
OF_A_SCOPE = (NO_KEY, NO_SCOPE, RATE_LIMITED, UNAVAILABLE)
"""What a route with a scope may answer for the key; UNAVAILABLE where keys can't be read."""

OF_A_BODY = (MALFORMED, SLOW_BODY, TOO_LARGE, NOT_JSON, INVALID)

WORDS = (
    "Units are part of the fields' names. Unknown fields and parameters are refused. Errors are "
    "problem documents (RFC 9457). What takes GET takes HEAD. What is no whole request, and a "
    "connection too many, gets 400, 408, 431 or 503 in plain text, whatever its address."
)


def problems(*kinds: ProblemKind) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that may answer with these kinds of problems, beside those of
    every route, of a route with a scope, and of a route with a body.
    """
    statuses = dict.fromkeys(kind.status for kind in kinds)
    return {status: _response(k for k in kinds if k.status == status) for status in statuses}


def openapi(app: FastAPI, table: AccessTable, settings: Settings) -> dict[str, Any]:
    """The document, made once."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            description=WORDS,
            routes=app.routes,
        )
        components = schema.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        own = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= own.pop("$defs", {}) | {"ProblemDocument": own}
        schemas.pop("HTTPValidationError", None)
        schemas.pop("ValidationError", None)
        components["securitySchemes"] = {
            KEY_SCHEME: {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "ww_<id>_<secret>",
                "description": "An API key, as `warpwright keys create` prints it. One of scope "
                "`admin` has every other",
            }
        }
        for path, operations in schema["paths"].items():
            for method, operation in operations.items():
                _complete(operation, table.scope_of(method.upper(), path), settings)
        app.openapi_schema = schema
    return app.openapi_schema


def _complete(operation: dict[str, Any], scope: str | None, settings: Settings) -> None:
    """Add to an operation what its route need not say itself."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "query" and "schema" in parameter:
            parameter["schema"] = without_null(parameter["schema"])
    responses = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422", "")):
        del responses["422"]
    if scope is not None:
        required: list[dict[str, list[str]]] = [{KEY_SCHEME: [str(scope)]}]
        operation["security"] = required if settings.keys_required else [{}, *required]
    kinds = _shared(scope, "requestBody" in operation, settings)
    for status in dict.fromkeys(str(kind.status) for kind in kinds):
        named = kinds_of(responses.get(status, {}))
        added = [kind for kind in kinds if str(kind.status) == status]
        if named or status not in responses:
            responses[status] = _response([*named, *added])
    operation["responses"] = dict(sorted(responses.items()))


def statuses(entry: Entry, settings: Settings) -> frozenset[int]:
    """The statuses that the document names for a route, without making the document."""
    shared = _shared(entry.scope, entry.has_body, settings)
    return entry.statuses | {kind.status for kind in shared}


def _shared(scope: str | None, has_body: bool, settings: Settings) -> list[ProblemKind]:
    """The kinds of problems that a route need not name: those of all that are like it."""
    kinds = [*OF_EVERY_ROUTE]
    if checks_hosts(settings):
        kinds.append(BAD_HOST)
    if has_body:
        kinds += OF_A_BODY
    if scope is not None:
        kinds += OF_A_SCOPE
    return kinds


def kinds_of(response: dict[str, Any]) -> list[ProblemKind]:
    """The kinds of problems that a documented response may be."""
    schema = response.get("content", {}).get(MEDIA_TYPE, {}).get("schema", {})
    types = schema.get("properties", {}).get("type", {}).get("enum", ())
    return [kind for kind in KINDS if kind.type in types]


def _response(kinds: Iterable[ProblemKind]) -> dict[str, Any]:
    given = set(kinds)
    named = [kind for kind in KINDS if kind in given]
    types = {"type": {"enum": [kind.type for kind in named]}}
    return {
        "description": " or: ".join(kind.title for kind in named),
        "content": {MEDIA_TYPE: {"schema": {**SHAPE, "properties": types}}},
    }
