"""A runner that stands in for launches where there is no GPU: its work sleeps, hangs or crashes
as its job's problem says, and writes down when it ran.

It does as the real one: a worker process, the GPU's lock, a deadline, reports.
"""

from __future__ import annotations

from app.store.job import Job, Outcome
from app.turn import Turn
from kernels.gpu_lock import call_alone
from kernels.host import HostGpu
from kernels.process import OutcomeKind
from kernels.verify import failure_of
from tests.app.faults.planted_work import FIRST_N, work

GPUS = tuple(
    HostGpu("NVIDIA H200", f"GPU-planted-{place}", "580", 140 << 30, (9, 0), 1980, ())
    for place in range(4)
)
GPU = GPUS[0]


def run_planted(job: Job, turn: Turn) -> Outcome:
    """Runs ``work`` as a verification runs its launch."""
    problem = job.request["problem"]
    outcome = call_alone(
        turn.worker,
        turn.gpu or GPU.uuid,
        work,
        (job.id, problem["m"], problem["n"]),
        turn.deadline_s,
        turn.on_report,
    )
    if outcome.kind is OutcomeKind.OK:
        return Outcome("passed", None, {"attempt": job.attempts})
    reason, details = failure_of(outcome)
    return Outcome("failed", str(reason), {"details": details})


def run_planted_sweep(job: Job, turn: Turn) -> Outcome:
    """Runs ``work`` ``top_k`` times for ``covering`` ms each, as a sweep measures its rows: those
    alone that no earlier run recorded."""
    known = turn.rows.begin("planted")
    for number in range(job.request["top_k"]):
        if number in known:
            continue
        turn.on_report({"stage": "measure", "done": number, "total": job.request["top_k"]})
        name, sleeps = f"{job.id}/{number}", FIRST_N + job.request["covering"]
        arguments = (name, 64, sleeps)
        outcome = call_alone(turn.worker, turn.gpu or GPU.uuid, work, arguments, turn.deadline_s)
        if outcome.kind is not OutcomeKind.OK:
            reason, details = failure_of(outcome)
            return Outcome("failed", str(reason), {"details": details})
        turn.rows.add(number, {"attempt": job.attempts})
    return Outcome("passed", None, {"attempt": job.attempts})


PLANTED = {"verification": run_planted, "sweep": run_planted_sweep}
