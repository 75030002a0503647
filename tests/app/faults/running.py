"""A planted service as a process of its own, and a client of its event streams."""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.service_process import ServiceProcess
from tests.app.faults.planted_work import FIRST_N, JOURNAL

ROOT = Path(__file__).resolve().parents[3]
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


class Running(ServiceProcess):
    """One process after another on the same database, journal and kernel cache."""

    def __init__(self, folder: Path, database: str, **settings: Any) -> None:
        self.database = database
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            JOURNAL: str(folder / "journal"),
            "WARPWRIGHT_CACHE": str(folder / "cache"),
            "WARPWRIGHT_DATABASE": database,
            **{f"WARPWRIGHT_{name.upper()}": str(value) for name, value in settings.items()},
        }
        command = [sys.executable, "-m", "tests.app.faults.planted_service"]
        super().__init__(command, environment, folder / "log", folder=ROOT)


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
