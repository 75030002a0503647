"""What is recorded of verifications that a running service made."""

from __future__ import annotations

import json
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from bench import http_verify
from kernels.bench_plan import problem_of
from solver.problem import Problem

PROTOCOL = {"cache": "cold", "min_rounds": 15}
RESULT = {
    "device": "NVIDIA H200",
    "driver": "580.1",
    "nvrtc": "13.5",
    "protocol": PROTOCOL,
    "kernel_id": "bf16_tn_64x64x64_w1_r0_f1-0123456789ab",
}
FACTS = {
    "device": "NVIDIA H200",
    "driver": "580.1",
    "nvrtc": "13.5",
    "protocol": PROTOCOL,
    "source_hash": "0123456789ab",
}


class Service:
    """A service that verifies at once, each time with the next of ``results``."""

    def __init__(self, *results: dict[str, Any] | None, status: str = "passed") -> None:
        self.asked: list[dict[str, Any]] = []
        self._results = list(results)
        self._status = status

    def call(self, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        assert body is not None
        self.asked.append(body)
        if url.endswith("/v1/optimize"):
            return {
                "config": {},
                "proof": {"status": "optimal", "space": {"configurations": 1}},
                "predicted": {"time_us": 1.0},
                "source": "model" if body.get("model_only") else "measured",
            }
        return {"status": self._status, "reason": None, "result": self._results.pop(0)}


def verify(
    monkeypatch: pytest.MonkeyPatch, folder: Path, service: Service, *words: str
) -> tuple[int, dict[str, Any]]:
    """Exit code and record of two problems asked of a service."""
    suite, out = folder / "two.csv", folder / "out.json"
    suite.write_text("m,n,k,layout,ldc\n64,64,64,,\n64,64,64,tt,65\n", "utf-8")
    monkeypatch.setattr(http_verify, "call", service.call)
    monkeypatch.setattr(sys, "argv", ["http_verify", "--out", str(out), *words, str(suite)])
    code = http_verify.main()
    return code, json.loads(out.read_text("utf-8"))


def test_a_problem_is_asked_whole_over_http(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service = Service(RESULT, RESULT)
    code, record = verify(monkeypatch, tmp_path, service)
    assert code == 0
    problems = [Problem(64, 64, 64), Problem(64, 64, 64, layout="tt", ldc=65)]
    assert [problem_of(body) for body in service.asked] == [p for p in problems for _ in range(2)]
    assert [problem_of(row) for row in record["rows"]] == problems


def test_the_models_pick_is_verified_and_with_top_k_raced_and_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    service = Service(RESULT, RESULT)
    _, plain = verify(monkeypatch, tmp_path, service)
    assert [body.get("model_only") for body in service.asked] == [True, None] * 2
    assert all("source" not in row for row in plain["rows"])
    service = Service(RESULT, RESULT)
    _, record = verify(monkeypatch, tmp_path, service, "--top-k", "5")
    first, job, again = service.asked[:3]
    assert first["model_only"] is True
    assert (job["top_k"], "config" in job, "model_only" in again) == (5, False, False)
    assert [row["source"] for row in record["rows"]] == ["measured", "measured"]


def test_the_record_says_of_the_service_what_its_results_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, record = verify(monkeypatch, tmp_path, Service(RESULT, RESULT))
    assert {name: record[name] for name in FACTS} == FACTS
    assert record["date"]
    assert record["command"].startswith("python -m bench.http_verify --out ")
    assert (record["planned"], record["complete"]) == (2, True)
    assert "http_verify" in record["what"]
    assert not {"commit", "packages"} & set(record)
    assert "leaves out" not in capsys.readouterr().err


def test_the_commit_is_the_one_that_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, record = verify(monkeypatch, tmp_path, Service(RESULT, RESULT), "--commit", "abc")
    assert record["commit"] == "abc"


def test_a_fact_that_no_result_says_is_left_out_and_said_to_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = {**RESULT, "nvrtc": None, "kernel_id": None}
    code, record = verify(monkeypatch, tmp_path, Service(None, failed, status="failed"))
    assert code == 1
    assert not {"nvrtc", "source_hash"} & set(record)
    assert record["driver"] == "580.1"
    assert "leaves out: nvrtc, source_hash" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change", [{"driver": "590.1"}, {"kernel_id": "bf16-ba9876543210"}, {"protocol": {}}]
)
def test_results_of_two_services_make_no_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: dict[str, Any]
) -> None:
    with pytest.raises(SystemExit) as caught:
        verify(monkeypatch, tmp_path, Service(RESULT, RESULT | change))
    assert str(caught.value).startswith("error: results of ")
    assert len(json.loads((tmp_path / "out.json").read_text("utf-8"))["rows"]) == 1


class Refusing(BaseHTTPRequestHandler):
    """A service that has no GPU, or one that says nothing of why it refuses."""

    body = b""

    def do_POST(self) -> None:  # http.server's name for it
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(503)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"detail": "no NVIDIA GPU"}', "503, no NVIDIA GPU"),
        (b"<html>", "503, Service Unavailable"),
        (b'["detail"]', "503, Service Unavailable"),
    ],
)
def test_a_service_that_refuses_is_said_to_and_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    body: bytes,
    said: str,
) -> None:
    handler = type("Handler", (Refusing,), {"body": body})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        code = told(monkeypatch, tmp_path, url)
        thread.join()
    assert code == 3
    assert f"error: {url}/v1/optimize: {said}\n" in capsys.readouterr().err


def test_where_no_service_answers_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound and not listening: whoever connects is refused
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        assert told(monkeypatch, tmp_path, url) == 3
    said = capsys.readouterr().err
    assert f"error: {url}/v1/optimize: no answer (" in said
    assert "is `warpwright serve` running there" in said


def told(monkeypatch: pytest.MonkeyPatch, folder: Path, url: str) -> int:
    """Exit code of one problem asked at ``url``, over a real connection."""
    suite = folder / "one.csv"
    suite.write_text("m,n,k\n64,64,64\n", "utf-8")
    words = ["http_verify", "--url", url, "--out", str(folder / "out.json"), str(suite)]
    monkeypatch.setattr(sys, "argv", words)
    return http_verify.main()
