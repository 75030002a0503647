"""Sweeps whose worker or service is killed, whose database is away: no row is lost that was there,
and none is measured twice once it is recorded.
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import app.store.database
from app.store.database import Database
from app.store.result_rows import page
from bench.service_process import until
from tests.app.faults import planted_work
from tests.app.faults.conftest import KINDS, Bench, Make
from tests.app.faults.running import Running

KILLS_SHORT, KILLS_LONG = 2, 20
SMALL = {"m": 64, "n": 64, "k": 64}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.store.result_rows.WRITE_S", 0.0)
    monkeypatch.setattr(app.store.database, "BUSY_TIMEOUT_S", 0.3)


def lines(word: str) -> list[str]:
    return [row for said, row, _, _ in planted_work.read() if said == word]


def rows_of(database: Database, job_id: str) -> list[int]:
    return [row["number"] for row in page(database, job_id, limit=500)[0]]


def test_a_killed_worker_costs_a_sweep_the_row_in_hand_alone(bench: Bench) -> None:
    job = bench.submit_sweep(rows=6, row_ms=150)
    bench.queue.start()
    until(lambda: len(lines("end")) >= 2)
    until(lambda: len(lines("begin")) > len(lines("end")))
    os.kill(planted_work.read()[-1][2], signal.SIGKILL)
    ended = bench.ended(job)
    assert (ended.status, ended.attempts) == ("passed", 2)
    assert len(lines("end")) == 6
    assert len(lines("begin")) == 7
    assert rows_of(bench.database, job.id) == list(range(6))


def test_a_sweep_that_outlasts_the_stop_goes_on_with_the_next_service(bench: Bench) -> None:
    job = bench.submit_sweep(rows=8, row_ms=150)
    bench.queue.start()
    until(lambda: len(lines("end")) >= 3)
    bench.queue.stop(0.1)
    assert bench.store.get(job.id).status == "queued"
    bench.make().start()
    assert bench.ended(job).status == "passed"
    assert len(lines("begin")) <= 9
    assert rows_of(bench.database, job.id) == list(range(8))


def test_a_cancelled_sweep_keeps_what_it_measured(bench: Bench) -> None:
    job = bench.submit_sweep(rows=50, row_ms=100)
    bench.queue.start()
    until(lambda: len(lines("end")) >= 2)
    bench.queue.cancel(job.id)
    assert bench.ended(job).status == "cancelled"
    assert 2 <= len(rows_of(bench.database, job.id)) <= 5


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_come_while_the_database_is_away_are_there_at_the_end(
    bench: Bench, trouble_of: Make, kind: str
) -> None:
    job = bench.submit_sweep(rows=4, row_ms=100)
    bench.queue.start()
    until(lambda: bool(lines("begin")))
    with getattr(trouble_of(bench.database), kind)():
        until(lambda: len(lines("end")) == 4)
    assert bench.ended(job).status == "passed"
    assert len(lines("begin")) == 4
    assert rows_of(bench.database, job.id) == list(range(4))


def test_a_sweep_that_begins_without_its_database_waits_and_loses_no_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.errors import StoreUnavailable
    from app.store.result_rows import RunRows

    begin, tries = RunRows.begin, iter([True])

    def away_once(self: RunRows, basis: str) -> Any:
        if next(tries, False):
            raise StoreUnavailable("the database can't be used: locked")
        return begin(self, basis)

    monkeypatch.setattr(RunRows, "begin", away_once)
    job = bench.submit_sweep(rows=2, row_ms=0)
    bench.queue.start()
    ended = bench.ended(job)
    assert (ended.status, ended.attempts, ended.losses) == ("passed", 2, 0)
    assert bench.queue.failures == 0


@pytest.fixture
def running(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    """A service that isn't started yet."""
    monkeypatch.setenv(planted_work.JOURNAL, str(tmp_path / "journal"))
    return Running(tmp_path, database_url)


def test_sweeps_of_a_service_that_is_killed_twice_end_whole(running: Running) -> None:
    kill_often(running, KILLS_SHORT, seed=1)


@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_sweeps_of_a_service_that_is_killed_twenty_times_end_whole(running: Running) -> None:
    kill_often(running, KILLS_LONG, seed=2)


def kill_often(service: Running, kills: int, seed: int) -> None:
    """``kill -9`` while a sweep measures: each ends whole, and what was recorded stays."""
    rng = random.Random(seed)
    rows, accepted = 6 * kills, []
    service.start()
    for number in range(2):
        asked = {"problems": [SMALL], "top_k": rows, "covering": 200 + number}
        status, job = service.ask("POST", "/v1/sweeps", asked)
        assert status == 202, job
        accepted.append(str(job["id"]))
    before = 0
    for _ in range(kills):
        until(lambda before=before: recorded(service, accepted) > before)  # type: ignore[misc]
        time.sleep(rng.uniform(0.0, 0.6))
        before = recorded(service, accepted)
        service.kill()
        service.start()
        assert recorded(service, accepted) >= before
    for job_id in accepted:
        path = f"/v1/sweeps/{job_id}"
        until(lambda path=path: service.read(path)["finished_at"] is not None, 300)  # type: ignore[misc]
        assert service.read(path)["status"] == "passed"
    service.kill()
    done = lines("end")
    assert set(done) == {f"{job_id}/{number}" for job_id in accepted for number in range(rows)}
    # What was measured and not recorded when its service was killed: rows of a second at most.
    again = len(done) - len(set(done))
    assert again <= 6 * kills
    with closing(Database(service.database)) as database:
        database.open()
        for job_id in accepted:
            assert rows_of(database, job_id) == list(range(rows))
    print(
        f"recovery: {kills} kills, {len(done) - len(set(done))} rows measured twice of {len(done)}"
    )


def recorded(service: Running, accepted: list[str]) -> int:
    """Rows that can be read."""
    return sum(
        len(service.read(f"/v1/sweeps/{job_id}/rows?limit=500")["rows"]) for job_id in accepted
    )
