"""Requests per minute and GPU seconds per day."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import insert

from app.errors import QuotaExceeded
from app.keys import LOOPBACK, Caller, Scope
from app.metrics import Metrics
from app.quota import check_quota
from app.rate_limit import Bucket
from app.store.database import Database
from app.store.tables import launches
from tests.app.key_tools import keyed_service, new_key, services_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUESTION = {"m": 512, "n": 512, "k": 512}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with keyed_service() as client:
        yield client


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'test.db'}")
    database.open()
    yield database
    database.close()


def launch(database: Database, key_id: str, at: datetime, gpu_seconds: float, **more: Any) -> None:
    """A line of the audit."""
    line = {
        "job_id": f"{key_id}{at.timestamp()}{gpu_seconds}",
        "attempt": 1,
        "key_id": key_id,
        "at": at,
        "gpu": "NVIDIA H200",
        "request": {"m": 1},
        "outcome": "passed",
        "gpu_seconds": gpu_seconds,
    }
    with database.write() as connection:
        connection.execute(insert(launches).values(**{**line, **more}))


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_bucket_gives_a_minutes_requests_and_then_refills_evenly() -> None:
    clock = Clock()
    bucket = Bucket(30, clock)
    assert [bucket.take() for _ in range(31)] == [True] * 30 + [False]
    assert bucket.retry_after_s == 2
    clock.now_s += 1.9
    assert not bucket.take()
    clock.now_s += 0.2
    assert bucket.take()
    assert not bucket.take()
    clock.now_s += 3600
    assert [bucket.take() for _ in range(31)].count(True) == 30


def test_what_a_bucket_is_charged_with_is_waited_for() -> None:
    clock = Clock()
    bucket = Bucket(60, clock)
    caller = Caller("0" * 12, frozenset(), bucket=bucket)
    assert bucket.take()
    caller.charge(99)
    assert not bucket.take()
    assert bucket.retry_after_s == 41
    clock.now_s += 41
    assert bucket.take()
    LOOPBACK.charge(1000)


def test_a_bucket_says_what_remains_as_the_draft_has_it() -> None:
    clock = Clock()
    bucket = Bucket(30, clock)
    bucket.take()
    assert bucket.headers() == {
        "RateLimit-Policy": '"requests";q=30;w=60',
        "RateLimit": '"requests";r=29;t=2',
    }


def test_a_key_is_held_to_its_requests_per_minute(client: TestClient) -> None:
    _, headers = new_key(client, Scope.OPTIMIZE, requests_per_minute=3)
    _, other = new_key(client, Scope.OPTIMIZE, requests_per_minute=3)
    answers = [client.get("/v1/devices", headers=headers) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert [answer.headers["ratelimit"].split(";")[1] for answer in answers] == [
        *("r=2", "r=1", "r=0", "r=0")
    ]
    refused = answers[3]
    assert refused.json()["type"] == "urn:warpwright:problem:rate-limited"
    assert refused.headers["ratelimit-policy"] == '"requests";q=3;w=60'
    assert 1 <= int(refused.headers["retry-after"]) <= 20
    assert client.get("/v1/devices", headers=other).status_code == 200
    _, unlimited = new_key(client, Scope.OPTIMIZE)
    assert "ratelimit" not in client.get("/v1/devices", headers=unlimited).headers


def test_a_batch_counts_as_many_requests_as_it_has_problems(client: TestClient) -> None:
    _, headers = new_key(client, Scope.OPTIMIZE, requests_per_minute=60)
    batch = {"problems": [{"m": 0, "n": 1, "k": 1}] * 100}
    assert client.post("/v1/optimize/batch", json=batch, headers=headers).status_code == 200
    refused = client.get("/v1/devices", headers=headers)
    assert refused.status_code == 429
    assert 39 <= int(refused.headers["retry-after"]) <= 41


def test_requests_without_the_scope_count_too(client: TestClient) -> None:
    _, headers = new_key(client, Scope.VERIFY, requests_per_minute=2)
    statuses = [client.get("/v1/devices", headers=headers).status_code for _ in range(3)]
    assert statuses == [403, 403, 429]


def test_the_gpu_seconds_of_the_utc_day_are_added_up_by_key(database: Database) -> None:
    limited = Caller("a", frozenset(), gpu_seconds_per_day=10.0)
    metrics = Metrics()
    midnight = NOON.replace(hour=0)
    launch(database, "a", midnight - timedelta(seconds=1), 100.0)
    launch(database, "b", NOON, 100.0)
    check_quota(limited, database, metrics, NOON)
    launch(database, "a", midnight, 6.0)
    launch(database, "a", NOON, 3.9)
    check_quota(limited, database, metrics, NOON)
    launch(database, "a", NOON, 0.1)
    with pytest.raises(QuotaExceeded, match="10 GPU seconds a day") as caught:
        check_quota(limited, database, metrics, NOON)
    assert "2026-03-02T00:00:00+00:00" in str(caught.value)
    assert caught.value.retry_after_s == 12 * 3600
    assert metrics.refused.labels("gpu_seconds_per_day")._value.get() == 1
    check_quota(limited, database, metrics, NOON + timedelta(hours=12))
    check_quota(LOOPBACK, database, metrics, NOON)


def test_a_quota_of_nothing_promises_nothing(client: TestClient) -> None:
    key, headers = new_key(client, Scope.VERIFY, gpu_seconds_per_day=0.0)
    response = client.post("/v1/verifications", json={"m": 64, "n": 64, "k": 64}, headers=headers)
    assert response.status_code == 429
    assert response.json()["type"] == "urn:warpwright:problem:quota-exceeded"
    words = f"the key {key.id} may launch nothing: it has 0 GPU seconds a day"
    assert response.json()["detail"] == words
    assert "retry-after" not in response.headers
    refused = services_of(client).metrics.refused
    assert refused.labels("gpu_seconds_per_day")._value.get() >= 1


def test_a_verification_beyond_the_quota_is_refused_over_http(client: TestClient) -> None:
    key, headers = new_key(client, Scope.VERIFY, gpu_seconds_per_day=5.0)
    response = client.post("/v1/verifications", json=QUESTION, headers=headers)
    assert response.status_code == 503  # there is no GPU: the quota let it through
    launch(services_of(client).database, key.id, datetime.now(UTC), 5.0)
    response = client.post("/v1/verifications", json=QUESTION, headers=headers)
    assert response.status_code == 429
    assert response.json()["type"] == "urn:warpwright:problem:quota-exceeded"
    assert 1 <= int(response.headers["retry-after"]) <= 86_400


def test_the_audit_has_pages_and_filters() -> None:
    with keyed_service() as client:
        database = services_of(client).database
        _, headers = new_key(client, Scope.ADMIN)
        for number in range(5):
            key_id = "ab"[number % 2]
            launch(database, key_id, NOON + timedelta(hours=number), 1.5, outcome="failed")

        def ask(**query: Any) -> dict[str, Any]:
            response = client.get("/v1/launches", params=query, headers=headers)
            assert response.status_code == 200, response.text
            body: dict[str, Any] = response.json()
            return body

        first = ask(limit=2)
        assert [line["number"] for line in first["launches"]] == [5, 4]
        assert first["launches"][0]["at"] == "2026-03-01T16:00:00.000+00:00"
        second = ask(limit=2, before=first["next"])
        assert [line["number"] for line in second["launches"]] == [3, 2]
        last = ask(limit=2, before=second["next"])
        assert [line["number"] for line in last["launches"]] == [1]
        assert last["next"] is None
        whole = ask(limit=5)
        assert (len(whole["launches"]), whole["next"]) == (5, None)
        assert {line["key_id"] for line in ask(key_id="b")["launches"]} == {"b"}
        since, until = NOON + timedelta(hours=1), NOON + timedelta(hours=3)
        chosen = ask(since=since.isoformat(), until=until.isoformat())["launches"]
        assert [line["number"] for line in chosen] == [3, 2]
        assert ask(outcome="passed") == {"launches": [], "next": None}


@pytest.mark.parametrize(
    ("query", "field", "words"),
    [
        ({"limit": "0"}, "limit", "between 1 and 200"),
        ({"limit": "x"}, "limit", "an integer between 1 and 200"),
        ({"since": "yesterday"}, "since", "a moment with its time zone"),
        ({"since": "2026-03-01T12:00:00"}, "since", "a moment with its time zone"),
        ({"since": "0001-01-01T00:00:00+23:59"}, "since", "a moment with its time zone"),
        ({"until": "9999-12-31T23:59:59-23:59"}, "until", "a moment with its time zone"),
        ({"order": "up"}, "order", "is no field of this request"),
        ({"outcome": "past"}, "outcome", "one of passed, failed, cancelled, lost, interrupted"),
        ({"job_id": "x" * 65}, "job_id", "1 to 64 characters"),
        ({"job_id": ""}, "job_id", "1 to 64 characters"),
        ({"key_id": "x" * 17}, "key_id", "at most 16 characters"),
    ],
)
def test_a_wrong_filter_is_named(
    client: TestClient, query: dict[str, str], field: str, words: str
) -> None:
    _, headers = new_key(client, Scope.ADMIN)
    response = client.get("/v1/launches", params=query, headers=headers)
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert error["field"] == field
    assert words in error["message"]
