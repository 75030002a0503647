"""The database locked, gone, full or read-only: nothing is accepted that isn't kept, and what
was accepted ends once it is back.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select

import app.serve
import app.store.database
from app.errors import EnvironmentLacks, StoreUnavailable
from app.serve import listen, serve
from app.settings import Settings
from app.store.database import Database
from app.store.tables import launches
from bench.service_process import until
from tests.app.conftest import service
from tests.app.faults import planted_work
from tests.app.faults.conftest import KINDS, Bench, Make
from tests.app.faults.planted import GPU, run_planted
from tests.app.faults.running import body
from tests.app.faults.trouble import PostgresTrouble
from tests.postgres import Postgres


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.store.database, "BUSY_TIMEOUT_S", 0.3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_runs_meanwhile_is_recorded_once_when_it_is_back(
    bench: Bench, trouble_of: Make, kind: str
) -> None:
    job, after = bench.submit(sleeps_ms=500), bench.submit()
    bench.queue.start()
    until(lambda: len(planted_work.read()) == 1)
    with getattr(trouble_of(bench.database), kind)():
        until(lambda: len(planted_work.read()) == 2)  # the work ends
        time.sleep(0.5)  # and its end can't be written
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                bench.submit()
    back_s = time.monotonic()
    assert bench.ended(job).status == "passed"
    print(f"recovery: {time.monotonic() - back_s:.2f} s after the database was {kind}")
    assert bench.ended(after).status == "passed"
    with bench.database.read() as connection:
        assert connection.execute(select(func.count()).select_from(launches)).scalar_one() == 2
        each = connection.execute(select(launches.c.job_id, launches.c.outcome))
        rows = {row.job_id: row.outcome for row in each}
    assert rows == {job.id: "passed", after.id: "passed"}
    assert len(bench.store.page()[0]) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_over_http_it_is_a_503_and_answers_go_on(
    database_url: str, trouble_of: Make, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(planted_work.JOURNAL, str(tmp_path / "journal"))
    monkeypatch.setenv("WARPWRIGHT_CACHE", str(tmp_path / "cache"))
    with service(GPU, run_planted, database=database_url) as client:
        accepted = client.post("/v1/verifications", json=body(1))
        assert accepted.status_code == 202, accepted.text
        location = accepted.headers["location"]
        database: Database = client.app.state.services.database  # type: ignore[attr-defined]
        with getattr(trouble_of(database), kind)():
            assert_unavailable(client, kind, location)
        until(lambda: client.get("/readyz").status_code == 200)
        assert client.post("/v1/verifications", json=body(1)).status_code == 202
        until(lambda: client.get(location).json()["status"] == "passed")


def assert_unavailable(client: TestClient, kind: str, location: str) -> None:
    refused = client.post("/v1/verifications", json=body(1))
    assert refused.status_code == 503
    assert refused.json()["type"] == "urn:warpwright:problem:unavailable"
    assert int(refused.headers["retry-after"]) >= 1
    assert client.post("/v1/optimize", json={"m": 64, "n": 64, "k": 64}).status_code == 200
    assert client.get("/metrics").status_code == 200
    assert client.get("/healthz").status_code == 200
    if kind == "gone":
        assert client.get(location).status_code == 503
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["database"]) == (503, "unreachable")


def test_one_service_at_a_time_works_with_a_database(database: Database, database_url: str) -> None:
    other = Database(database_url)
    other.open()
    with pytest.raises(EnvironmentLacks, match="another service works with"):
        other.hold(0.2)
    threading.Timer(0.3, database.close).start()
    other.hold(10)
    assert other.standing() == "held"
    other.close()


def test_a_service_whose_database_another_holds_does_not_start(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.serve, "HOLD_S", 0.1)
    settings = Settings(port=0, database=database_url)
    with closing(listen(settings)) as listener, pytest.raises(EnvironmentLacks) as refused:
        serve(settings, listener)
    assert database.shown in str(refused.value)
    assert "WARPWRIGHT_DATABASE" in str(refused.value)


def test_a_lock_that_postgresql_let_go_of_is_taken_again(postgres: Postgres) -> None:
    url = postgres.emptied()
    with closing(Database(url)) as database, closing(Database(url)) as other:
        database.open()
        database.hold()
        with PostgresTrouble(database, postgres).gone():
            assert database.standing() == "unreachable"
        assert database.standing() == "held"
        assert not other.held()
