"""Large bodies keep nobody else waiting, and each is parsed once."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient

from app import strict_json
from app.api import bodies
from app.api.bodies import LARGE_BYTES, ParsedRoute
from app.settings import Settings
from app.strict_json import Refused, parse
from tests.app.conftest import application
from tests.app.live import connection, serving
from tests.app.test_access import APP

BATCH = "/v1/optimize/batch"
JSON = {"content-type": "application/json"}
LARGEST = Settings().batch_body_bytes


def filled(unit: str, head: str = "[", tail: str = "]") -> bytes:
    """As much of one thing as a batch's body can hold."""
    count = (LARGEST - len(head) - len(tail)) // (len(unit) + 1)
    return (head + ",".join([unit] * count) + tail).encode()


KINDS = ["{}", '{"a":1}', "1", "1.5", '""', "null", "[]", f"{10**59}", '{"x":{"in":[1,2,3]}}']


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Without the garbage of all that tests have loaded: the service has its own frozen."""
    gc.disable()
    yield
    gc.enable()


def longest_wait_s(body: bytes) -> float:
    """How long another thread had to wait for its turn while a body was parsed."""
    done = threading.Event()

    def work() -> None:
        parse(body)
        done.set()

    thread = threading.Thread(target=work)
    waited = 0.0
    thread.start()
    while not done.is_set():
        begun = time.perf_counter()
        time.sleep(0.0005)
        waited = max(waited, time.perf_counter() - begun)
    thread.join()
    return waited


@pytest.mark.alone
@pytest.mark.parametrize("unit", KINDS)
def test_whoever_else_runs_gets_turns_while_a_body_is_parsed(unit: str, uncollected: None) -> None:
    body = filled(unit)
    assert min(longest_wait_s(body) for _ in range(5)) < 0.05


def test_other_requests_are_answered_while_a_body_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def held(body: bytes) -> Any:
        if len(body) > LARGE_BYTES:
            begun.set()
            assert go_on.wait(60)
        return parse(body)

    monkeypatch.setattr(bodies, "parse", held)
    statuses: list[int] = []

    def post(port: int) -> None:
        with connection(port) as asked:
            asked.request("POST", BATCH, filled("{}", '{"problems":[', "]}"), JSON)
            statuses.append(asked.getresponse().status)

    with application(initialise=dict) as app, serving(app) as port, connection(port) as asked:
        large = threading.Thread(target=post, args=(port,))
        large.start()
        try:
            assert begun.wait(60)
            asked.request("GET", "/healthz")
            assert asked.getresponse().read() == b'{"status":"ok"}'
            asked.request("POST", "/v1/optimize", '{"m": 0}', JSON)
            refused = asked.getresponse()
            assert (refused.status, statuses) == (422, [])
            assert b"errors" in refused.read()
        finally:
            go_on.set()
            large.join()
    assert statuses == [422]


def test_every_route_with_a_body_takes_the_value_that_was_parsed() -> None:
    routes = [context.original_route for context in iter_route_contexts(APP.routes)]
    with_body = [route for route in routes if getattr(route, "body_field", None) is not None]
    assert len(with_body) >= 5
    for route in with_body:
        assert isinstance(route, ParsedRoute)


def test_a_body_is_parsed_once(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[Any] = []

    def counted(text: Any, **hooks: Any) -> Any:
        parsed.append(text)
        return loads(text, **hooks)

    loads = json.loads
    monkeypatch.setattr(strict_json.json, "loads", counted)  # json's own: everyone's
    body = b'{"m": 64, "n": 64, "k": 64, "proof": "none"}'
    response = client.post("/v1/optimize", content=body, headers=JSON)
    monkeypatch.undo()
    assert response.status_code == 200
    assert parsed.count(body) == 1
    assert [each for each in parsed if each != body] == []


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b"\xff", b" "])
@pytest.mark.parametrize("large", [False, True])
def test_what_is_no_json_is_told_whatever_its_size(
    client: TestClient, body: bytes, large: bool
) -> None:
    sent = body + b" " * (LARGE_BYTES + 1) * large
    response = client.post(BATCH, content=sent, headers=JSON)
    assert response.status_code == 400
    with pytest.raises(Refused) as told:
        parse(sent)
    assert response.json()["detail"] == f"the body must be JSON: {told.value}"
