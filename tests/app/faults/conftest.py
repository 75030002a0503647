"""The GPU's queue with planted work, on each kind of database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import app.gpu_lane
from app.gpu_queue import GpuQueue
from app.store.database import Database
from app.store.job import Job
from app.store.jobs import JobStore
from bench.service_process import until
from tests.app.faults.planted import GPU, PLANTED
from tests.app.faults.planted_work import FIRST_N, JOURNAL
from tests.app.faults.trouble import PostgresTrouble, SqliteTrouble

KINDS = ("locked", "gone", "unwritable")
"""Of trouble that each kind of database has."""
Make = Callable[[Database], SqliteTrouble | PostgresTrouble]


class Bench:
    """A store, and one queue after another that works through it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.store = JobStore(database, waiting=50, kept=50)
        self.counted: list[tuple[str, str | None]] = []
        self.queue = self.make()

    def make(self, deadline_s: float = 30.0, **changes: Any) -> GpuQueue:
        """A further queue, not started."""
        values = {
            "find_gpus": [lambda: GPU.uuid],
            "held": self.database.held,
            "deadline_s": deadline_s,
            "warm": dict,
            "on_end": lambda job: self.counted.append((job.status, job.reason)),
        }
        self.queue = GpuQueue(self.store, PLANTED, **values | changes)
        return self.queue

    def submit(self, m: int = 64, sleeps_ms: int = 0, **more: Any) -> Job:
        """A job of planted work."""
        request = {"problem": {"m": m, "n": FIRST_N + sleeps_ms}}
        job, _ = self.store.submit("verification", request, sha256="0" * 64, **more)
        self.queue.wake()
        return job

    def submit_sweep(self, rows: int, row_ms: int) -> Job:
        """A sweep of planted work: so many rows, each of which takes so long."""
        request = {"top_k": rows, "covering": row_ms}
        job, _ = self.store.submit("sweep", request, sha256="0" * 64)
        self.queue.wake()
        return job

    def ended(self, job: Job, within_s: float = 30.0) -> Job:
        """The job, once it has."""
        until(lambda: self.store.get(job.id).ended is not None, within_s)
        return self.store.get(job.id)


@pytest.fixture
def trouble_of(request: pytest.FixtureRequest) -> Make:
    """Makes the trouble that a database of its kind has."""

    def make(database: Database) -> SqliteTrouble | PostgresTrouble:
        if database.is_sqlite:
            return SqliteTrouble(database)
        return PostgresTrouble(database, request.getfixturevalue("postgres"))

    return make


@pytest.fixture
def bench(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A queue that isn't started yet."""
    monkeypatch.setenv(JOURNAL, str(tmp_path / "journal"))
    monkeypatch.setenv("WARPWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(app.gpu_lane, "RETRY_S", 0.05)
    bench = Bench(database)
    yield bench
    bench.queue.stop(0)
