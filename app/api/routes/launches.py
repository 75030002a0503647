"""GET /v1/launches: the audit."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Response

from app.api.access import needs
from app.api.deps import ServicesDep
from app.api.documents import problems
from app.api.parameters import documented, query_of
from app.api.responses import json_response
from app.keys import Scope
from app.problem_documents import INVALID, UNAVAILABLE
from app.schemas.launches import Launches, LaunchQuery
from app.store.job import written
from app.store.launches import page

router = APIRouter(prefix="/v1/launches", tags=["launches"])


@router.get(
    "",
    response_model=Launches,
    responses=problems(INVALID, UNAVAILABLE),
    openapi_extra=documented(LaunchQuery),
    summary="What was launched on the GPU, and for whom",
)
@needs(Scope.ADMIN)
async def read(
    query: Annotated[LaunchQuery, query_of(LaunchQuery)], services: ServicesDep
) -> Response:
    """A line for every run of a job, the latest first, kept when its job is forgotten: what it
    launched, for whom, and how it ended."""
    rows, following = await asyncio.to_thread(
        page, services.database, query.filter(), limit=query.limit, before=query.before
    )
    lines = [{**row, "at": written(row["at"])} for row in rows]
    return json_response({"launches": lines, "next": following})
