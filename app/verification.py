"""Verifications on this machine's GPU, for the service and the command line."""

from __future__ import annotations

from app.jobs import Job, Outcome
from kernels.errors import KernelError
from kernels.process import Worker
from kernels.verify import VerificationRequest, verify
from solver.config import Config
from solver.problem import Problem


def verify_here(
    problem: Problem,
    config: Config,
    predicted_us: float,
    *,
    deadline_s: float,
    worker: Worker | None = None,
) -> Outcome:
    """Compile, launch, check and time one kernel in a process of its own, next to cuBLAS.

    The process is ``worker``'s, which stays warm for the next, or a fresh one. Raises
    GpuAbsent and NoKernelFamily where nothing can be launched.
    """
    request = VerificationRequest(problem, config, predicted_us=predicted_us)
    result = verify(request, deadline_s=deadline_s, worker=worker)
    reason = None if result.reason is None else str(result.reason)
    return Outcome(result.status, reason, result.to_dict())


def run_verification(job: Job, deadline_s: float, worker: Worker | None = None) -> Outcome:
    """The work of one job; a GPU that went away since it was queued is a reason."""
    try:
        return verify_here(
            job.problem, job.config, job.predicted_us, deadline_s=deadline_s, worker=worker
        )
    except KernelError as error:
        return Outcome("failed", "environment", {"details": str(error)})
