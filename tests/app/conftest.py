"""One service for all tests of routes: one solver process, no GPU."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.answers import warm
from app.jobs import Job, Outcome
from app.main import create_app
from app.settings import Settings
from app.verification import run_verification
from kernels.host import HostGpu
from kernels.process import Worker


def wait_until_ready(client: TestClient, within_s: float = 60.0) -> None:
    """Return once /readyz says so."""
    end = time.monotonic() + within_s
    while client.get("/readyz").status_code != 200:
        assert time.monotonic() < end, "the service did not get ready"
        time.sleep(0.05)


@contextmanager
def service(
    gpu: HostGpu | None = None,
    verify: Callable[[Job, float, Worker], Outcome] = run_verification,
    initialise: Callable[[], Any] = warm,
    **settings: Any,
) -> Iterator[TestClient]:
    """A client of the whole application on a host that has ``gpu``, whatever this one has."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        settings.setdefault("database", f"sqlite:///{folder}/warpwright.db")
        app = create_app(Settings(workers=1, **settings), verify=verify, initialise=initialise)
        for module in ("app.host", "kernels.verify"):
            patch.setattr(f"{module}.host_gpu", lambda: gpu)
        with TestClient(
            app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False
        ) as client:
            wait_until_ready(client)
            yield client


@pytest.fixture(scope="session")
def client() -> Iterator[TestClient]:
    """A client of the whole application on a host without a GPU."""
    # Without the cache, so that a test finds out what the solver says, whoever asked before.
    with service(answer_cache_bytes=0) as client:
        yield client
