"""Steps of a job within a transaction: each is written here once, with its event and audit row."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, func, insert, select, update

from app.store.job import Job, JobEvent, LaunchOutcome, Outcome, now, written
from app.store.tables import job_events, jobs, launches, measurements

ID = re.compile("[0-9a-f]{32}")
LOSSES_MAX = 3
"""A job whose run was lost this often is given up: it may be what ends the service."""
DETAIL_CHARACTERS = 2000


def job_of(row: RowMapping) -> Job:
    """A job from its row."""
    return Job(**row)


def event_of(row: RowMapping) -> JobEvent:
    """An event from its row, its moment among its data; damaged ones are left out."""
    data = row["data"] if isinstance(row["data"], dict) else {}
    return JobEvent(row["number"], row["name"], {**data, "at": written(row["at"])})


def sha256_of(text: str) -> str:
    """Hexadecimal digest."""
    return hashlib.sha256(text.encode()).hexdigest()


def standing(job: Job) -> dict[str, Any]:
    """A job's state as its ``status`` events carry it."""
    return {"status": job.status, "reason": job.reason, "attempt": job.attempts}


def lock_run(connection: Connection, job: Job) -> Job | None:
    """The job as it stands, locked, where ``job``'s run is still its present one."""
    query = (
        select(jobs)
        .where(jobs.c.id == job.id, jobs.c.status == "running", jobs.c.attempts == job.attempts)
        .with_for_update()
    )
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else job_of(row)


def change(connection: Connection, job_id: str, **values: Any) -> Job:
    """A job with another status, told by an event."""
    query = update(jobs).where(jobs.c.id == job_id).values(values).returning(jobs)
    job = job_of(connection.execute(query).mappings().one())
    append_event(connection, job.id, "status", standing(job))
    return job


def append_event(connection: Connection, job_id: str, name: str, data: Mapping[str, Any]) -> None:
    """A further event; the job's row is locked by this transaction or its own."""
    last = select(func.coalesce(func.max(job_events.c.number), 0)).where(
        job_events.c.job_id == job_id
    )
    number = connection.execute(last).scalar_one() + 1
    values = {"job_id": job_id, "number": number, "name": name, "data": dict(data), "at": now()}
    connection.execute(insert(job_events).values(values))


def end(
    connection: Connection,
    job: Job,
    status: str,
    reason: str | None,
    result: dict[str, Any] | None = None,
    **more: Any,
) -> Job:
    """A job that nothing will change any more. What an earlier run, whose end was lost, measured is
    forgotten where it has not passed."""
    if status != "passed":
        connection.execute(delete(measurements).where(measurements.c.verification_id == job.id))
    more |= {"status": status, "reason": reason, "result": result, "finished_at": now()}
    last = select(func.coalesce(func.max(jobs.c.ended), 0)).scalar_subquery()
    return change(connection, job.id, ended=last + 1, **more)


def finish_run(
    connection: Connection,
    run: Job,
    outcome: Outcome,
    gpu_seconds: float,
    kernels: Sequence[str] = (),
) -> Job:
    """A run's end, with its audit row."""
    if run.cancel_requested:
        ended = end(connection, run, "cancelled", "requested")
    else:
        ended = end(connection, run, outcome.status, outcome.reason, outcome.result or None)
    detail = outcome.result.get("details") or None
    _audit(connection, run, ended.status, ended.reason, detail, gpu_seconds, kernels)
    return ended


def give_back(
    connection: Connection,
    run: Job,
    *,
    lost: bool,
    gpu_seconds: float,
    kernels: Sequence[str] = (),
) -> Job:
    """A run that was ended from outside: its job is queued again.

    ``lost`` where nobody meant that; at the LOSSES_MAX-th such run it fails, ``worker_lost``. A
    job that was to be cancelled is.
    """
    outcome: LaunchOutcome = "lost" if lost else "interrupted"
    losses = run.losses + lost
    if run.cancel_requested:
        job = end(connection, run, "cancelled", "requested")
        outcome = "cancelled"
    elif losses >= LOSSES_MAX:
        job = end(connection, run, "failed", "worker_lost", losses=losses)
        outcome = "failed"
    else:
        job = change(connection, run.id, status="queued", losses=losses, started_at=None, gpu=None)
    _audit(connection, run, outcome, job.reason, None, gpu_seconds, kernels)
    return job


def forget(connection: Connection, kept: int) -> None:
    """Drop all but the ``kept`` jobs that ended last, with their events."""
    last = select(func.max(jobs.c.ended)).scalar_subquery()
    connection.execute(delete(jobs).where(jobs.c.ended <= last - kept))


def _audit(
    connection: Connection,
    run: Job,
    outcome: str,
    reason: str | None,
    detail: str | None,
    gpu_seconds: float,
    kernels: Sequence[str],
) -> None:
    """One row for each run, whatever became of it; a second one of the same run is refused."""
    values = {
        "job_id": run.id,
        "attempt": run.attempts,
        "key_id": run.key_id,
        "at": now(),
        "gpu": run.gpu,
        "request": run.request,
        "outcome": outcome,
        "reason": reason,
        "detail": None if detail is None else detail[:DETAIL_CHARACTERS],
        "gpu_seconds": gpu_seconds,
        "request_id": run.request_id,
        "kernels": list(kernels),
    }
    connection.execute(insert(launches).values(values))
