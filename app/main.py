"""The service: create_app puts guards, routes and the things that live with it together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from app import __version__
from app.answer_cache import AnswerCache
from app.answering import Answering
from app.answers import warm
from app.api import errors
from app.api.access import AccessTable
from app.api.documents import openapi
from app.api.guards import BodyGuard, CallerGuard
from app.api.kept import KeptAnswers
from app.api.key_guard import KeyGuard
from app.api.observe import RequestObserver
from app.api.routes import answers, batch, devices, docs, health, launches, verifications
from app.host import detect_host, log_host
from app.jobs import Job, JobQueue, Outcome
from app.key_ring import KeyRing
from app.metrics import Metrics
from app.services import Services
from app.settings import Settings
from app.solver_pool import SolverPool
from app.store.database import Database
from app.store.keys import KeyStore
from app.telemetry import telemetry
from app.verification import run_verification
from kernels.process import Worker

log = logging.getLogger(__name__)

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
        database = Database(settings.database)
        await asyncio.to_thread(database.open)
        key_store = KeyStore(database)
        if settings.keys_required and not await asyncio.to_thread(key_store.known):
            log.warning("keys are needed and there is none: `warpwright keys create` makes one")
        keys = KeyRing(key_store.known)
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
            on_end=lambda job: metrics.verification_ended(
                job.status, job.reason, job.predicted_us, (job.result or {}).get("median_us")
            ),
        )
        host = await asyncio.to_thread(detect_host)
        log_host(host)
        cache = AnswerCache(settings.answer_cache_bytes)
        app.state.services = Services(
            settings,
            host,
            pool,
            jobs,
            metrics,
            database,
            keys,
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
            keys.close()
            database.close()

    app = FastAPI(
        title="Warpwright",
        version=__version__,
        summary="The best configuration of a warp-specialised GPU kernel, proved and verified.",
        lifespan=lifespan,
        telemetry=telemetry(),
        openapi_url=None,  # the route of docs.py has it, with the scope it needs
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.settings = settings
    for module in (answers, batch, verifications, launches, devices, health, docs):
        app.include_router(module.router)
    errors.install(app)
    # The last added stands first; none may come between the kept answers and the routes.
    app.add_middleware(KeptAnswers)
    app.add_middleware(BodyGuard, settings=settings, limits={batch.PATH: settings.batch_body_bytes})
    app.add_middleware(KeyGuard, settings=settings)
    app.add_middleware(CallerGuard, settings=settings)
    table = AccessTable(app.routes, opened=["/metrics"] if settings.metrics_open else [])
    app.add_middleware(
        RequestObserver, table=table, metrics=metrics, access_log=settings.access_log
    )
    app.openapi = lambda: openapi(app, table, settings)  # type: ignore[method-assign]
    return app
