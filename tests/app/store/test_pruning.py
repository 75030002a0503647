"""What goes of the audit and of measurements, and what stays however many there are."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert, select

from app.store.database import Database
from app.store.job import now
from app.store.launches import RECENT, prune
from app.store.measurements import MeasurementStore
from app.store.tables import launches, measurements
from solver.problem import Problem
from tests.app.store.test_measurements import HERE, measured

OLD = RECENT + timedelta(hours=1)


def launched(database: Database, *ages: timedelta) -> None:
    """A line of the audit for each, that long ago, in order."""
    rows = [
        {
            "job_id": f"{number:032}",
            "attempt": 1,
            "key_id": "",
            "at": now() - age,
            "gpu": "GPU-0",
            "request": {},
            "outcome": "passed",
            "gpu_seconds": 1.0,
        }
        for number, age in enumerate(ages)
    ]
    with database.write() as connection:
        connection.execute(insert(launches), rows)


def numbers(database: Database, table: Any) -> list[int]:
    with database.read() as connection:
        return list(connection.execute(select(table.c.number).order_by(table.c.number)).scalars())


def test_the_last_lines_of_the_audit_stay(database: Database) -> None:
    launched(database, *[OLD] * 10)
    assert prune(database, 4) == 6
    assert numbers(database, launches) == [7, 8, 9, 10]
    assert prune(database, 4) == 0


def test_what_a_quota_counts_stays_however_much_it_is(database: Database) -> None:
    launched(database, OLD, OLD, *[timedelta(hours=30)] * 8)
    assert prune(database, 1) == 2
    assert len(numbers(database, launches)) == 8


def test_a_clock_that_jumps_ahead_drops_no_more_than_is_beyond_the_number(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched(database, *[timedelta()] * 5)
    later = now() + timedelta(days=4000)
    monkeypatch.setattr("app.store.launches.now", lambda: later)
    assert prune(database, 3) == 2
    assert numbers(database, launches) == [3, 4, 5]


def test_a_transaction_drops_so_many_at_most_the_first_ones_first(database: Database) -> None:
    launched(database, *[OLD] * 10)
    assert prune(database, 2, limit=3) == 3
    assert numbers(database, launches)[0] == 4
    assert [prune(database, 2, limit=3) for _ in range(3)] == [3, 2, 0]


def test_an_empty_audit_is_let_be(database: Database) -> None:
    assert prune(database, 1) == 0
    assert MeasurementStore(database).prune(1, HERE) == 0


def test_measurements_that_answers_rest_on_stay(database: Database) -> None:
    memory = MeasurementStore(database)
    other, elsewhere = Problem(1, 512, 512), replace(HERE, driver="579")
    given: list[dict[str, Any]] = [
        {},  # 1: a race, superseded by 5
        {"problem": other},  # 2: the last race of its problem
        {"problem": other, "candidates": 1},  # 3: its last measurement
        {"conditions": elsewhere},  # 4: of another driver
        {},  # 5: the last of its problem
        {"problem": Problem(2, 512, 512)},  # 6
        {"problem": Problem(3, 512, 512)},  # 7
    ]
    for number, changes in enumerate(given):
        memory.add(measured(str(number + 1), **changes))
    races, timings = memory.races(HERE), memory.timings(HERE, 100)
    assert memory.prune(1, HERE) == 2
    assert numbers(database, measurements) == [2, 3, 5, 6, 7]
    assert (memory.races(HERE), memory.timings(HERE, 100)) == (races, timings)
    assert memory.prune(1, HERE) == 0
    assert memory.prune(2, elsewhere) == 3  # after an upgrade nothing rests on them
    assert numbers(database, measurements) == [6, 7]
