"""What the service counts, in Prometheus' text format under /metrics."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
SOURCES = ("hit", "joined", "miss")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


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
        self._answers = Counter(
            "warpwright_answers",
            "Answers given: kept (hit), solved with another's (joined) or solved (miss)",
            ("source",),
            registry=self.registry,
        )
        self._answers_by = {source: self._answers.labels(source) for source in SOURCES}
        self.verifications = Counter(
            "warpwright_verifications",
            "Verifications ended",
            ("status", "reason"),
            registry=self.registry,
        )

    def count_answer(self, source: str) -> None:
        """One of SOURCES."""
        self._answers_by[source].inc()

    def gauge(self, name: str, words: str, value: Callable[[], float]) -> None:
        """A number that is read when /metrics is."""
        Gauge(f"warpwright_{name}", words, registry=self.registry).set_function(value)

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)


class MetricsMiddleware:
    """Counts and times every HTTP request under its route's template."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        # Looked up once: prometheus_client's own look-up of labels costs more than counting.
        # Bounded, as labels are: by the methods, the routes and the statuses there are.
        self._counters: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

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
            counter, histogram = self._counters_of(method, route, status)
            counter.inc()
            histogram.observe(time.perf_counter() - begun)

    def _counters_of(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        labels = (method, route, status)
        if labels not in self._counters:
            self._counters[labels] = (
                self._metrics.requests.labels(*labels),
                self._metrics.request_seconds.labels(route),
            )
        return self._counters[labels]
