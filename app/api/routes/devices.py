"""GET /v1/devices and GET /v1/drift."""

from __future__ import annotations

from fastapi import APIRouter, Response

from app import answers
from app.api.access import needs
from app.api.deps import ServicesDep
from app.api.documents import problems
from app.api.responses import json_response
from app.keys import Scope
from app.problem_documents import UNAVAILABLE
from app.schemas.service import Devices, DriftShape

router = APIRouter(prefix="/v1", tags=["devices"])


@router.get("/devices", response_model=Devices, summary="Device profiles, and the host's GPU")
@needs(Scope.OPTIMIZE)
async def devices(services: ServicesDep) -> Response:
    """Limits and constants, each with its unit, its provenance and its source."""
    gpu = services.host.gpu
    host = None if gpu is None else {"name": gpu.name, "profile": services.host.profile}
    return json_response({"host": host, "devices": answers.devices()})


@router.get(
    "/drift",
    response_model=DriftShape,
    responses=problems(UNAVAILABLE),
    summary="Has the host's GPU moved away from its profile",
)
@needs(Scope.OPTIMIZE)
def drift(services: ServicesDep) -> Response:
    """Measured over predicted time of the picks verified last, each problem once, on this device,
    driver, compiler and kernel sources: the median and its interval. `found` where the whole
    interval is further from 1 than `band`; `advice` then says what to do."""
    learning = services.learning
    return json_response(
        {
            "device": learning.winners.device,
            "measurements_revision": learning.winners.revision,
            **learning.drift().to_dict(),
        }
    )
