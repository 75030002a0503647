"""GET /v1/devices."""

from __future__ import annotations

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from app import answers
from app.api.access import needs
from app.api.deps import ServicesDep
from app.api.responses import json_response
from app.drift import host_drift
from app.keys import Scope
from app.schemas.service import Devices

router = APIRouter(prefix="/v1", tags=["devices"])


@router.get("/devices", response_model=Devices, summary="Device profiles, and the host's GPU")
@needs(Scope.OPTIMIZE)
async def devices(services: ServicesDep) -> Response:
    """Limits and constants, each with its unit, its provenance and its source. `drift` of the host
    holds the last verifications against its profile as it is now.
    """
    gpu = services.host.gpu
    host = None
    if gpu is not None:
        drift = await run_in_threadpool(host_drift, services.host, services.jobs)
        host = {
            "name": gpu.name,
            "profile": services.host.profile,
            "drift": None if drift is None else drift.to_dict(),
        }
    return json_response({"host": host, "devices": answers.devices()})
