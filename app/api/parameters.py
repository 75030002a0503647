"""An address's parameters, read as strictly as a body: once each, integers as JSON writes them."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, Request

from app.schemas import questions
from app.schemas.queries import query_parameters, read_query


def query_of(model: type[questions.Request]) -> Any:
    """The dependency that reads a route's query string as ``model``."""

    async def read(request: Request) -> questions.Request:
        return read_query(request.scope["query_string"], model)

    return Depends(read)


def documented(model: type[questions.Request]) -> dict[str, Any]:
    """``openapi_extra`` of such a route."""
    return {"parameters": query_parameters(model)}
