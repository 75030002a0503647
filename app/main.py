"""The service: create_app puts guards, routes and the things that live with it together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app import __version__
from app.answers import warm
from app.api import errors
from app.api.guards import BodyGuard, CallerGuard
from app.api.routes import answers, devices, docs, health, verifications
from app.event_streams import EventStreams
from app.gpu_queue import GpuQueue, Runner
from app.host import detect_host, gpu_uuid
from app.metrics import Metrics, MetricsMiddleware
from app.problem_documents import ProblemDocument
from app.runners import RUNNERS
from app.services import Services
from app.settings import Settings
from app.solver_pool import SolverPool
from app.store.database import Database
from app.store.jobs import JobStore


def create_app(
    settings: Settings,
    database: Database,
    *,
    runners: Mapping[str, Runner] = RUNNERS,
    initialise: Callable[[], Any] = warm,
) -> FastAPI:
    """The ASGI application.

    ``database`` is open and held by the caller, who closes it afterwards. ``runners`` run jobs,
    by kind, in a process that stays warm until a kernel hangs or faults in it; ``initialise``
    warms a solver process (sent by its import path).
    """
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        pool = SolverPool(
            initialise,
            workers=settings.workers,
            waiting=settings.questions_waiting,
            deadline_s=settings.solve_deadline_s,
        )
        pool.start()
        jobs = JobStore(
            database, waiting=settings.verifications_waiting, kept=settings.verifications_kept
        )
        gpu = GpuQueue(
            jobs,
            runners,
            find_gpu=gpu_uuid,
            held=database.held,
            deadline_s=settings.verify_deadline_s,
            on_end=metrics.count_job,
        )
        host = await asyncio.to_thread(detect_host)
        streams = EventStreams(jobs, settings.event_streams)
        app.state.services = Services(settings, host, pool, database, jobs, gpu, streams, metrics)
        gpu.start()
        metrics.gauge("solver_processes", "Warm solver processes", lambda: pool.workers)
        metrics.gauge("solver_restarts", "Solver processes replaced", lambda: pool.restarts)
        metrics.gauge("questions_waiting", "Questions without a process", lambda: pool.waiting)
        metrics.gauge("verifications_waiting", "Verifications in the queue", jobs.waiting)
        metrics.gauge("event_streams", "Clients that follow a job's events", lambda: streams.open)
        try:
            yield
        finally:
            await asyncio.to_thread(gpu.stop, settings.stop_deadline_s)
            await pool.stop()

    app = FastAPI(
        title="Warpwright",
        version=__version__,
        summary="The best configuration of a warp-specialised GPU kernel, proved and verified.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.settings = settings
    for module in (answers, verifications, devices, health, docs):
        app.include_router(module.router)
    errors.install(app)
    # The last added stands first.
    app.add_middleware(BodyGuard, settings=settings)
    app.add_middleware(CallerGuard, settings=settings)
    app.add_middleware(MetricsMiddleware, metrics=metrics)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, with problem documents in place of its own validation errors."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        schemas = schema["components"]["schemas"]
        own = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= own.pop("$defs", {}) | {"ProblemDocument": own}
        for path in schema["paths"].values():
            for operation in path.values():
                if "HTTPValidationError" in str(operation["responses"].get("422", "")):
                    del operation["responses"]["422"]
        schemas.pop("HTTPValidationError", None)
        schemas.pop("ValidationError", None)
        app.openapi_schema = schema
    return app.openapi_schema
