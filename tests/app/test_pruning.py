"""The database is kept in bounds by a service that runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing, suppress

import pytest

import app.pruning
from app.errors import StoreUnavailable
from app.pruning import keep_pruned
from app.store.database import Database
from app.store.tables import launches
from bench.service_process import until
from tests.app.conftest import service
from tests.app.store.test_pruning import OLD, launched, numbers


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.pruning, "EVERY_S", 0.1)
    monkeypatch.setattr(app.pruning, "PAUSE_S", 0.0)


def keep(steps: dict[str, Callable[[], int]], held: Callable[[], bool], seconds: float) -> None:
    async def some_time() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(keep_pruned(steps, held), seconds)

    asyncio.run(some_time())


def test_each_step_goes_on_until_it_drops_nothing_and_again_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    left = [3, 2, 0, 1, 0]

    def step() -> int:
        return left.pop(0) if left else 0

    keep({"launches": step}, lambda: True, 0.5)
    assert left == []
    said = [record.getMessage() for record in caplog.records if "dropped" in record.message]
    assert said == [f"{count} launches were dropped: more than are kept" for count in (5, 1)]


def test_a_step_that_fails_stops_no_other_and_is_tried_again() -> None:
    tries: list[str] = []

    def failing() -> int:
        tries.append("failing")
        raise StoreUnavailable("locked") if len(tries) < 4 else ZeroDivisionError("planted")

    def other() -> int:
        tries.append("other")
        return 0

    keep({"launches": failing, "measurements": other}, lambda: True, 0.6)
    assert tries[:6] == ["failing", "other"] * 3


def test_nothing_is_dropped_from_another_services_database() -> None:
    keep({"launches": lambda: 1 / 0}, lambda: False, 0.3)  # type: ignore[dict-item,return-value]


def test_a_service_drops_what_is_beyond_the_number_as_it_starts(database_url: str) -> None:
    with closing(Database(database_url)) as database:
        database.open()
        launched(database, *[OLD] * 1300)
        with service(None, initialise=dict, database=database_url, launches_kept=1000) as client:
            until(lambda: len(numbers(database, launches)) == 1000)
            launched_ids = client.get("/v1/launches?limit=1").json()["launches"]
            assert launched_ids[0]["number"] == 1300
