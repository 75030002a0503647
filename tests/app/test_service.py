"""The service as a user starts it: a process, a port, a question, Ctrl-C."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from app.errors import AddressInUse, StoreUnavailable
from app.serve import listen, url_of
from app.settings import Settings
from app.store.database import Database
from tests.app.conftest import sqlite_url

READY_WITHIN_S = 90.0


@pytest.fixture(autouse=True)
def database_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WARPWRIGHT_DATABASE", sqlite_url(tmp_path))


class Served:
    """`warpwright serve` in a process of its own."""

    def __init__(self, folder: Path, *words: str, **variables: str) -> None:
        self.database = sqlite_url(folder)
        self._log = folder / "log"
        environ = {**os.environ, "PYTHONUNBUFFERED": "1", "WARPWRIGHT_DATABASE": self.database}
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "app.cli.main", "serve", "--port", "0", "--json", *words],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environ | variables,
            )

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def port(self) -> int:
        """Where it answers, once it says so."""
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline() for _ in range(4)]
        port: int = json.loads("".join(lines))["port"]
        return port

    def log(self) -> list[dict[str, Any]]:
        """The lines of its log, all of which are JSON."""
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def wait_for(self, words: str) -> dict[str, Any]:
        """The line of the log that has these words, once it is there."""
        end = time.monotonic() + READY_WITHIN_S
        while True:
            found = [line for line in self.log() if words in line["message"]]
            if found:
                return found[0]
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.05)


@contextmanager
def serving(*words: str, **variables: str) -> Iterator[Served]:
    """A service on a free port, with a database of its own, ended in any case."""
    with tempfile.TemporaryDirectory() as folder, Served(Path(folder), *words, **variables) as made:
        yield made


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


SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 0)]
"""What stops a service, and the exit code then: service managers expect 0 after SIGTERM."""


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_started_service_answers_and_a_stop_leaves_nothing_behind(
    number: signal.Signals, code: int
) -> None:
    with serving("--workers", "1") as service:
        port = service.port()
        wait_until_ready(port)
        question = {"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16"}
        status, answer = ask(port, "POST", "/v1/optimize", question)
        assert status == 200
        assert answer["proof"]["status"] == "optimal"  # type: ignore[index]
        family = children(service.process.pid)
        assert family
        service.process.send_signal(number)
        assert service.process.wait(30) == code
        assert_gone(family)
        log = service.log()
        assert log[-1]["message"] == f"stopped by {number.name}"
        assert {line["level"] for line in log} <= {"INFO", "WARNING"}


def test_one_line_says_what_is_served_and_libraries_say_nothing_of_their_own() -> None:
    with serving("--workers", "1", WARPWRIGHT_REQUIRE_KEYS="always") as service:
        port = service.port()
        line = service.wait_for("serving")
        assert line["address"] == f"http://127.0.0.1:{port}"
        assert line["database"] == service.database
        assert line["keys_required"] is True
        assert isinstance(line["gpu"], str)
        service.wait_for("the database's tables went from version none to")
        assert {entry["logger"].split(".")[0] for entry in service.log()} <= {"app", "uvicorn"}


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_what_is_waited_for_is_said_and_no_address_until_it_answers(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    with closing(Database(sqlite_url(tmp_path))) as other, ExitStack() as stack:
        other.open()
        other.hold()
        service = stack.enter_context(Served(tmp_path))
        line = service.wait_for("another service works with")
        assert service.database in line["message"]
        assert "waiting 10 s" in line["message"]
        assert line["level"] == "WARNING"
        assert service.process.stdout is not None
        assert select.select([service.process.stdout], [], [], 0.5)[0] == []
        if number is signal.SIGTERM:
            other.close()
            assert ask(service.port(), "GET", "/healthz")[0] == 200
        service.process.send_signal(number)  # also while it waits
        begun = time.monotonic()
        assert service.process.wait(30) == code
        assert number is signal.SIGTERM or time.monotonic() - begun < 3
        assert service.log()[-1]["message"] == f"stopped by {number.name}"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="writes to /dev/full")
def test_an_address_that_can_not_be_printed_ends_the_service_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    with open("/dev/full", "w") as full, (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli.main", "serve", "--port", "0", "--workers", "1"],
            stdout=full,
            stderr=log,
        )
    assert process.wait(60) == 3
    said = (tmp_path / "log").read_text()
    assert "standard output can't be written" in said
    assert "Traceback" not in said


def test_a_service_that_can_not_start_does_not_exit_as_if_all_were_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_: object) -> None:
        raise StoreUnavailable("planted")

    monkeypatch.setattr("app.main.KeyStore.known", broken)
    monkeypatch.setattr("app.logs.configure", lambda settings: None)
    monkeypatch.setenv("WARPWRIGHT_REQUIRE_KEYS", "always")
    assert main(["serve", "--port", "0", "--workers", "1"]) == 3


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_a_killed_service_leaves_no_process_behind() -> None:
    with serving("--workers", "1") as service:
        wait_until_ready(service.port())
        family = children(service.process.pid)
        service.process.kill()
        service.process.wait()
        assert_gone(family)


def test_a_started_service_gives_up_half_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPWRIGHT_HEAD_DEADLINE_S", "0.5")
    with serving("--workers", "1") as service:
        port = service.port()
        wait_until_ready(port)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as asked:
            asked.sendall(b"GET /healthz HTTP/1.1\r\n")
            assert asked.recv(100).startswith(b"HTTP/1.1 408 ")


def test_behind_a_proxy_that_ends_tls_the_pages_questions_are_of_the_services_origin() -> None:
    with serving("--workers", "1") as service:
        port = service.port()
        wait_until_ready(port)
        origin = {"Origin": f"https://127.0.0.1:{port}"}
        for headers, expected in (
            (origin, 403),
            ({**origin, "X-Forwarded-Proto": "https"}, 200),
            ({**origin, "X-Forwarded-Proto": "http"}, 403),
        ):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            with closing(connection):
                connection.request("GET", "/v1/devices", headers=headers)
                assert connection.getresponse().status == expected


@pytest.mark.parametrize(
    ("host", "url"), [("127.0.0.1", "http://127.0.0.1:"), ("::1", "http://[::1]:")]
)
def test_an_address_is_written_as_a_browser_takes_it(host: str, url: str) -> None:
    if host == "::1" and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    with closing(listen(Settings(host=host, port=0))) as listener:
        assert url_of(listener).startswith(url)


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_a_port_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressInUse, match=str(port)):
            listen(Settings(port=port))
