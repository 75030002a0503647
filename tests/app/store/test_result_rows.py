"""Rows of a run's result: kept as they come, gone on with, never another run's."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import func, select, text

import app.store.result_rows
from app.errors import StoreUnavailable
from app.store.database import Database
from app.store.job import Job, Outcome
from app.store.jobs import JobStore
from app.store.result_rows import page
from app.store.tables import result_rows

PASSED = Outcome("passed", None, {})
BASIS, OTHER = "a" * 64, "b" * 64


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.store.result_rows, "WRITE_S", 0.0)
    monkeypatch.setattr(app.store.result_rows, "AWAY_S", 0.0)


def begin(store: JobStore, fresh: bool = True) -> Job:
    if fresh:
        store.submit("sweep", {}, sha256="0" * 64)
    job = store.claim("GPU-0")
    assert job is not None
    return job


def data(number: int) -> dict[str, Any]:
    return {"median_us": number + 0.5, "config": {"stages": number}}


def numbers(database: Database, job: Job) -> list[int]:
    return [row["number"] for row in page(database, job.id, limit=100)[0]]


def test_rows_are_there_as_they_come_and_are_paged(store: JobStore, database: Database) -> None:
    job = begin(store)
    rows = store.rows_of(job)
    assert rows.begin(BASIS) == {}
    for number in (4, 0, 2):
        rows.add(number, data(number))
    first, following = page(database, job.id, limit=2)
    assert first == [{"number": 0, **data(0)}, {"number": 2, **data(2)}]
    assert following == 2
    assert page(database, job.id, after=2, limit=2) == ([{"number": 4, **data(4)}], None)


def test_the_next_run_goes_on_with_rows_of_its_own_basis_alone(
    store: JobStore, database: Database
) -> None:
    job = begin(store)
    rows = store.rows_of(job)
    rows.begin(BASIS)
    rows.add(0, data(0))
    store.give_back(job, lost=False, gpu_seconds=1.0, rows=rows)
    job = begin(store, fresh=False)
    again = store.rows_of(job)
    assert again.begin(BASIS) == {0: data(0)}
    again.add(1, data(1))
    assert numbers(database, job) == [0, 1]
    assert again.begin(OTHER) == {}
    assert numbers(database, job) == []


def test_a_run_that_was_given_up_writes_nothing(store: JobStore, database: Database) -> None:
    old = begin(store)
    rows = store.rows_of(old)
    rows.begin(BASIS)
    store.give_back(old, lost=True, gpu_seconds=1.0)
    job = begin(store, fresh=False)
    rows.add(0, data(0))
    assert rows.begin(OTHER) == {}
    assert store.finish(old, PASSED, 1.0, rows) is None
    assert numbers(database, job) == []


def test_what_the_database_could_not_take_comes_with_the_runs_end(
    store: JobStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = begin(store)
    rows = store.rows_of(job)
    rows.begin(BASIS)
    rows.add(0, data(0))

    @contextmanager
    def away() -> Any:
        raise StoreUnavailable("the database can't be used: locked")
        yield

    with monkeypatch.context() as patch:
        patch.setattr(database, "write", away)
        rows.add(1, data(1))
    assert numbers(database, job) == [0]
    store.finish(job, PASSED, 1.0, rows)
    assert numbers(database, job) == [0, 1]


def test_a_row_whose_commit_nobody_heard_of_is_there_once(
    store: JobStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = begin(store)
    rows = store.rows_of(job)
    rows.begin(BASIS)
    write = database.write

    @contextmanager
    def unheard() -> Any:
        with write() as connection:
            yield connection
        raise StoreUnavailable("the connection was lost")

    with monkeypatch.context() as patch:
        patch.setattr(database, "write", unheard)
        rows.add(0, data(0))
    assert numbers(database, job) == [0]
    rows.add(1, data(1))
    assert numbers(database, job) == [0, 1]


def test_a_run_that_got_further_forgets_what_was_lost_before(store: JobStore) -> None:
    job = begin(store)
    for number in range(6):  # twice as often as a job may be lost
        rows = store.rows_of(job)
        rows.begin(BASIS)
        rows.add(number, data(number))
        left = store.give_back(job, lost=True, gpu_seconds=1.0, rows=rows)
        assert left is not None
        assert (left.status, left.losses) == ("queued", 1)
        job = begin(store, fresh=False)
    for _ in range(2):
        left = store.give_back(job, lost=True, gpu_seconds=1.0, rows=store.rows_of(job))
        assert left is not None
        job = begin(store, fresh=False) if left.status == "queued" else job
    assert (left.status, left.reason) == ("failed", "worker_lost")


def test_rows_go_with_their_job(store: JobStore, database: Database) -> None:
    for _ in range(4):  # one more than are kept
        job = begin(store)
        rows = store.rows_of(job)
        rows.begin(BASIS)
        rows.add(0, data(0))
        store.finish(job, PASSED, 1.0, rows)
    with database.read() as connection:
        assert connection.execute(select(func.count()).select_from(result_rows)).scalar_one() == 3


def test_a_damaged_row_is_left_out_and_measured_again(store: JobStore, database: Database) -> None:
    job = begin(store)
    rows = store.rows_of(job)
    rows.begin(BASIS)
    for number in range(3):
        rows.add(number, data(number))
    with database.write() as connection:
        connection.execute(text("UPDATE result_rows SET data = '[1]' WHERE number = 1"))
    found, following = page(database, job.id, limit=2)
    assert ([row["number"] for row in found], following) == ([0], 1)
    assert sorted(rows.begin(BASIS)) == [0, 2]
    rows.add(1, data(1))
    assert numbers(database, job) == [0, 1, 2]
