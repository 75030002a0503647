"""The service as a user starts it: a process, a port, a question, Ctrl-C."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.errors import AddressInUse
from app.serve import listen
from app.settings import Settings
from tests.app.conftest import sqlite_url

READY_WITHIN_S = 90.0


@pytest.fixture(autouse=True)
def database_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WARPWRIGHT_DATABASE", sqlite_url(tmp_path))


@contextmanager
def serving(*words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A service on a free port, ended in any case."""
    folder = tempfile.TemporaryDirectory()
    database = f"sqlite:///{folder.name}/warpwright.db"
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", "WARPWRIGHT_DATABASE": database}
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli.main", "serve", "--port", "0", "--json", *words],
        stdout=subprocess.PIPE,
        text=True,
        env=environ,
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline() for _ in range(4)]
        yield process, json.loads("".join(lines))["port"]
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
        folder.cleanup()


def ask(port: int, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.load(response)
    finally:
        connection.close()


def wait_until_ready(port: int) -> None:
    end = time.monotonic() + READY_WITHIN_S
    while ask(port, "GET", "/readyz")[0] != 200:
        assert time.monotonic() < end
        time.sleep(0.1)


def children(pid: int) -> list[int]:
    """Processes whose parent is ``pid``."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    if int(stat.read().rpartition(")")[2].split()[1]) == pid:
                        found.append(int(entry))
            except OSError:
                continue
    return found


def assert_gone(family: list[int]) -> None:
    end = time.monotonic() + 10
    while left := [pid for pid in family if os.path.exists(f"/proc/{pid}")]:
        assert time.monotonic() < end, f"processes are left: {left}"
        time.sleep(0.1)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_a_started_service_answers_and_ctrl_c_leaves_nothing_behind() -> None:
    with serving("--workers", "1") as (process, port):
        wait_until_ready(port)
        question = {"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16"}
        status, answer = ask(port, "POST", "/v1/optimize", question)
        assert status == 200
        assert answer["proof"]["status"] == "optimal"  # type: ignore[index]
        family = children(process.pid)
        assert family
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert_gone(family)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_a_killed_service_leaves_no_process_behind() -> None:
    with serving("--workers", "1") as (process, port):
        wait_until_ready(port)
        family = children(process.pid)
        process.kill()
        process.wait()
        assert_gone(family)


def test_a_started_service_gives_up_half_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPWRIGHT_HEAD_DEADLINE_S", "0.5")
    with serving("--workers", "1") as (_, port):
        wait_until_ready(port)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as asked:
            asked.sendall(b"GET /healthz HTTP/1.1\r\n")
            assert asked.recv(100).startswith(b"HTTP/1.1 408 ")


def test_a_port_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressInUse, match=str(port)):
            listen(Settings(port=port))
