"""Measurements in a database: the last race of a problem counts, under the conditions it had."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from app.store.database import Database
from app.store.job import Outcome
from app.store.jobs import JobStore
from app.store.measurements import Conditions, Measured, MeasurementStore
from solver.problem import Problem

HERE = Conditions("h200", "NVIDIA H200", "580", "13.5", "a" * 64)
PROBLEM = Problem(64, 512, 512)
WINNER = {"config": {"stages": 4}, "beaten": [], "facts": {"ratio": 0.8}}
MODEL = ("5", "b" * 64)


@pytest.fixture
def memory(database: Database) -> MeasurementStore:
    return MeasurementStore(database)


def measured(verification_id: str, **changes: Any) -> Measured:
    return replace(
        Measured(
            verification_id.ljust(32, "0"),
            PROBLEM,
            "cold",
            HERE,
            *MODEL,
            config={"stages": 3},
            predicted_us=10.0,
            measured_us=12.0,
            candidates=5,
            winner=WINNER,
        ),
        **changes,
    )


def times_us(memory: MeasurementStore, count: int) -> list[float]:
    return [timed.measured_us for timed in memory.timings(HERE, count)]


def test_a_race_is_kept_as_it_was(memory: MeasurementStore) -> None:
    added = memory.add(measured("1"))
    assert memory.races(HERE) == [added]
    assert (added.problem, added.cache, added.winner) == (PROBLEM.to_dict(), "cold", WINNER)
    assert Problem(**added.problem) == PROBLEM
    assert added.at.tzinfo is not None


def test_the_last_race_of_a_problem_counts_and_one_that_the_pick_won_ends_a_winner(
    memory: MeasurementStore,
) -> None:
    memory.add(measured("1"))
    other = memory.add(measured("2", problem=Problem(65, 512, 512)))
    warm = memory.add(measured("3", cache="warm"))
    last = memory.add(measured("4", winner=None))
    assert memory.races(HERE) == [other, warm, last]
    assert last.number > warm.number > other.number


def test_a_verification_of_the_pick_alone_is_no_race_and_takes_no_winner_away(
    memory: MeasurementStore,
) -> None:
    won = memory.add(measured("1"))
    memory.add(measured("2", candidates=1, winner=None, measured_us=11.0))
    assert memory.races(HERE) == [won]
    assert times_us(memory, 10) == [11.0]


def test_a_verification_that_is_run_again_is_remembered_once(memory: MeasurementStore) -> None:
    first = memory.add(measured("1"))
    again = memory.add(measured("1", winner=None))
    assert memory.races(HERE) == [again]
    assert again.number > first.number


@pytest.mark.parametrize("passes", [True, False])
def test_what_a_run_measured_whose_end_was_lost_counts_only_where_its_job_passes(
    database: Database, memory: MeasurementStore, passes: bool
) -> None:
    store = JobStore(database, waiting=5, kept=5)
    job, _ = store.submit("verification", {}, sha256="0" * 64)
    assert store.claim("GPU-0") is not None
    kept = memory.add(measured(job.id))
    store.recover()
    if passes:
        run = store.claim("GPU-0")
        assert run is not None
        store.finish(run, Outcome("passed", None, {}), 1.0)
    else:
        store.cancel(job.id)
    assert memory.races(HERE) == ([kept] if passes else [])


@pytest.mark.parametrize("name", ["profile", "device", "driver", "nvrtc", "source_hash"])
def test_what_was_measured_under_other_conditions_is_kept_and_does_not_count(
    memory: MeasurementStore, name: str
) -> None:
    there = replace(HERE, **{name: "other"})
    kept = memory.add(measured("1", conditions=there))
    assert memory.races(HERE) == []
    assert memory.timings(HERE, 10) == []
    assert memory.races(there) == [kept]


def test_timings_are_those_of_the_problems_measured_last_each_as_it_was_last(
    memory: MeasurementStore,
) -> None:
    for place, (m, us) in enumerate([(1, 11.0), (2, 12.0), (3, 13.0), (1, 14.0)]):
        memory.add(measured(str(place), problem=Problem(m, 512, 512), measured_us=us))
    assert times_us(memory, 10) == [14.0, 13.0, 12.0]
    assert times_us(memory, 2) == [14.0, 13.0]
    (last,) = memory.timings(HERE, 1)
    assert (last.problem, last.cache) == (Problem(1, 512, 512).to_dict(), "cold")
    assert (last.config, last.number) == ({"stages": 3}, 4)


def test_numbers_grow_however_many_measure_at_once(memory: MeasurementStore) -> None:
    numbers: list[int] = []

    def add(place: int) -> None:
        numbers.append(memory.add(measured(f"{place:02}")).number)

    threads = [threading.Thread(target=add, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(numbers)) == 8
    assert [raced.number for raced in memory.races(HERE)] == [max(numbers)]


def test_what_is_remembered_outlives_the_service(
    database: Database, database_url: str, memory: MeasurementStore
) -> None:
    kept = memory.add(measured("1"))
    database.close()
    again = Database(database_url)
    again.open()
    assert MeasurementStore(again).races(HERE) == [kept]
    again.close()
