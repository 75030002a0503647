"""Jobs whose rows are of no use to this program, after an upgrade or by damage: each fails alone.

Without that, one of them would end every look at the queue, and no other job would be begun.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select, update

from app.schemas.faults import shown
from app.store import ANONYMOUS, job_rows
from app.store.database import is_defect
from app.store.job import PRIORITIES, UNREADABLE, Job, Outcome, now
from app.store.tables import jobs

log = logging.getLogger(__name__)

Kind = type | tuple[type, ...]

COLUMNS: dict[str, tuple[Kind, Callable[[], Any]]] = {
    "kind": (str, lambda: "unknown"),
    "priority": (int, lambda: PRIORITIES["normal"]),
    "request": (dict, dict),
    "result": ((dict, type(None)), lambda: None),
    "attempts": (int, lambda: 0),
    "losses": (int, lambda: 0),
    "key_id": (str, lambda: ANONYMOUS),
    "created_at": (datetime, now),
    "started_at": ((datetime, type(None)), lambda: None),
    "finished_at": ((datetime, type(None)), lambda: None),
}
"""Columns whose values could be of no use: what each must be, and what takes the place of one that
is not, so that its job can be shown as failed."""


def check(job: Job) -> Job:
    """The job, where every value is what it must be; else ValueError."""
    for name in COLUMNS:
        _check(name, getattr(job, name))
    return job


def give_up(connection: Connection, job_id: str, error: Exception) -> Job:
    """Fail a job that waits or runs, and that ``error`` came of.

    Its reason is ``unreadable`` where values of its row are of no use: the result names them, and
    they are blank from then on. Otherwise ``internal_error``, and the log has the error.
    """
    faults = _faults(connection, job_id)
    if faults:
        words = "; ".join(f"{name}: {why}" for name, why in faults.items())
        log.error("job %s can't be read and fails: %s", job_id, words)
        details = f"what the database has of the job can't be read: {words}"
        outcome = Outcome("failed", UNREADABLE, {"details": details})
        blank = {name: COLUMNS[name][1]() for name in faults}
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(blank))
    else:
        log.error("job %s can't be gone on with and fails", job_id, exc_info=error)
        outcome = Outcome("failed", "internal_error", {})
    row = connection.execute(select(jobs).where(jobs.c.id == job_id)).mappings().one()
    job = job_rows.job_of(row)
    if job.status == "running":
        try:
            with connection.begin_nested():
                return job_rows.finish_run(connection, job, outcome, 0.0)
        except Exception as defect:  # its audit row may be what is wrong
            if not is_defect(defect):
                raise
    return job_rows.end(connection, job, outcome.status, outcome.reason, outcome.result or None)


def _faults(connection: Connection, job_id: str) -> dict[str, str]:
    """The columns of a job's row that are of no use, and why."""
    faults = {}
    for name in COLUMNS:
        query = select(jobs.c[name]).where(jobs.c.id == job_id)
        try:
            _check(name, connection.execute(query).scalar_one())
        except Exception as error:  # whatever a value's decoding raises
            if not is_defect(error):
                raise
            faults[name] = str(error) or type(error).__name__
    return faults


def _check(name: str, value: Any) -> None:
    kind, _ = COLUMNS[name]
    if not isinstance(value, kind):
        names = " or ".join(
            each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,))
        )
        raise ValueError(f"must be of type {names}, is {shown(value)}")
    if name == "priority" and value not in PRIORITIES.values():
        raise ValueError(f"must be one of {tuple(PRIORITIES.values())}, is {value}")
