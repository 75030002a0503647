"""The audit's lines in the log: a kernel that a job is about to launch, and how its run ended.

The database has a row for each run beside them (``app.store.launches``); a line is written before
the launch that it tells of, whatever becomes of the process and the service.
"""

from __future__ import annotations

import logging
from typing import Any

from app.store.job import Job

log = logging.getLogger("app.launches")


class Audit:
    """The lines of one run."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.kernels: list[str] = []
        """Those that the run has launched, each once, in order."""

    def launching(self, kernel_id: str) -> None:
        """A line for a kernel's first launch: the others of the run are checks and repetitions of
        it on operands of the same shape."""
        if kernel_id not in self.kernels:
            self.kernels.append(kernel_id)
            log.info("kernel", extra={**self._whose(), "kernel_id": kernel_id})

    def ended(self, ended: Job, gpu_seconds: float) -> None:
        """A line for the run."""
        outcome = {"status": ended.status, "reason": ended.reason}
        counts = {"kernels": len(self.kernels), "gpu_seconds": round(gpu_seconds, 3)}
        log.info("launch", extra={**self._whose(), **outcome, **counts})

    def _whose(self) -> dict[str, Any]:
        job = self._job
        return {
            "job_id": job.id,
            "attempt": job.attempts,
            "key_id": job.key_id or None,
            "gpu": job.gpu,
        }
