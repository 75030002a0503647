"""Verification jobs: a bounded store in memory and one thread that works through them.

One at a time, because two kernels on a GPU would time each other. Jobs end with the
process; finished ones are dropped oldest first.
"""

from __future__ import annotations

import logging
import queue
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from app.errors import Busy, NotFound
from app.schemas.faults import shown
from solver.config import Config
from solver.problem import Problem

log = logging.getLogger(__name__)

FINISHED = ("passed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Job:
    """One verification: what is asked, where it stands, and what came out."""

    id: str
    problem: Problem
    config: Config
    predicted_us: float
    created_at: str
    status: str = "queued"
    reason: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    result: dict[str, Any] | None = field(default=None, hash=False)

    def to_dict(self) -> dict[str, Any]:
        """The job as the HTTP interface shows it."""
        return {
            "id": self.id,
            "status": self.status,
            "reason": self.reason,
            "problem": self.problem.to_dict(),
            "config": self.config.to_dict(),
            "predicted_us": self.predicted_us,
            "created_at": self.created_at,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "result": self.result,
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a verification ended: ``passed`` or ``failed`` with a reason, and its record."""

    status: str
    reason: str | None
    result: dict[str, Any]


class JobQueue:
    """Runs ``verify(job)`` for each job in order, in a thread of its own."""

    def __init__(
        self,
        verify: Callable[[Job], Outcome],
        *,
        waiting: int,
        kept: int,
        on_end: Callable[[Job], None] = lambda job: None,
    ) -> None:
        self._verify = verify
        self._kept = kept
        self._on_end = on_end
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._queue: queue.Queue[str | None] = queue.Queue(waiting)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="verifications", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Jobs that wait for the GPU."""
        return self._queue.qsize()

    def submit(self, problem: Problem, config: Config, predicted_us: float) -> Job:
        """Queue a verification; Busy where too many wait already."""
        job = Job(uuid.uuid4().hex, problem, config, predicted_us, _now())
        with self._lock:
            try:
                self._queue.put_nowait(job.id)
            except queue.Full:
                raise Busy(
                    f"{self._queue.maxsize} verifications are waiting and no more may"
                ) from None
            self._jobs[job.id] = job
            self._forget()
        return job

    def get(self, job_id: str) -> Job:
        """The job as it stands; NotFound for one that never was or was dropped."""
        with self._lock:
            if job_id not in self._jobs:
                raise NotFound(
                    f"there is no verification {shown(job_id)}; the last {self._kept} are kept"
                )
            return self._jobs[job_id]

    def stop(self, timeout_s: float) -> None:
        """Cancel what waits and give the running job ``timeout_s`` to end."""
        self._stopping.set()
        with self._lock:
            waiting = [job.id for job in self._jobs.values() if job.status == "queued"]
        for job_id in waiting:
            self._update(job_id, status="cancelled", reason="stopped", finished_at=_now())
        with suppress(queue.Full):  # a thread behind a full queue sees the flag at its next job
            self._queue.put_nowait(None)
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while (job_id := self._queue.get()) is not None and not self._stopping.is_set():
            job = self._update(job_id, status="running", started_at=_now())
            try:
                outcome = self._verify(job)
            except Exception:
                log.exception("verification %s broke off", job_id)
                outcome = Outcome("failed", "internal_error", {})
            self._on_end(
                self._update(
                    job_id,
                    status=outcome.status,
                    reason=outcome.reason,
                    result=outcome.result or None,
                    finished_at=_now(),
                )
            )

    def _update(self, job_id: str, **changes: Any) -> Job:
        with self._lock:
            self._jobs[job_id] = replace(self._jobs[job_id], **changes)
            return self._jobs[job_id]

    def _forget(self) -> None:
        finished = [job.id for job in self._jobs.values() if job.status in FINISHED]
        for job_id in finished[: max(0, len(finished) - self._kept)]:
            del self._jobs[job_id]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
