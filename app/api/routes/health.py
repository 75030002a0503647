"""/healthz, /readyz and /metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from app.api.access import PUBLIC, needs
from app.api.deps import ServicesDep
from app.api.responses import json_response
from app.keys import Scope
from app.schemas.service import Health, Ready
from app.services import Services

BLOCKED = ("failing", "stopped")
"""States of the GPU's queue in which no verification is begun, whatever its GPU does."""

BEST_FIRST = ("running", "idle", "restarting", "lost", "absent", "failing", "stopped")

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
    """200 once a solver process is warm, the database is held and the GPUs' queue is open, with or
    without a GPU; `gpu` names the first one there is now or is `absent`, `gpus` has each. A worker
    that is `restarting`, or whose GPU is `lost`, is no reason for 503: questions are answered, and
    jobs wait or run on the others.
    """
    database = services.database.standing()
    ready = services.pool.ready and database == "held" and services.gpu.state not in BLOCKED
    gpus = [_gpu(services, place) for place in range(len(services.gpus))]
    there = [gpu["name"] for gpu in gpus if gpu["name"] is not None]
    body = {
        "status": "ready" if ready else "not_ready",
        "gpu": there[0] if there else "absent",
        "gpu_worker": min((gpu["worker"] for gpu in gpus), key=BEST_FIRST.index),
        "gpu_worker_failures": services.gpu.failures,
        "gpus": gpus,
        "database": database,
        "solver_processes": services.pool.workers,
    }
    return json_response(body, status=200 if ready else 503)


def _gpu(services: Services, place: int) -> dict[str, Any]:
    """A GPU and its worker as they stand now."""
    gpu, lane = services.gpus.find(place), services.gpu.lanes[place]
    worker = lane.state
    if gpu is None and worker not in BLOCKED:
        worker = "lost" if services.gpus.seen(place) else "absent"
    return {
        "gpu": place,
        "name": None if gpu is None else gpu.name,
        "uuid": None if gpu is None else gpu.uuid,
        "worker": worker,
        "failures": lane.failures,
    }


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
