"""The service: create_app puts guards, routes and the things that live with it together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app import __version__
from app.answer_cache import AnswerCache
from app.answering import Answering
from app.answers import warm
from app.api import errors
from app.api.guards import BodyGuard, CallerGuard
from app.api.kept import KeptAnswers
from app.api.routes import answers, batch, devices, docs, health, verifications
from app.host import detect_host
from app.jobs import Job, JobQueue, Outcome
from app.metrics import Metrics, MetricsMiddleware
from app.problem_documents import ProblemDocument
from app.services import Services
from app.settings import Settings
from app.solver_pool import SolverPool
from app.verification import run_verification
from kernels.process import Worker

STOP_S = 5.0
"""How long a running verification may go on once the service stops."""


def create_app(
    settings: Settings,
    *,
    verify: Callable[[Job, float, Worker], Outcome] = run_verification,
    initialise: Callable[[], Any] = warm,
) -> FastAPI:
    """The ASGI application.

    ``verify`` runs one verification with a deadline in seconds, in a process that stays warm
    until a kernel hangs or faults in it; ``initialise`` warms a solver
    process (sent by its import path).
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
        gpu_worker = Worker()
        jobs = JobQueue(
            lambda job: verify(job, settings.verify_deadline_s, gpu_worker),
            waiting=settings.verifications_waiting,
            kept=settings.verifications_kept,
            on_end=lambda job: metrics.verifications.labels(job.status, job.reason or "").inc(),
        )
        cache = AnswerCache(settings.answer_cache_bytes)
        app.state.services = Services(
            settings,
            await asyncio.to_thread(detect_host),
            pool,
            jobs,
            metrics,
            Answering(pool, cache, metrics),
            # One process is left to single questions, where there is more than one.
            asyncio.Semaphore(max(1, settings.workers - 1)),
        )
        metrics.gauge("solver_processes", "Warm solver processes", lambda: pool.workers)
        metrics.gauge("solver_restarts", "Solver processes replaced", lambda: pool.restarts)
        metrics.gauge("questions_waiting", "Questions without a process", lambda: pool.waiting)
        metrics.gauge("answer_cache_bytes", "Memory of answers kept", lambda: cache.size)
        metrics.gauge("answer_cache_answers", "Answers kept", lambda: len(cache))
        metrics.gauge("verifications_waiting", "Verifications in the queue", lambda: jobs.waiting)
        try:
            yield
        finally:
            await asyncio.to_thread(jobs.stop, STOP_S)
            await asyncio.to_thread(gpu_worker.close)
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
    for module in (answers, batch, verifications, devices, health, docs):
        app.include_router(module.router)
    errors.install(app)
    # The last added stands first; none may come between the kept answers and the routes.
    app.add_middleware(KeptAnswers)
    app.add_middleware(BodyGuard, settings=settings, limits={batch.PATH: settings.batch_body_bytes})
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
