"""The service: create_app puts guards, routes and the things that live with it together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI

from app import __version__
from app.answer_cache import AnswerCache
from app.answering import Answering
from app.answers import warm
from app.api import errors
from app.api.access import AccessTable
from app.api.documents import openapi, statuses
from app.api.guards import BodyGuard, CallerGuard
from app.api.head import HeadAsGet
from app.api.kept import KeptAnswers
from app.api.key_guard import KeyGuard
from app.api.observe import RequestObserver
from app.api.routes import (
    advice,
    answers,
    batch,
    calibrations,
    devices,
    docs,
    health,
    kernels,
    launches,
    page,
    sweeps,
    verifications,
)
from app.event_streams import EventStreams
from app.gpu_queue import GpuQueue
from app.gpus import Gpus
from app.host import host_of, log_cache, log_host
from app.key_ring import KeyRing
from app.learning import Learning, conditions_of
from app.metrics import Metrics, nan_if_none
from app.pruning import keep_pruned
from app.runners import RUNNERS
from app.services import Services
from app.settings import Settings
from app.solver_pool import SolverPool
from app.store.database import Database
from app.store.jobs import JobStore
from app.store.keys import KeyStore
from app.store.launches import prune as prune_launches
from app.store.measurements import MeasurementStore
from app.telemetry import telemetry
from app.turn import Runner
from kernels.drift import Drift, drift_of
from kernels.worker import device_facts
from solver.errors import UnusableProfile

log = logging.getLogger(__name__)


def create_app(
    settings: Settings,
    database: Database,
    *,
    runners: Mapping[str, Runner] = RUNNERS,
    initialise: Callable[[], Any] = warm,
    warm_gpu: Callable[[], Any] = device_facts,
) -> FastAPI:
    """The ASGI application.

    ``database`` is open and held by the caller, who closes it afterwards. ``runners`` run jobs,
    by kind, in a process for each GPU that stays warm until a kernel hangs or faults in it;
    ``warm_gpu`` has such a process reach its GPU, ``initialise`` warms a solver process (both sent
    by their import path).
    """
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
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
        jobs = JobStore(
            database, waiting=settings.verifications_waiting, kept=settings.verifications_kept
        )
        gpus = await asyncio.to_thread(Gpus, settings.gpus)
        host = host_of(gpus.first)
        log_host(host, len(gpus), gpus.why_absent)
        await asyncio.to_thread(log_cache)
        learning = Learning(
            MeasurementStore(database), await asyncio.to_thread(conditions_of, host)
        )
        await asyncio.to_thread(learning.load)
        gpu = GpuQueue(
            jobs,
            runners,
            find_gpus=[partial(gpus.uuid, place) for place in range(len(gpus))],
            held=database.held,
            deadline_s=settings.verify_deadline_s,
            on_end=metrics.count_job,
            on_run=metrics.count_run,
            learn=learning.learn_from,
            warm=warm_gpu,
            pin=gpus.several,
        )
        streams = EventStreams(jobs, settings.event_streams)
        cache = AnswerCache(settings.answer_cache_bytes)
        app.state.services = Services(
            settings=settings,
            host=host,
            pool=pool,
            database=database,
            jobs=jobs,
            gpus=gpus,
            gpu=gpu,
            streams=streams,
            metrics=metrics,
            keys=keys,
            learning=learning,
            answering=Answering(pool, cache, metrics, learning.winners),
            # One process is left to single questions, where there is more than one.
            batches=asyncio.Semaphore(max(1, settings.workers - 1)),
        )
        gpu.start()
        pruning = asyncio.create_task(
            keep_pruned(
                {
                    "launches": partial(prune_launches, database, settings.launches_kept),
                    "measurements": partial(learning.prune, settings.measurements_kept),
                },
                database.held,
            )
        )

        def drift() -> Drift:
            try:
                return learning.drift()
            except UnusableProfile:  # a file that is no profile: whoever asks a question is told
                return drift_of(())

        metrics.gauge("solver_processes", "Warm solver processes", lambda: pool.workers)
        metrics.gauge("solver_restarts", "Solver processes replaced", lambda: pool.restarts)
        metrics.gauge("questions_waiting", "Questions without a process", lambda: pool.waiting)
        metrics.gauge("answer_cache_bytes", "Memory of answers kept", lambda: cache.size)
        metrics.gauge("answer_cache_answers", "Answers kept", lambda: len(cache))
        metrics.gauge("verifications_waiting", "Jobs in the queue", jobs.waiting)
        metrics.gauge(
            "drift_ratio",
            "Median of measured over predicted time of picks verified last; NaN for too few",
            lambda: nan_if_none(drift().ratio),
        )
        metrics.gauge(
            "drift_found",
            "1 where that is beyond what the model is off by itself",
            lambda: nan_if_none(drift().found),
        )
        metrics.expect_gpus(len(gpus))
        metrics.gpu_gauge(
            "gpu_present",
            "1 where the driver reports the GPU now",
            lambda place: float(gpus.find(place) is not None),
        )
        metrics.gpu_gauge(
            "gpu_worker_failures",
            "Starts and runs of the GPU's process that failed one after another",
            lambda place: gpu.lanes[place].failures,
        )
        metrics.gauge("event_streams", "Clients that follow a job's events", lambda: streams.open)
        try:
            yield
        finally:
            pruning.cancel()
            await asyncio.to_thread(gpu.stop, settings.stop_deadline_s)
            await pool.stop()
            keys.close()

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
    jobs_of = (verifications, sweeps, calibrations)
    asked = (answers, advice, batch, kernels)
    for module in (*asked, *jobs_of, launches, devices, health, docs, page):
        app.include_router(module.router)
    errors.install(app)
    # The last added stands first; none may come between the kept answers and the routes.
    app.add_middleware(KeptAnswers)
    app.add_middleware(HeadAsGet)
    limits = {
        batch.PATH: settings.batch_body_bytes,
        advice.PATH: settings.advise_body_bytes,
    }
    app.add_middleware(BodyGuard, settings=settings, limits=limits)
    app.add_middleware(KeyGuard, settings=settings)
    app.add_middleware(CallerGuard, settings=settings)
    table = AccessTable(app.routes, opened=["/metrics"] if settings.metrics_open else [])
    metrics.expect_requests(
        (method, entry.path, status)
        for entry in table.entries
        for method in entry.methods - {"HEAD"}
        for status in statuses(entry, settings)
    )
    app.add_middleware(
        RequestObserver, table=table, metrics=metrics, access_log=settings.access_log
    )
    app.openapi = lambda: openapi(app, table, settings)  # type: ignore[method-assign]
    return app
