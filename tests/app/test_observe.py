"""What every request gets: an id, protecting headers, a count and a line in the log."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.keys import Scope
from app.logs import JsonFormatter, TextFormatter, add_context
from app.settings import Settings, load_settings
from app.store.job import Outcome
from solver.errors import InvalidInput
from tests.app.conftest import service
from tests.app.key_tools import keyed_service, new_key, services_of
from tests.app.test_verifications import ended, gpu


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with keyed_service() as client:
        yield client


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the service logs, as JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(add_context)
    logger = logging.getLogger("app")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel("INFO")
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(level)


def logged(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


ASKED = [
    ("GET", "/healthz", {}),
    ("GET", "/v1/devices", {}),
    ("GET", "/none", {}),
    ("PUT", "/healthz", {}),
    ("GET", "/healthz", {"host": "evil.example"}),
    ("GET", "/healthz", {"origin": "https://evil.example"}),
    ("POST", "/v1/optimize", {"content-type": "text/plain"}),
    ("GET", "/docs", {}),
]


@pytest.mark.parametrize(("method", "path", "headers"), ASKED)
def test_every_answer_is_protected_and_named(
    client: TestClient, method: str, path: str, headers: dict[str, str]
) -> None:
    response = client.request(method, path, headers=headers)
    sent = response.headers
    assert sent["x-content-type-options"] == "nosniff"
    assert sent["referrer-policy"] == "no-referrer"
    assert sent["x-frame-options"] == "DENY"
    assert sent["cross-origin-resource-policy"] == "same-origin"
    assert sent["cache-control"] == "no-store"
    assert "default-src 'none'" in sent["content-security-policy"]
    assert "frame-ancestors 'none'" in sent["content-security-policy"]
    assert re.fullmatch("[0-9a-f]{32}", sent["x-request-id"])
    for name in ("x-request-id", "content-security-policy", "cache-control"):
        assert len(sent.get_list(name)) == 1
    if response.headers["content-type"] == "application/problem+json":
        assert response.json()["instance"] == f"urn:warpwright:request:{sent['x-request-id']}"


@pytest.mark.parametrize("given", ["abc-1.2_3", "0" * 64])
def test_a_sane_request_id_is_kept(client: TestClient, given: str) -> None:
    response = client.get("/v1/devices", headers={"x-request-id": given})
    assert response.headers["x-request-id"] == given
    assert response.json()["instance"].endswith(given)


@pytest.mark.parametrize("given", ["", "a b", "0" * 65, 'a"b', "a\tb", "é".encode("latin-1")])
def test_another_request_id_is_replaced(client: TestClient, given: Any) -> None:
    response = client.get("/healthz", headers={"x-request-id": given})
    assert re.fullmatch("[0-9a-f]{32}", response.headers["x-request-id"])


def test_a_request_has_one_line_without_anything_secret(
    client: TestClient, lines: io.StringIO
) -> None:
    key, headers = new_key(client, Scope.OPTIMIZE)
    client.get("/v1/devices?token=hush", headers={**headers, "x-request-id": "one"})
    client.get(f"/v1/verifications/hush?{headers['authorization']}", headers=headers)
    client.get("/hush")
    first, second, third = logged(lines)
    assert first.pop("time")
    assert 0 < first.pop("ms") < 60_000
    assert first == {
        "level": "INFO",
        "logger": "app.requests",
        "message": "request",
        "method": "GET",
        "route": "/v1/devices",
        "status": 200,
        "key_id": key.id,
        "request_id": "one",
    }
    assert (second["route"], second["status"]) == ("/v1/verifications/{verification_id}", 403)
    assert (third["route"], third["status"], third["key_id"]) == ("none", 401, None)
    assert "hush" not in lines.getvalue()
    assert headers["authorization"][-64:] not in lines.getvalue()


def test_lines_of_a_request_can_be_left_out(lines: io.StringIO) -> None:
    with service(access_log=False) as client:
        client.get("/healthz")
    assert "app.requests" not in lines.getvalue()


def test_a_kernel_cache_that_can_not_be_written_is_told_at_the_start(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WARPWRIGHT_CACHE", str(tmp_path / "file" / "cache"))
    with service(initialise=dict):
        pass
    (told,) = [line for line in logged(lines) if "kernel cache" in line["message"]]
    assert told["level"] == "WARNING"
    assert str(tmp_path / "file" / "cache") in told["message"]


def test_what_broke_is_logged_under_the_requests_id_and_not_told(
    client: TestClient, lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("inner secret")

    monkeypatch.setattr("app.api.routes.devices.answers.devices", broken)
    _, headers = new_key(client, Scope.OPTIMIZE)
    response = client.get("/v1/devices", headers={**headers, "x-request-id": "broken"})
    assert response.status_code == 500
    assert response.json()["type"] == "urn:warpwright:problem:internal-error"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "inner secret" not in response.text
    failure, request = logged(lines)
    assert failure["request_id"] == request["request_id"] == "broken"
    assert "inner secret" in failure["exception"]
    assert request["status"] == 500


def test_a_refused_request_is_counted_under_its_route(client: TestClient) -> None:
    client.get("/v1/verifications/x")
    text = services_of(client).metrics.text().decode()
    assert 'route="/v1/verifications/{verification_id}",status="401"' in text


def record(message: str, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("app.x", logging.WARNING, "", 0, message, (), None)
    vars(made).update(extra)
    return made


def test_text_has_the_same_members_as_json() -> None:
    line = TextFormatter().format(record("request", status=200, key_id=None, request_id="a"))
    assert line.endswith("WARNING app.x: request status=200 request_id=a")


def test_a_line_of_json_is_one_line() -> None:
    text = JsonFormatter().format(record("a\nb", color_message="no", value="c\nd"))
    assert "\n" not in text
    line = json.loads(text)
    assert (line["message"], line["value"]) == ("a\nb", "c\nd")
    assert "color_message" not in line


def test_verdicts_and_prediction_errors_are_counted(lines: io.StringIO) -> None:
    outcomes = iter(
        [Outcome("passed", None, {"prediction_error": -0.2}), Outcome("failed", "timeout", {})]
    )
    with service(gpu(), lambda job, turn: next(outcomes)) as client:
        for _ in range(2):
            job = client.post("/v1/verifications", json={"m": 64, "n": 64, "k": 64})
            ended(client, job.headers["location"])
        text = services_of(client).metrics.text().decode()
    assert 'warpwright_verifications_total{reason="timeout",status="failed"} 1.0' in text
    assert "warpwright_prediction_error_count 1.0" in text
    launched = [json.loads(line) for line in lines.getvalue().splitlines() if "launches" in line]
    assert [line["status"] for line in launched] == ["passed", "failed"]
    assert launched[1]["reason"] == "timeout"
    assert float(re.findall(r"prediction_error_sum (\S+)", text)[0]) == pytest.approx(0.2)


def test_answers_are_counted_by_what_their_proof_came_to() -> None:
    with service() as client:
        client.post("/v1/optimize", json={"m": 512, "n": 512, "k": 512, "proof": "none"})
        assert 'proofs_total{status="not_requested"} 1.0' in client.get("/metrics").text


def test_a_wrong_database_url_is_named_without_its_password() -> None:
    with pytest.raises(InvalidInput) as caught:
        load_settings({"WARPWRIGHT_DATABASE": "mysql://me:hush@host/name"})
    assert caught.value.field == "WARPWRIGHT_DATABASE"
    assert "hush" not in str(caught.value)
    shown = Settings(database="postgresql://me:hush@host/name").to_dict()["database"]
    assert shown == "postgresql+psycopg://me:***@host/name"
