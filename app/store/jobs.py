"""Jobs as their callers see them: handed in, listed, followed, cancelled."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, and_, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from app.errors import AlreadyEnded, NotFound, QueueFull
from app.schemas.faults import shown
from app.store import ANONYMOUS, job_rows, unreadable
from app.store.database import Database, is_defect
from app.store.job import PRIORITIES, Job, JobEvent, Outcome, now
from app.store.result_rows import RunRows
from app.store.tables import job_events, jobs, launches
from solver.errors import InvalidInput

PAGE_MAX = 100
RECENT = 20
"""Launches whose mean time says when a full queue has room again."""
RETRY_AFTER_S = (1, 600)


class JobStore:
    """The jobs of one database. Each method is one transaction and may raise StoreUnavailable.

    ``waiting`` bounds the queue, ``kept`` how many finished jobs stay readable. An ``owner`` is
    the key whose jobs are meant, None everyone's. Safe to use from several threads.
    """

    def __init__(self, database: Database, *, waiting: int, kept: int) -> None:
        self._database = database
        self._waiting = waiting
        self._kept = kept

    def submit(
        self,
        kind: str,
        request: Mapping[str, Any],
        *,
        sha256: str,
        priority: str = "normal",
        owner: str = ANONYMOUS,
        idempotency_key: str | None = None,
        request_id: str | None = None,
    ) -> tuple[Job, bool]:
        """Queue a job, committed when this returns; False where ``idempotency_key`` has one.

        ``sha256`` is of the caller's question, of which ``request`` was made. Raises QueueFull,
        and InvalidInput for a key that another question has.
        """
        values = {
            "id": uuid.uuid4().hex,
            "kind": kind,
            "status": "queued",
            "priority": PRIORITIES[priority],
            "request": dict(request),
            "attempts": 0,
            "losses": 0,
            "cancel_requested": False,
            "key_id": owner,
            "idempotency_key": idempotency_key,
            "request_sha256": sha256,
            "request_id": request_id,
            "created_at": now(),
        }
        try:
            with self._database.write() as connection:
                self._require_room(connection)
                row = connection.execute(insert(jobs).values(values).returning(jobs)).mappings()
                job = job_rows.job_of(row.one())
                job_rows.append_event(connection, job.id, "status", job_rows.standing(job))
                return job, True
        except IntegrityError:  # the same key, from a request that ran beside this one
            earlier = self.repeated(owner, idempotency_key, sha256)
            if earlier is None:
                raise
            return earlier, False

    def repeated(self, owner: str, idempotency_key: str | None, sha256: str) -> Job | None:
        """The job that a request of this key made, None where there was none.

        A key lasts as long as its job is kept. Raises InvalidInput for another question's.
        """
        if idempotency_key is None:
            return None
        query = select(jobs).where(
            jobs.c.key_id == owner, jobs.c.idempotency_key == idempotency_key
        )
        with self._database.read() as connection:
            row = connection.execute(query).mappings().one_or_none()
        if row is None:
            return None
        job = job_rows.job_of(row)
        if job.request_sha256 != sha256:
            raise InvalidInput(
                "Idempotency-Key", f"{shown(idempotency_key)} was used for another request"
            )
        return job

    def get(self, job_id: str, owner: str | None = None, kind: str | None = None) -> Job:
        """The job as it stands; NotFound for one that never was, was dropped, is another's or of
        another kind."""
        with self._database.read() as connection:
            return self._find(connection, job_id, owner, kind)

    def page(
        self,
        *,
        owner: str | None = None,
        kind: str | None = None,
        status: str | None = None,
        after: int | None = None,
        limit: int = PAGE_MAX,
    ) -> tuple[list[Job], int | None]:
        """The newest jobs accepted before the one of number ``after``, and from where to go on:
        None at the end.
        """
        query = select(jobs).order_by(jobs.c.number.desc()).limit(limit + 1)
        for column, value in ((jobs.c.key_id, owner), (jobs.c.kind, kind), (jobs.c.status, status)):
            if value is not None:
                query = query.where(column == value)
        if after is not None:
            query = query.where(jobs.c.number < after)
        with self._database.read() as connection:
            found = [job_rows.job_of(row) for row in connection.execute(query).mappings()]
        return found[:limit], found[limit - 1].number if len(found) > limit else None

    def events(self, job_id: str, after: int = 0) -> list[JobEvent]:
        """What happened to a job after its event ``after``."""
        query = (
            select(job_events)
            .where(job_events.c.job_id == job_id, job_events.c.number > after)
            .order_by(job_events.c.number)
        )
        with self._database.read() as connection:
            return [job_rows.event_of(row) for row in connection.execute(query).mappings()]

    def cancel(self, job_id: str, owner: str | None = None, kind: str | None = None) -> Job:
        """Cancel what is queued; of what runs, note it for whoever runs it. Raises AlreadyEnded."""
        with self._database.write() as connection:
            job = self._find(connection, job_id, owner, kind, lock=True)
            if job.ended is not None:
                raise AlreadyEnded(f"{kind or 'job'} {job_id} has ended: {job.status}")
            if job.status == "queued":
                job_rows.end(connection, job, "cancelled", "requested")
                job_rows.forget(connection, self._kept)
            else:
                where = jobs.c.id == job_id
                connection.execute(update(jobs).where(where).values(cancel_requested=True))
            return self._find(connection, job_id, owner, kind)

    def is_cancelled(self, job: Job) -> bool:
        """Whether somebody wants a job that runs to be cancelled."""
        query = select(jobs.c.cancel_requested).where(jobs.c.id == job.id)
        with self._database.read() as connection:
            return bool(connection.execute(query).scalar_one_or_none())

    def claim(self, gpu: str) -> Job | None:
        """Take the queued job of the highest priority, the one accepted first among those. One that
        can't be read comes back failed."""
        first = (
            select(jobs.c.id)
            .where(jobs.c.status == "queued")
            .order_by(jobs.c.priority.desc(), jobs.c.number)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        with self._database.write() as connection:
            job_id = connection.execute(first).scalar_one_or_none()
            if job_id is None:
                return None
            taken = {"status": "running", "gpu": gpu, "started_at": now()}

            def take() -> Job:
                attempts = jobs.c.attempts + 1
                return unreadable.check(
                    job_rows.change(connection, job_id, attempts=attempts, **taken)
                )

            return self._unless_broken(connection, job_id, take)

    def append(self, job: Job, data: Mapping[str, Any]) -> None:
        """Note how far a run is; nothing where it is no longer the job's run."""
        with self._database.write() as connection:
            if job_rows.lock_run(connection, job) is not None:
                job_rows.append_event(connection, job.id, "progress", data)

    def rows_of(self, job: Job) -> RunRows:
        """Where a run's rows are recorded as they come."""
        return RunRows(self._database, job)

    def finish(
        self,
        job: Job,
        outcome: Outcome,
        gpu_seconds: float,
        rows: RunRows | None = None,
        kernels: Sequence[str] = (),
    ) -> Job | None:
        """Record how a run ended, once: None where that was recorded before.

        Result, last rows, audit row and last event come together or not at all. A job that was to
        be cancelled is, whatever came out.
        """
        with self._database.write() as connection:
            run = _end_of_run(connection, job, rows)
            if run is None:
                return None
            ended = job_rows.finish_run(connection, run, outcome, gpu_seconds, kernels)
            job_rows.forget(connection, self._kept)
            return ended

    def give_back(
        self,
        job: Job,
        *,
        lost: bool,
        gpu_seconds: float,
        rows: RunRows | None = None,
        kernels: Sequence[str] = (),
    ) -> Job | None:
        """Queue a job again whose run was ended from outside; see ``job_rows.give_back``. None
        where that was recorded before.
        """
        with self._database.write() as connection:
            run = _end_of_run(connection, job, rows)
            if run is None:
                return None
            return job_rows.give_back(
                connection, run, lost=lost, gpu_seconds=gpu_seconds, kernels=kernels
            )

    def recover(self, running: frozenset[str] = frozenset()) -> list[Job]:
        """Give back every run that a service left behind: all but those of the jobs that are
        ``running``. One that can't be read, or recorded, fails."""
        left_behind = and_(jobs.c.status == "running", jobs.c.id.not_in(running))
        query = select(jobs.c.id).where(left_behind).with_for_update()
        with self._database.write() as connection:
            left = connection.execute(query).scalars().all()
            return [self._recover(connection, job_id) for job_id in left]

    def _recover(self, connection: Connection, job_id: str) -> Job:
        def back() -> Job:
            run = unreadable.check(self._find(connection, job_id, None))
            return job_rows.give_back(connection, run, lost=True, gpu_seconds=0.0)

        return self._unless_broken(connection, job_id, back)

    def _unless_broken(self, connection: Connection, job_id: str, step: Callable[[], Job]) -> Job:
        """A step of a job; one that can't be taken for what the job's own row has fails the job."""
        try:
            with connection.begin_nested():
                return step()
        except Exception as error:
            if not is_defect(error):
                raise
            job = unreadable.give_up(connection, job_id, error)
            job_rows.forget(connection, self._kept)
            return job

    def waiting(self) -> int:
        """Jobs that wait for a GPU."""
        with self._database.read() as connection:
            return self._count_waiting(connection)

    def _find(
        self,
        connection: Connection,
        job_id: str,
        owner: str | None,
        kind: str | None = None,
        lock: bool = False,
    ) -> Job:
        row: RowMapping | None = None
        if job_rows.ID.fullmatch(job_id):
            query = select(jobs).where(jobs.c.id == job_id)
            query = query.with_for_update() if lock else query
            row = connection.execute(query).mappings().one_or_none()
        if (
            row is None
            or owner not in (None, row["key_id"])
            or (kind is not None and row["kind"] != kind)
        ):
            raise NotFound(
                f"there is no {kind or 'job'} {shown(job_id)}; the last {self._kept} are kept"
            )
        return job_rows.job_of(row)

    def _require_room(self, connection: Connection) -> None:
        if not self._database.is_sqlite:  # where two at once could both take the last place
            connection.execute(text("LOCK TABLE jobs IN SHARE ROW EXCLUSIVE MODE"))
        waiting = self._count_waiting(connection)
        if waiting >= self._waiting:
            recent = select(launches.c.gpu_seconds).order_by(launches.c.number.desc()).limit(RECENT)
            times_s = connection.execute(recent).scalars().all()
            mean_s = sum(times_s) / len(times_s) if times_s else 0.0
            low, high = RETRY_AFTER_S
            raise QueueFull(
                f"{waiting} jobs wait for the GPU; at most {self._waiting} may",
                min(high, max(low, math.ceil(mean_s))),
            )

    def _count_waiting(self, connection: Connection) -> int:
        query = select(func.count()).where(jobs.c.status == "queued")
        return int(connection.execute(query).scalar_one())


def _end_of_run(connection: Connection, job: Job, rows: RunRows | None) -> Job | None:
    """A run that ends, locked, its last rows written; None where its end was recorded before."""
    run = job_rows.lock_run(connection, job)
    if run is None or rows is None:
        return run
    rows.write(connection)
    return job_rows.lock_run(connection, job)


def question_sha256(kind: str, question: Mapping[str, Any]) -> str:
    """What identifies a question, whatever the order of its members."""
    text = json.dumps([kind, question], sort_keys=True, separators=(",", ":"))
    return job_rows.sha256_of(text)
