"""The OpenAPI document's account of errors: which statuses a route gives, in which shape."""

from __future__ import annotations

from typing import Any

from app.problem_documents import KINDS, MEDIA_TYPE

SCHEMA = {"$ref": "#/components/schemas/ProblemDocument"}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that may answer with these problem documents.

    403, 405, 421 and 500 are every route's and need not be named.
    """
    return {status: _response(status) for status in (*statuses, 403, 421, 500)}


def _response(status: int) -> dict[str, Any]:
    titles = " or: ".join(kind.title for kind in KINDS if kind.status == status)
    return {"description": titles, "content": {MEDIA_TYPE: {"schema": SCHEMA}}}
