"""Traces, where they are asked for: a service of its own sends them to a collector of ours."""

from __future__ import annotations

import http.client
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from app import telemetry

WORDS = ("serve", "--port", "0", "--workers", "1", "--json")
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@contextmanager
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """An address that takes OTLP over HTTP, and the bodies that it got."""
    bodies: list[bytes] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    server = HTTPServer(("127.0.0.1", 0), Taking)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_without_an_endpoint_nothing_is_traced() -> None:
    config = telemetry.telemetry({})
    assert not config["tracing"]
    assert not config["auto_configure"]


def test_an_endpoint_without_the_extra_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(telemetry, "EXPORTER", "opentelemetry.not_installed.at_all")
    with caplog.at_level(logging.WARNING):
        assert not telemetry.telemetry({ENDPOINT: "http://127.0.0.1:1"})["tracing"]
    assert "warpwright[otel]" in caplog.text


def test_a_request_is_traced_to_the_endpoint_and_its_log_line_says_so(tmp_path: Path) -> None:
    with collector() as (address, bodies):
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "app.cli.main",
                *["serve", "--port", "0", "--workers", "1", "--json"],
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                ENDPOINT: address,
                "WARPWRIGHT_DATABASE": f"sqlite:///{tmp_path / 'traced.db'}",
                "WARPWRIGHT_LOG_FORMAT": "json",
            },
        )
        try:
            assert process.stdout is not None
            port = json.loads("".join(process.stdout.readline() for _ in range(4)))["port"]
            for path in ("/healthz", "/v1/devices"):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", path)
                assert connection.getresponse().status == 200
                connection.close()
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=60)
    spans = [
        span
        for body in bodies
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert [span.name for span in spans] == ["GET /v1/devices"]
    lines = [json.loads(line) for line in errors.splitlines()]
    traced = [line for line in lines if line.get("route") == "/v1/devices"]
    assert [line["trace_id"] for line in traced] == [spans[0].trace_id.hex()]
