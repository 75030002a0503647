"""POST /v1/advise."""

from __future__ import annotations

import time

from fastapi import APIRouter, Response

from app.advice import work_of
from app.api.access import needs
from app.api.bodies import ParsedRoute
from app.api.deps import ServicesDep
from app.api.documents import problems
from app.api.responses import json_response
from app.keys import Scope
from app.problem_documents import UNAVAILABLE
from app.schemas.advice import AdviseAnswer, AdviseRequest

PATH = "/v1/advise"

router = APIRouter(tags=["answers"], route_class=ParsedRoute)


@router.post(
    PATH,
    response_model=AdviseAnswer,
    responses=problems(UNAVAILABLE),
    summary="Whether to divide a kernel's warps into producers and consumers",
)
@needs(Scope.OPTIMIZE)
async def advise(body: AdviseRequest, services: ServicesDep) -> Response:
    """For a problem, for figures of any kernel, or for a launch that Nsight Compute profiled: does
    it wait on loads, are there stages, do buffers leave enough warps. All reasons against, the
    expected gain with its range, and what to try first. The body is a pure function of the request
    and the device profile.
    """
    begun = time.perf_counter()
    function, arguments = work_of(body, services.host.device)
    reply = await services.pool.ask(function, *arguments)
    total_ms = (time.perf_counter() - begun) * 1e3
    return json_response(
        reply.value,
        timings_ms={"advise": reply.solve_ms, "queue": reply.queue_ms, "total": total_ms},
    )
