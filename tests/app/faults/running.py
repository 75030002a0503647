"""A planted service as a process of its own, and a client of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.app.faults.planted_work import FIRST_N, JOURNAL

ROOT = Path(__file__).resolve().parents[3]
READY_S = 120.0
CONFIG = {
    "family": "sm90_gemm",
    "tile_m": 64,
    "tile_n": 64,
    "tile_k": 64,
    "stages": 4,
    "math_warpgroups": 1,
}


def body(sleeps_ms: int, m: int = 64, **more: Any) -> dict[str, Any]:
    """A verification whose planted work takes so long."""
    return {"m": m, "n": FIRST_N + sleeps_ms, "k": 64, "config": CONFIG, **more}


class Running:
    """One process after another on the same database, journal and kernel cache."""

    def __init__(self, folder: Path, database: str, **settings: Any) -> None:
        self.folder = folder
        self.database = database
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            JOURNAL: str(folder / "journal"),
            "WARPWRIGHT_CACHE": str(folder / "cache"),
            "WARPWRIGHT_DATABASE": database,
            **{f"WARPWRIGHT_{name.upper()}": str(value) for name, value in settings.items()},
        }
        self.process: subprocess.Popen[str] | None = None
        self.port = 0

    def set(self, name: str, value: str) -> None:
        """A variable of the processes that are started from now on."""
        self._environment[name] = value

    def __enter__(self) -> Running:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def log(self) -> str:
        """What every process said."""
        return (self.folder / "log").read_text()

    def start(self) -> None:
        """Start a process and wait until it is ready."""
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.app.faults.planted_service"],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=self._environment,
                start_new_session=True,
            )
        try:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            assert line, self.log
            self.port = int(line)
            until(self._ready, READY_S)
        except BaseException:
            self.kill()
            raise

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log
        return bool(self.ask("GET", "/readyz")[0] == 200)

    def kill(self) -> None:
        """End the process as ``kill -9`` does; its children end by themselves."""
        if self.process is not None:
            self.process.kill()
            self.wait()

    def stop(self) -> int:
        """End the process by SIGTERM, and wait."""
        assert self.process is not None
        self.process.terminate()
        return self.wait()

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the process and all its children, as a terminal or systemd does."""
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def wait(self) -> int:
        """The exit code, once the process has gone."""
        assert self.process is not None
        assert self.process.stdout is not None
        code = self.process.wait(120)
        self.process.stdout.close()
        self.process = None
        return code

    def ask(
        self, method: str, path: str, content: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of a request; OSError or HTTPException where the service went away."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            text = None if content is None else json.dumps(content)
            sent = {"Content-Type": "application/json", **(headers or {})}
            connection.request(method, path, text, sent)
            response = connection.getresponse()
            answer = response.read()
            media_type = response.headers.get_content_type()
            return response.status, json.loads(answer) if "json" in media_type else answer.decode()
        finally:
            connection.close()

    def submit(self, content: Any, key: str | None = None) -> dict[str, Any]:
        """A job that was accepted."""
        headers = {} if key is None else {"Idempotency-Key": key}
        status, job = self.ask("POST", "/v1/verifications", content, headers)
        assert status in (200, 202), job
        return job  # type: ignore[no-any-return]

    def job(self, job_id: str) -> dict[str, Any]:
        """A job as it stands."""
        status, job = self.ask("GET", f"/v1/verifications/{job_id}")
        assert status == 200, job
        return job  # type: ignore[no-any-return]

    def ended(self, job_id: str, within_s: float = 60.0) -> dict[str, Any]:
        """A job once it has ended."""
        until(lambda: self.job(job_id)["finished_at"] is not None, within_s)
        return self.job(job_id)


class Stream:
    """A client that follows a job's events."""

    def __init__(self, service: Running, job_id: str, after: int | None = None) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        self.connection.request("GET", f"/v1/verifications/{job_id}/events", headers=headers)
        self.response = self.connection.getresponse()

    def events(self) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """(number, name, data) as they come, to the stream's end."""
        fields: dict[str, str] = {}
        try:
            for raw in iter(self.response.readline, b""):
                line = raw.decode().rstrip("\n")
                if line and not line.startswith(":"):
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif fields:
                    yield int(fields["id"]), fields["event"], json.loads(fields["data"])
                    fields = {}
        finally:
            self.leave()

    def leave(self) -> None:
        """Go away, wherever the stream is."""
        self.response.close()
        self.connection.close()


def descendants(pid: int) -> list[int]:
    """Processes below one, as /proc has them."""
    children = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return [each for child in children for each in (child, *descendants(child))]


def until(true: Any, within_s: float = 30.0) -> float:
    """The seconds it took for ``true()``; AssertionError where it never was."""
    begun = time.monotonic()
    while True:
        try:
            if true():
                return time.monotonic() - begun
        except (OSError, http.client.HTTPException):
            pass
        assert time.monotonic() - begun < within_s, "it did not happen in time"
        time.sleep(0.05)
