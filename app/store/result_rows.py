"""What a job measures row by row: recorded as it comes, so that an ended run is gone on with."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from app.errors import StoreUnavailable
from app.store import job_rows
from app.store.database import Database
from app.store.job import Job
from app.store.tables import jobs, result_rows

WRITE_S = 1.0
"""Shortest time between two writes of one run's rows: each costs a synchronised transaction."""

AWAY_S = 20.0
"""Pause after rows could not be written: each try may wait for the database, and the run with it,
whose deadline goes on."""

Data = Mapping[str, Any]


def page(
    database: Database, job_id: str, *, after: int | None = None, limit: int
) -> tuple[list[dict[str, Any]], int | None]:
    """A job's rows with a number above ``after``, in order, and from where to go on: None at the
    end of those that are there."""
    query = select(result_rows).where(result_rows.c.job_id == job_id).limit(limit + 1)
    if after is not None:
        query = query.where(result_rows.c.number > after)
    with database.read() as connection:
        found = connection.execute(query.order_by(result_rows.c.number)).mappings().all()
    rows = [
        {"number": row["number"], **row["data"]}
        for row in found[:limit]
        if isinstance(row["data"], dict)  # a damaged one is left out, and measured again
    ]
    return rows, found[limit - 1]["number"] if len(found) > limit else None


class RunRows:
    """The rows of one run of a job. For its thread alone.

    Those that the database can't take yet are held, and written with the run's end.
    """

    def __init__(self, database: Database, job: Job) -> None:
        self._database = database
        self._job = job
        self._basis = ""
        self._held: dict[int, Data] = {}
        self._next_s = time.monotonic() + WRITE_S

    def begin(self, basis: str) -> dict[int, Data]:
        """The rows that earlier runs recorded on the same ``basis``, by number; others are dropped.
        Raises StoreUnavailable."""
        self._basis = basis
        table, job_id = result_rows, self._job.id
        mine = table.c.job_id == job_id
        with self._database.write() as connection:
            if job_rows.lock_run(connection, self._job) is None:
                return {}
            connection.execute(delete(table).where(mine, table.c.basis != basis))
            found = connection.execute(select(table.c.number, table.c.data).where(mine))
            return {number: data for number, data in found if isinstance(data, dict)}

    def add(self, number: int, data: Data) -> None:
        """A further row, in the database by the run's end at the latest."""
        self._held[number] = data
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + WRITE_S
        try:
            with self._database.write() as connection:
                if job_rows.lock_run(connection, self._job) is not None:
                    self.write(connection)
        except StoreUnavailable:
            self._next_s = time.monotonic() + AWAY_S
            return
        self._held.clear()

    def write(self, connection: Connection) -> None:
        """Write what is held within a transaction that has the run locked. A row that was written
        before, by a transaction whose end nobody heard of, is replaced.

        A run that got further than those that were lost shows that it is not the job that ends
        them: they count no more.
        """
        if not self._held:
            return
        table, job_id = result_rows, self._job.id
        again = table.c.number.in_(list(self._held))
        connection.execute(delete(table).where(table.c.job_id == job_id, again))
        values = [
            {"job_id": job_id, "number": number, "basis": self._basis, "data": dict(data)}
            for number, data in self._held.items()
        ]
        connection.execute(insert(table), values)
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(losses=0))
