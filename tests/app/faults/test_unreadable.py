"""One job of which the database has nonsense: it fails with words of its own, the others run."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import insert, select, text

from app.store.database import Database
from app.store.job import Job, Outcome, now
from app.store.jobs import JobStore
from app.store.tables import launches
from app.store.unreadable import COLUMNS
from app.verification import request_of, run_verification
from bench.service_process import until
from kernels.verify import VerificationRequest
from solver.config import Config
from solver.problem import Problem
from tests.app.conftest import service, sqlite_url
from tests.app.faults import planted_work
from tests.app.faults.conftest import Bench
from tests.app.faults.planted import GPU, run_planted
from tests.app.faults.running import CONFIG, body
from tests.app.turns import turn

JSON_DAMAGE = [("request", "null"), ("request", "[]"), ("request", '"x"'), ("request", "7")]
SQLITE_DAMAGE = [
    *JSON_DAMAGE,
    ("request", "{"),
    ("request", ""),
    ("result", "{"),
    ("result", "[1]"),
    ("kind", b"\1\2"),
    ("priority", 7),
    ("priority", "high"),
    ("losses", "many"),
    ("key_id", b"\1"),
    ("created_at", "yesterday"),
    ("started_at", "soon"),
    ("finished_at", 7),
]
"""A column and what stands in it; SQLite takes anything anywhere."""


def damage(database: Database, job: Job, column: str, value: Any, **more: Any) -> None:
    """Write what this program never would."""
    kind = "" if database.is_sqlite else "::jsonb"
    with database.write() as connection:
        for name, each in {column: value, **more}.items():
            cast = kind if name in ("request", "result") else ""
            connection.execute(
                text(f"UPDATE jobs SET {name} = (:value){cast} WHERE id = :id"),
                {"value": each, "id": job.id},
            )


def damages(database: Database) -> list[tuple[str, Any]]:
    return SQLITE_DAMAGE if database.is_sqlite else JSON_DAMAGE


def test_every_column_that_is_looked_at_is_damaged_here() -> None:
    assert {column for column, _ in SQLITE_DAMAGE} >= set(COLUMNS) - {"attempts"}


def test_a_queued_job_that_can_not_be_read_fails_and_the_others_run(bench: Bench) -> None:
    first = bench.submit()
    kinds = [each for each in damages(bench.database) if each[0] != "started_at"]  # a run sets it
    damaged = [(bench.submit(), *each) for each in kinds]
    last = bench.submit()
    for job, column, value in damaged:
        damage(bench.database, job, column, value)
        page, _ = bench.store.page(limit=50)
        assert len(page) == len(damaged) + 2
        assert all(each.to_dict() for each in page)
    bench.queue.start()
    for sound in (first, last):
        assert bench.ended(sound).status == "passed"
    for job, column, value in damaged:
        ended = bench.ended(job)
        assert (ended.status, ended.reason) == ("failed", "unreadable"), (column, value)
        assert ended.result is not None
        assert f"can't be read: {column}: " in ended.result["details"], value
        assert ended.attempts == 0
        last_event = bench.store.events(job.id)[-1]
        assert (last_event.data["status"], last_event.data["reason"]) == ("failed", "unreadable")
    assert bench.queue.state == "idle"
    until(lambda: bench.counted.count(("failed", "unreadable")) == len(damaged))
    assert len(bench.store.page(limit=50)[0]) == len(damaged) + 2


def test_a_running_job_that_can_not_be_read_fails_at_the_next_start(bench: Bench) -> None:
    damaged = [(bench.submit(), *each) for each in damages(bench.database)]
    for job, column, value in damaged:
        running = {"status": "running", "gpu": GPU.uuid, "attempts": 1}
        damage(bench.database, job, column, value, **running)
    after = bench.submit()
    bench.queue.start()
    assert bench.ended(after).status == "passed"
    for job, column, value in damaged:
        ended = bench.store.get(job.id)
        assert (ended.status, ended.reason) == ("failed", "unreadable"), (column, value)
    with bench.database.read() as connection:
        query = select(launches.c.outcome, launches.c.reason).where(launches.c.attempt == 1)
        audit = [tuple(row) for row in connection.execute(query)]
    assert audit.count(("failed", "unreadable")) == len(damaged)


def test_a_job_whose_end_can_not_be_recorded_fails_and_the_next_runs(bench: Bench) -> None:
    """Its audit has a row of this run already, which no service wrote."""
    job, after = bench.submit(), bench.submit()
    with bench.database.write() as connection:
        connection.execute(
            insert(launches).values(
                job_id=job.id,
                attempt=1,
                key_id="",
                at=now(),
                gpu="",
                request={},
                outcome="passed",
                gpu_seconds=0.0,
            )
        )
    bench.queue.start()
    ended = bench.ended(job)
    assert (ended.status, ended.reason) == ("failed", "internal_error")
    assert bench.ended(after).status == "passed"
    until(lambda: bench.queue.state == "idle")


def test_a_kind_of_job_that_is_not_known_fails_with_its_name(bench: Bench) -> None:
    job, _ = bench.store.submit("tuning", {}, sha256="0" * 64)
    after = bench.submit()
    bench.queue.start()
    ended = bench.ended(job)
    assert (ended.status, ended.reason) == ("failed", "unreadable")
    assert ended.result == {"details": "this program has no jobs of kind 'tuning'"}
    assert bench.ended(after).status == "passed"


REQUEST = request_of(
    VerificationRequest(
        Problem(64, 64, 64), Config.from_dict({**CONFIG, "register_split": 0}), predicted_us=5.0
    )
)


def without(*path: str) -> dict[str, Any]:
    request = json.loads(json.dumps(REQUEST))
    at = request
    for name in path[:-1]:
        at = at[name]
    del at[path[-1]]
    return request


OLD = [
    ({}, "lacks 'predicted_us'"),
    (without("problem"), "lacks 'problem'"),
    (without("config"), "lacks 'config'"),
    (without("problem", "m"), "'m'"),
    (without("config", "tile_m"), "tile_m: is required"),
    ({**REQUEST, "problem": {**REQUEST["problem"], "colour": 1}}, "colour"),
    ({**REQUEST, "config": {**REQUEST["config"], "colour": 1}}, "colour"),
    ({**REQUEST, "problem": {**REQUEST["problem"], "dtype": "fp4"}}, "dtype"),
    ({**REQUEST, "problem": {**REQUEST["problem"], "m": "64"}}, "m"),
    ({**REQUEST, "problem": None}, "mapping"),
    ({**REQUEST, "config": None}, "None"),
    ({**REQUEST, "predicted_us": "fast"}, "predicted_us must be a number"),
    ({**REQUEST, "cache": "hot"}, "cache must be cold or warm"),
    ({**REQUEST, "cache": []}, "cache must be cold or warm"),
    ({**REQUEST, "against": 7}, "int"),
    ({**REQUEST, "against": [7]}, "int"),
    ({**REQUEST, "against": [{}]}, "family: is required"),
]


@pytest.mark.parametrize(("request_", "words"), OLD)
def test_a_request_that_no_longer_validates_says_what_is_wrong(
    request_: dict[str, Any], words: str
) -> None:
    job = Job(**dict.fromkeys(Job.__slots__) | {"request": request_})
    outcome = run_verification(job, turn())
    assert (outcome.status, outcome.reason) == ("failed", "unreadable")
    assert "the request can't be read: " in outcome.result["details"]
    assert words in outcome.result["details"]


@pytest.fixture
def client(database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv(planted_work.JOURNAL, str(tmp_path / "journal"))
    monkeypatch.setenv("WARPWRIGHT_CACHE", str(tmp_path / "cache"))
    store = JobStore(database, waiting=50, kept=50)
    for _ in range(3):
        store.submit("verification", REQUEST, sha256="0" * 64)
    first, second, _ = reversed(store.page()[0])
    damage(database, first, "request", "null")
    damage(database, second, "request", "{}")
    database.close()
    url = database.url.render_as_string(hide_password=False)
    with service(GPU, run_planted, initialise=dict, database=url) as client:
        yield client


def test_over_http_it_is_one_failed_job_among_others(client: TestClient) -> None:
    def listed() -> list[dict[str, Any]]:
        answer = client.get("/v1/verifications")
        assert answer.status_code == 200
        found: list[dict[str, Any]] = answer.json()["verifications"]
        return found

    until(lambda: all(job["finished_at"] for job in listed()))
    reasons = [job["reason"] for job in reversed(listed())]
    assert reasons[0] == "unreadable"
    assert reasons[2] is None
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["gpu_worker"]) == (200, "idle")
    location = client.post("/v1/verifications", json=body(0)).headers["location"]
    until(lambda: client.get(location).json()["status"] == "passed")


def test_an_event_whose_data_are_damaged_hides_no_other(bench: Bench) -> None:
    job = bench.submit()
    cast = "" if bench.database.is_sqlite else "::jsonb"
    with bench.database.write() as connection:
        connection.execute(text(f"UPDATE job_events SET data = '[1]'{cast}"))
    bench.queue.start()
    assert bench.ended(job).status == "passed"
    first, *_, last = bench.store.events(job.id)
    assert set(first.data) == {"at"}
    assert last.data["status"] == "passed"


def test_a_damaged_moment_is_named_on_pages_of_jobs_events_and_launches(tmp_path: Path) -> None:
    """SQLite alone can have one: PostgreSQL's moments are typed."""
    url = sqlite_url(tmp_path)
    with closing(Database(url)) as database:
        database.open()
        database.hold()
        store = JobStore(database, waiting=50, kept=50)
        job, _ = store.submit("verification", REQUEST, sha256="0" * 64)
        run = store.claim(GPU.uuid)
        assert run is not None
        store.finish(run, Outcome("passed", None, {}), 1.0)
        for column, value in (("created_at", "yesterday"), ("started_at", 7), ("finished_at", "")):
            damage(database, job, column, value)
        with database.write() as connection:
            for table in ("job_events", "launches"):
                connection.execute(text(f"UPDATE {table} SET at = 'soon'"))
    with service(GPU, run_planted, initialise=dict, database=url) as client:
        [listed] = client.get("/v1/verifications").json()["verifications"]
        assert listed["status"] == "passed"
        for name in ("created_at", "started_at", "finished_at"):
            assert listed[name] == "unreadable"
        assert client.get(f"/v1/verifications/{job.id}").json() == listed
        [launched] = client.get("/v1/launches").json()["launches"]
        assert (launched["at"], launched["outcome"]) == ("unreadable", "passed")
        assert '"at": "unreadable"' in client.get(f"/v1/verifications/{job.id}/events").text


def test_a_queue_that_a_defect_stops_is_not_ready_and_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.restarts.FIRST_S", 0.05)
    job = bench.submit()
    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "claim", broken)
        bench.queue.start()
        until(lambda: bench.queue.state == "failing")
    assert bench.ended(job).status == "passed"
    until(lambda: bench.queue.state == "idle")


def test_readiness_is_lost_where_a_defect_stops_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.gpu_lane.GpuLane._claim", broken)
    with pytest.raises(AssertionError, match="did not get ready"):  # noqa: SIM117
        with service_within(5.0, monkeypatch):
            pass


def broken(*_: object) -> None:
    raise ZeroDivisionError("planted")


def service_within(seconds: float, monkeypatch: pytest.MonkeyPatch) -> Any:
    import tests.app.conftest as conftest

    ready: Callable[..., None] = conftest.wait_until_ready
    monkeypatch.setattr(conftest, "wait_until_ready", lambda client: ready(client, seconds))
    return service(GPU, run_planted, initialise=dict)
