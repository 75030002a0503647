"""HEAD is answered as GET is, without the body, on every route that has GET."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api.access import AccessTable, Entry
from app.keys import Scope
from app.main import create_app
from app.settings import Settings
from app.store.database import Database
from app.store.job import Job, Outcome
from app.turn import Turn
from kernels.sources import kernel_id
from solver.families.sm90_gemm import CompileKey
from tests.app.conftest import application, service
from tests.app.key_tools import new_key, services_of
from tests.app.live import connection, serving
from tests.app.test_verifications import ended, gpu
from tests.app.traces import trace

APP = create_app(Settings(), Database(Settings().database))  # never opened
GOT = [entry for entry in AccessTable(APP.routes).entries if "GET" in entry.methods]
QUESTION = {"m": 64, "n": 64, "k": 64}
VARYING = {"date", "x-request-id", "server-timing"}
"""Headers that two answers to one request differ in."""


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """A service that needs keys, whose jobs pass."""

    def traced(job: Job, turn: Turn) -> Outcome:
        return Outcome("passed", None, {"median_us": 5.0, "trace": trace()})

    with service(gpu(), traced, require_keys="always") as client:
        yield client


@pytest.fixture(scope="module")
def key(client: TestClient) -> dict[str, str]:
    return new_key(client, Scope.ADMIN)[1]


@pytest.fixture(scope="module")
def jobs(client: TestClient, key: dict[str, str]) -> dict[str, str]:
    """The ids of jobs of each kind that have ended, as paths name them."""
    client.headers.update(key)
    made = {}
    bodies = {
        "verification": QUESTION,
        "sweep": {"problems": [QUESTION]},
        "calibration": {"dry_run": True},
    }
    for kind, body in bodies.items():
        submitted = client.post(f"/v1/{kind}s", json=body)
        ended(client, submitted.headers["location"])
        made[f"{kind}_id"] = str(submitted.json()["id"])
    del client.headers["authorization"]
    return made


def address(entry: Entry, jobs: dict[str, str]) -> str:
    """Where a route answers with 200."""
    query = "?m=64&n=64&k=64" if entry.path == "/v1/optimize" else ""
    kernel = kernel_id(CompileKey("bf16", "tn", 64, 64, 64, 1, 0, 0))
    return entry.path.format(**jobs, kernel_id=kernel) + query


def compared(response: Any, path: str) -> dict[str, str]:
    """An answer's headers, but for those that no two answers share."""
    varying = VARYING | ({"content-length"} if path == "/metrics" else set())
    return {name: value for name, value in response.headers.items() if name not in varying}


def test_there_are_routes_to_ask() -> None:
    assert len(GOT) >= 10


@pytest.mark.parametrize("entry", GOT, ids=lambda entry: entry.path)
@pytest.mark.parametrize("kind", ["right", "none", "malformed"])
def test_head_is_answered_as_get_is(
    client: TestClient, key: dict[str, str], jobs: dict[str, str], entry: Entry, kind: str
) -> None:
    headers = {"right": key, "none": {}, "malformed": {"authorization": "Bearer ww_"}}[kind]
    path = address(entry, jobs)
    got, head = (client.request(method, path, headers=headers) for method in ("GET", "HEAD"))
    assert got.status_code == (200 if kind == "right" or entry.scope is None else 401)
    assert head.status_code == got.status_code
    assert compared(head, entry.path) == compared(got, entry.path)
    assert head.content == b""


@pytest.mark.parametrize("path", ["/v1/none", "/v1/simulate", "/v1/verifications/none"])
def test_head_is_refused_as_get_is(client: TestClient, key: dict[str, str], path: str) -> None:
    got, head = (client.request(method, path, headers=key) for method in ("GET", "HEAD"))
    assert head.status_code == got.status_code in (404, 405)
    assert head.headers.get("allow") == got.headers.get("allow")


def test_what_an_address_allows_has_head_beside_get(
    client: TestClient, key: dict[str, str]
) -> None:
    allowed = client.put("/v1/devices", json={}, headers=key).headers["allow"]
    assert allowed == "GET, HEAD"


def test_head_of_a_stream_ends_with_its_headers_and_keeps_no_place() -> None:
    over = threading.Event()

    def held(job: Job, turn: Turn) -> Outcome:
        over.wait(60)
        return Outcome("passed", None, {})

    with service(gpu(), held) as client:
        location = client.post("/v1/verifications", json=QUESTION).headers["location"]
        head = client.head(f"{location}/events")
        assert not over.is_set()
        over.set()
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"].startswith("text/event-stream")
    assert services_of(client).streams.open == 0


def test_on_a_connection_nothing_stands_between_a_head_and_the_next_answer() -> None:
    over = threading.Event()

    def held(job: Job, turn: Turn) -> Outcome:
        over.wait(60)
        return Outcome("passed", None, {})

    with application(gpu(), held) as app, serving(app) as port, connection(port) as asked:
        asked.request(
            "POST",
            "/v1/verifications",
            '{"m": 64, "n": 64, "k": 64}',
            {"content-type": "application/json"},
        )
        submitted = asked.getresponse()
        submitted.read()
        events = f"{submitted.headers['location']}/events"
        for path in ("/docs", "/v1/devices", "/v1/optimize?m=64&n=64&k=64", events, "/v1/none"):
            asked.request("HEAD", path)
            head = asked.getresponse()
            assert head.read() == b""
            asked.request("GET", "/healthz")
            assert asked.getresponse().read() == b'{"status":"ok"}', path
        end = time.monotonic() + 10
        while app.state.services.streams.open:
            assert time.monotonic() < end
            time.sleep(0.02)
        over.set()
