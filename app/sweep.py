"""Sweeps of given problems on this machine's GPU, as jobs of the service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.store.job import UNREADABLE, Job, Outcome
from kernels.errors import GpuLost, KernelError
from kernels.problem_sweep import sweep_problems
from kernels.verify import Reason, require_gpu
from solver.config import Config
from solver.errors import InvalidInput, UnusableProfile
from solver.problem import Problem
from solver.problem_sweep import ProblemSweep

if TYPE_CHECKING:
    from app.turn import Turn

KIND = "sweep"
ROWS_FAILED = "rows_failed"
REASONS = (ROWS_FAILED,)
"""Why a sweep failed that came to its end."""


def request_of(sweep: ProblemSweep) -> dict[str, Any]:
    """What a job of this kind keeps of its question."""
    return {
        "problems": [problem.to_dict() for problem in sweep.problems],
        "configs": [config.to_dict() for config in sweep.configs],
        "top_k": sweep.top_k,
        "covering": sweep.covering,
        "cache": sweep.cache,
        "seed": sweep.seed,
    }


def run_sweep(job: Job, turn: Turn) -> Outcome:
    """The work of one job. It passes where every row was measured; the result has a summary either
    way, and the rows are recorded as they come."""
    try:
        sweep = _asked(job.request)
    except (InvalidInput, AttributeError, KeyError, TypeError, ValueError) as error:
        return Outcome("failed", UNREADABLE, {"details": f"the request can't be read: {error}"})

    def tell(step: str, done: int, total: int) -> None:
        turn.on_report({"stage": step, "done": done, "total": total})

    try:
        gpu, device = require_gpu(turn.gpu)
        found = sweep_problems(sweep, gpu, device, turn.worker, turn.rows, tell)
    except GpuLost as error:
        return Outcome("failed", Reason.WORKER_LOST, {"details": str(error)})
    except (KernelError, UnusableProfile) as error:
        return Outcome("failed", Reason.ENVIRONMENT, {"details": str(error)})
    if found.failed:
        details = f"{found.failed} of {found.record['planned']} rows failed: they say why"
        return Outcome("failed", ROWS_FAILED, {**found.record, "details": details})
    return Outcome("passed", None, found.record)


def _asked(kept: Mapping[str, Any]) -> ProblemSweep:
    """What ``request_of`` kept."""
    return ProblemSweep(
        tuple(Problem(**problem) for problem in kept["problems"]),
        tuple(Config.from_dict(config) for config in kept["configs"]),
        top_k=kept["top_k"],
        covering=kept["covering"],
        cache=kept["cache"],
        seed=kept["seed"],
    )
