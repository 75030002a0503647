"""What the service counts, in Prometheus' text format under /metrics."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import StoreUnavailable
from app.store.job import Job

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
FRACTIONS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)


class Metrics:
    """One registry for each application, so that two in a process don't share counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "warpwright_http_requests",
            "Requests answered",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "warpwright_http_request_seconds",
            "Time from a request's first byte to its answer's last",
            ("route",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.stage_seconds = Histogram(
            "warpwright_solve_seconds",
            "Time of each stage of an answer",
            ("stage",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.verifications = Counter(
            "warpwright_verifications",
            "Verifications ended",
            ("status", "reason"),
            registry=self.registry,
        )

        self.gpu_seconds = Counter(
            "warpwright_gpu_seconds",
            "Time that jobs had the GPU for",
            registry=self.registry,
        )

        self.prediction_error = Histogram(
            "warpwright_prediction_error",
            "Predicted time of a verified kernel against the measured, as a fraction, unsigned",
            buckets=FRACTIONS,
            registry=self.registry,
        )

    def count_job(self, job: Job, gpu_seconds: float) -> None:
        """A job that ended."""
        self.verifications.labels(job.status, job.reason or "").inc()
        self.gpu_seconds.inc(gpu_seconds)
        error = (job.result or {}).get("prediction_error")
        if error is not None:
            self.prediction_error.observe(abs(error))

    def gauge(self, name: str, words: str, value: Callable[[], float]) -> None:
        """A number that is read when /metrics is; NaN while the database can't be asked."""

        def read() -> float:
            try:
                return value()
            except StoreUnavailable:
                return math.nan

        Gauge(f"warpwright_{name}", words, registry=self.registry).set_function(read)

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)


class MetricsMiddleware:
    """Counts and times every HTTP request under its route's template."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        begun = time.perf_counter()

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            # A template, never the path itself: labels must stay few.
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.requests.labels(method, route, status).inc()
            self._metrics.request_seconds.labels(route).observe(time.perf_counter() - begun)
