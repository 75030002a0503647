"""The OpenAPI document: FastAPI's, with what every route has in common stated once, here: who may
ask, which problem documents come back, which headers.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.api.access import AccessTable
from app.problem_documents import KINDS, MEDIA_TYPE, ProblemDocument
from app.settings import Settings

SCHEMA = {"$ref": "#/components/schemas/ProblemDocument"}
KEY_SCHEME = "key"


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that may answer with these problem documents.

    Those that every route gives (403, 405, 421, 500), and those of its key (401, 429, 503), need
    not be named.
    """
    return {status: _response(status) for status in statuses}


def openapi(app: FastAPI, table: AccessTable, settings: Settings) -> dict[str, Any]:
    """The document, made once."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
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
                "description": "An API key, as `warpwright keys create` prints it",
            }
        }
        for path, operations in schema["paths"].items():
            for method, operation in operations.items():
                _complete(operation, table.scope_of(method.upper(), path), settings)
        app.openapi_schema = schema
    return app.openapi_schema


def _complete(operation: dict[str, Any], scope: str | None, settings: Settings) -> None:
    """Add to an operation what its route need not say itself."""
    responses = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422", "")):
        del responses["422"]
    common = [403, 421, 500]
    if scope is not None:
        required: list[dict[str, list[str]]] = [{KEY_SCHEME: [scope]}]
        operation["security"] = required if settings.keys_required else [{}, *required]
        common += [401, 429, 503]
    for status in common:
        responses.setdefault(str(status), _response(status))
    operation["responses"] = dict(sorted(responses.items()))


def _response(status: int) -> dict[str, Any]:
    titles = " or: ".join(kind.title for kind in KINDS if kind.status == status)
    return {"description": titles, "content": {MEDIA_TYPE: {"schema": SCHEMA}}}
