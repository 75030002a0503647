"""What the service counts, in Prometheus' text format under /metrics.

Every series whose labels are known is there from the start, at 0: of one that appears with its
first event, ``rate`` and ``increase`` never see that event.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from app.calibration import KIND as CALIBRATION
from app.errors import StoreUnavailable
from app.store.job import UNREADABLE, Job
from app.sweep import KIND as SWEEP
from app.sweep import REASONS as SWEEP_REASONS
from app.verification import KIND as VERIFICATION
from kernels.calibration_rules import REASONS as REFUSED
from kernels.verify import Reason

# They would stand beside every series, with the time at which this process made it.
disable_created_metrics()  # type: ignore[no-untyped-call]

SOURCES = ("hit", "joined", "miss")
STAGES = ("pick", "proof")
PROOFS = ("optimal", "timeout", "not_requested")
REFUSALS = (
    "missing",
    "malformed",
    "unknown",
    "wrong",
    "expired",
    "revoked",
    "scope",
    "requests_per_minute",
    "gpu_seconds_per_day",
)


class Drop(StrEnum):
    """Why a connection was refused or ended."""

    TOO_MANY = "too_many"
    LARGE_HEAD = "large_head"
    SLOW_HEAD = "slow_head"
    SLOW_BODY = "slow_body"
    UNREAD = "unread"


OF_A_RUN = (Reason.WORKER_LOST, Reason.ENVIRONMENT, Reason.INTERNAL_ERROR, UNREADABLE)
"""Why any job may fail."""


def _endings(*reasons: str) -> tuple[tuple[str, str], ...]:
    """(status, reason) of jobs that may fail for these."""
    failed = tuple(("failed", str(reason)) for reason in reasons)
    return ("passed", ""), *failed, ("cancelled", "requested")


ENDINGS = {
    VERIFICATION: _endings(*Reason, UNREADABLE),
    CALIBRATION: _endings(*REFUSED, *OF_A_RUN),
    SWEEP: _endings(*SWEEP_REASONS, *OF_A_RUN),
}
"""How jobs of each kind may end."""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
ERRORS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)


def nan_if_none(value: float | None) -> float:
    """A gauge's value of something that may not be known."""
    return math.nan if value is None else float(value)


class Metrics:
    """One registry for each application, so that two in a process don't share counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # memory, processor time, open files
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
        # Looked up once: prometheus_client's own look-up of labels costs more than counting.
        # Bounded, as labels are: by the methods, the routes and the statuses there are.
        self._counted: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self.stage_seconds = Histogram(
            "warpwright_solve_seconds",
            "Time of each stage of an answer",
            ("stage",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.proofs = Counter(
            "warpwright_proofs",
            "Solved questions by what their proof came to",
            ("status",),
            registry=self.registry,
        )
        self.refused = Counter(
            "warpwright_refused_requests",
            "Requests refused for their key",
            ("reason",),
            registry=self.registry,
        )
        self._dropped = Counter(
            "warpwright_dropped_connections",
            "Connections refused, or ended for what their callers did not send or read",
            ("reason",),
            registry=self.registry,
        )
        self._gpu_seconds = Counter(
            "warpwright_gpu_seconds",
            "Time that runs of jobs had each GPU for",
            ("gpu",),
            registry=self.registry,
        )
        self._gpus = 0
        self.prediction_error = Histogram(
            "warpwright_prediction_error",
            "|predicted / measured - 1| of verified kernels",
            buckets=ERRORS,
            registry=self.registry,
        )
        self._answers = Counter(
            "warpwright_answers",
            "Answers given: kept (hit), solved with another's (joined) or solved (miss)",
            ("source",),
            registry=self.registry,
        )
        self._answers_by = {source: self._answers.labels(source) for source in SOURCES}
        self._jobs = {
            kind: Counter(
                f"warpwright_{kind}s",
                f"{kind.capitalize()}s ended",
                ("status", "reason"),
                registry=self.registry,
            )
            for kind in ENDINGS
        }

        for stage in STAGES:
            self.stage_seconds.labels(stage)
        for status in PROOFS:
            self.proofs.labels(status)
        for reason in REFUSALS:
            self.refused.labels(reason)
        for drop in Drop:
            self._dropped.labels(drop)
        for kind, endings in ENDINGS.items():
            for ending in endings:
                self._jobs[kind].labels(*ending)

    def expect_requests(self, labels: Iterable[tuple[str, str, int]]) -> None:
        """Have series for these methods, routes and statuses before the first such request."""
        for each in labels:
            self._series(each)

    def expect_gpus(self, count: int) -> None:
        """Have series for so many GPUs, numbered from 0, before their first job."""
        self._gpus = count
        for place in range(count):
            self._gpu_seconds.labels(str(place))

    def count_run(self, place: int, gpu_seconds: float) -> None:
        """A run of a job, which had the GPU of a place for so long."""
        self._gpu_seconds.labels(str(place)).inc(gpu_seconds)

    def count_job(self, job: Job) -> None:
        """A job that ended, and how far the prediction was off where its kernel was timed."""
        counter = self._jobs.get(job.kind)
        if counter is not None:  # another version's kind
            counter.labels(job.status, job.reason or "").inc()
        error = (job.result or {}).get("prediction_error")
        if error is not None:
            self.prediction_error.observe(abs(error))

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request that was answered, under its route's template."""
        counter, histogram = self._series((method, route, status))
        counter.inc()
        histogram.observe(seconds)

    def _series(self, labels: tuple[str, str, int]) -> tuple[Counter, Histogram]:
        if labels not in self._counted:
            self._counted[labels] = (
                self.requests.labels(*labels),
                self.request_seconds.labels(labels[1]),
            )
        return self._counted[labels]

    def count_answer(self, source: str) -> None:
        """One of SOURCES."""
        self._answers_by[source].inc()

    def count_drop(self, reason: Drop) -> None:
        """A connection that was refused or ended."""
        self._dropped.labels(reason).inc()

    def gauge(self, name: str, words: str, value: Callable[[], float]) -> None:
        """A number that is read when /metrics is; NaN while the database can't be asked."""

        def read() -> float:
            try:
                return value()
            except StoreUnavailable:
                return math.nan

        Gauge(f"warpwright_{name}", words, registry=self.registry).set_function(read)

    def gpu_gauge(self, name: str, words: str, value: Callable[[int], float]) -> None:
        """A number of each GPU that is read when /metrics is."""
        gauge = Gauge(f"warpwright_{name}", words, ("gpu",), registry=self.registry)
        for place in range(self._gpus):
            gauge.labels(str(place)).set_function(partial(value, place))

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)
