"""Reading the audit: which key had the GPU launch what, when, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import RowMapping, and_, delete, func, select

from app.store.database import Database
from app.store.job import LaunchOutcome, now
from app.store.tables import launches

RECENT = timedelta(days=2)
PRUNED_AT_ONCE = 5000
"""Rows dropped in one transaction: others wait for it."""


@dataclass(frozen=True, slots=True)
class LaunchFilter:
    """Which launches; None stands for any."""

    key_id: str | None = None
    job_id: str | None = None
    outcome: LaunchOutcome | None = None
    since: datetime | None = None
    until: datetime | None = None


def gpu_seconds(database: Database, key_id: str, since: datetime) -> float:
    """GPU seconds of a key's launches that began at ``since`` or later."""
    total = func.coalesce(func.sum(launches.c.gpu_seconds), 0.0)
    with database.read() as connection:
        used = connection.execute(
            select(total).where(launches.c.key_id == key_id, launches.c.at >= since)
        ).scalar_one()
    return float(used)


def prune(database: Database, kept: int, *, limit: int = PRUNED_AT_ONCE) -> int:
    """Drop the first lines beyond the ``kept`` last, at most ``limit`` of them; how many were.

    None of the last RECENT days goes, which quotas count, by the wall clock: where that jumps
    ahead, no more goes than is beyond ``kept``.
    """
    table = launches
    last = select(func.max(table.c.number)).scalar_subquery()
    old = and_(table.c.number <= last - kept, table.c.at < now() - RECENT)
    first = select(table.c.number).where(old).order_by(table.c.number).limit(limit)
    with database.write() as connection:
        return connection.execute(delete(table).where(table.c.number.in_(first))).rowcount


def page(
    database: Database, wanted: LaunchFilter, *, limit: int, before: int | None = None
) -> tuple[list[RowMapping], int | None]:
    """At most ``limit`` launches, the latest first, of those with a number below ``before``, and
    from where to go on: None at the end."""
    query = select(launches).order_by(launches.c.number.desc()).limit(limit + 1)
    for name in ("key_id", "job_id", "outcome"):
        value = getattr(wanted, name)
        if value is not None:
            query = query.where(launches.c[name] == value)
    if wanted.since is not None:
        query = query.where(launches.c.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(launches.c.at < wanted.until)
    if before is not None:
        query = query.where(launches.c.number < before)
    with database.read() as connection:
        found = connection.execute(query).mappings().all()
    return list(found[:limit]), found[limit - 1]["number"] if len(found) > limit else None
