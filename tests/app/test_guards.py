"""Who may ask, and how fast a body must come."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api.access import Entry
from app.api.guards import BodyGuard, CallerGuard, checks_hosts, host_name
from app.settings import Settings

QUESTION = {"m": 512, "n": 512, "k": 512, "proof": "none"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8000", "localhost:1", "LOCALHOST", "[::1]:8000", "127.9.9.9"]
)
def test_loopback_names_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:8000",
        "",
        "10.0.0.1",
        "[::1]evil.com",
        "localhost:80@evil.com",
        "[::1",
        "localhost:",
        "localhost:8x",
        "a/localhost",
        "localhost:80:80",
        "localhost#",
        "localhost,evil.com",
        "evil.com" * 500,
    ],
)
def test_a_rebound_name_is_refused(client: TestClient, host: str) -> None:
    response = client.post("/v1/optimize", json=QUESTION, headers={"host": host})
    assert response.status_code == 421
    assert len(response.json()["detail"]) < 200
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://127.0.0.1:9000",
        "http://localhost:8000",
        "",
        "https://127.0.0.1:8000",
        "ftp://127.0.0.1:8000",
        "127.0.0.1:8000",
        "://127.0.0.1:8000",
    ],
)
def test_a_foreign_origin_is_refused(client: TestClient, origin: str) -> None:
    response = client.post("/v1/optimize", json=QUESTION, headers={"origin": origin})
    assert response.status_code == 403
    assert response.json()["type"] == "urn:warpwright:problem:foreign-origin"


def test_the_services_own_origin_is_answered(client: TestClient) -> None:
    headers = {"origin": "http://127.0.0.1:8000"}
    assert client.post("/v1/optimize", json=QUESTION, headers=headers).status_code == 200


def test_no_answer_lets_another_origin_read_it(client: TestClient) -> None:
    response = client.get("/healthz")
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    ("authority", "name"),
    [("[::1]:80", "::1"), ("Host:80", "host"), ("host", "host"), ("", ""), ("[::1]", "::1")],
)
def test_a_host_is_told_from_its_port(authority: str, name: str) -> None:
    assert host_name(authority) == name


async def _status(app: Any, headers: dict[str, str], receive: Any = None) -> int:
    sent: list[Any] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "state": {"entry": Entry("/", re.compile("/"), frozenset({"POST"}), None)},
        "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
    }

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"])


async def _ok(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize(
    ("settings", "host", "status"),
    [
        (Settings(host="0.0.0.0"), "box.example", 200),
        (Settings(host="0.0.0.0", allowed_hosts="box.example"), "box.example:80", 200),
        (Settings(host="0.0.0.0", allowed_hosts="box.example"), "127.0.0.1", 200),
        (Settings(host="0.0.0.0", allowed_hosts="box.example"), "other.example", 421),
        (Settings(allowed_hosts="box.example"), "box.example", 200),
    ],
)
def test_beyond_loopback_the_named_hosts_are_answered(
    settings: Settings, host: str, status: int
) -> None:
    assert asyncio.run(_status(CallerGuard(_ok, settings), {"host": host})) == status


def test_the_documentation_says_which_services_refuse_hosts() -> None:
    errors = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")
    row = next(line for line in errors.splitlines() if line.startswith("| 421 |"))
    assert ("bound to loopback" in row) is checks_hosts(Settings())
    named = Settings(host="0.0.0.0", allowed_hosts="box.example")
    assert ("has `WARPWRIGHT_ALLOWED_HOSTS`" in row) is checks_hosts(named)
    assert ("any other answers every host" in row) is not checks_hosts(Settings(host="0.0.0.0"))


def test_a_body_that_does_not_arrive_is_given_up() -> None:
    async def never() -> Any:
        await asyncio.sleep(30)

    guard = BodyGuard(_ok, Settings(body_deadline_s=0.05))
    headers = {"content-type": "application/json"}
    assert asyncio.run(_status(guard, headers, never)) == 408


def test_the_route_sees_the_whole_body_once() -> None:
    parts = [b'{"m"', b":1", b"}"]

    async def receive() -> Any:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def route(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        assert json.loads(message["body"]) == {"m": 1}
        assert not message["more_body"]
        await _ok(scope, receive, send)

    guard = BodyGuard(route, Settings())
    assert asyncio.run(_status(guard, {"content-type": "application/json"}, receive)) == 200
