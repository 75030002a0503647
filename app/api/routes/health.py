"""/healthz, /readyz and /metrics."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from app.api.access import PUBLIC, needs
from app.api.deps import ServicesDep
from app.api.responses import json_response
from app.keys import Scope
from app.schemas.service import Health, Ready

BLOCKED = ("failing", "stopped")
"""States of the GPU's queue in which no verification is begun, whatever its GPU does."""

router = APIRouter(tags=["health"])


@router.get("/healthz", response_model=Health, summary="Is the process alive")
@needs(PUBLIC)
async def healthz() -> Response:
    """Answers while the event loop runs; asks nothing of the solver."""
    return json_response({"status": "ok"})


@router.get(
    "/readyz",
    response_model=Ready,
    responses={503: {"model": Ready, "description": "Something that answers need is not there"}},
    summary="Can questions be answered",
)
@needs(PUBLIC)
def readyz(services: ServicesDep) -> Response:
    """200 once a solver process is warm, the database is held and the GPU's queue is open, with
    or without a GPU; `gpu` names it or is `absent`. A `gpu_worker` that is `restarting` is no
    reason for 503: questions are answered, and verifications wait.
    """
    database = services.database.standing()
    gpu = services.gpu.state
    ready = services.pool.ready and database == "held" and gpu not in BLOCKED
    present = services.host.gpu is not None
    body = {
        "status": "ready" if ready else "not_ready",
        "gpu": services.host.gpu_name,
        "gpu_worker": gpu if present or gpu in BLOCKED else "absent",
        "gpu_worker_failures": services.gpu.failures,
        "database": database,
        "solver_processes": services.pool.workers,
    }
    return json_response(body, status=200 if ready else 503)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "Prometheus' text format"}},
    summary="Counts and times",
)
@needs(Scope.ADMIN)
def metrics(services: ServicesDep) -> Response:
    """Requests, answers and verifications, for Prometheus."""
    return Response(services.metrics.text(), media_type=CONTENT_TYPE_LATEST)
