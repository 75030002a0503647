"""One service for all tests of routes: one solver process, no GPU."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.answers import warm
from app.calibration import run_calibration
from app.main import create_app
from app.settings import Settings
from app.store.database import Database
from app.sweep import run_sweep
from app.turn import Runner
from app.verification import run_verification
from kernels.host import HostGpu
from tests.postgres import VARIABLE, Postgres


def wait_until_ready(client: TestClient, within_s: float = 120.0) -> None:
    """Return once /readyz says so."""
    end = time.monotonic() + within_s
    while client.get("/readyz").status_code != 200:
        assert time.monotonic() < end, "the service did not get ready"
        time.sleep(0.05)


GpusGiven = HostGpu | Sequence[HostGpu] | None


def gpus_of(given: GpusGiven) -> tuple[HostGpu, ...]:
    """The GPUs that a test gives, as it likes to write them."""
    if given is None:
        return ()
    return (given,) if isinstance(given, HostGpu) else tuple(given)


def host_has(patch: pytest.MonkeyPatch, *visible: HostGpu | None) -> None:
    """Let this machine have these GPUs, whatever it has; None stands for one that is lost."""
    gpus = tuple(gpu for gpu in visible if gpu is not None)
    patch.setattr("app.gpus.visible_gpus", lambda: visible)
    patch.setattr("kernels.verify.host_gpus", lambda: gpus)
    for module in ("app.host", "kernels.verify"):
        patch.setattr(f"{module}.host_gpu", lambda: gpus[0] if gpus else None)


@contextmanager
def application(
    gpu: GpusGiven = None,
    verify: Runner = run_verification,
    initialise: Callable[[], Any] = warm,
    calibrate: Runner = run_calibration,
    sweep: Runner = run_sweep,
    **settings: Any,
) -> Iterator[FastAPI]:
    """The whole application, not yet started, on a host that has ``gpu``, whatever this one has.

    Its database is a temporary file where ``settings`` name none.
    """
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        values = {"workers": 1, "database": sqlite_url(Path(folder))} | settings
        host_has(patch, *gpus_of(gpu))
        with closing(Database(values["database"])) as database:
            database.open()
            database.hold()
            yield create_app(
                Settings(**values),
                database,
                runners={"verification": verify, "calibration": calibrate, "sweep": sweep},
                initialise=initialise,
                warm_gpu=dict,
            )


@contextmanager
def service(
    gpu: GpusGiven = None,
    verify: Runner = run_verification,
    initialise: Callable[[], Any] = warm,
    calibrate: Runner = run_calibration,
    sweep: Runner = run_sweep,
    **settings: Any,
) -> Iterator[TestClient]:
    """A client of such an application, running and ready."""
    with (
        application(gpu, verify, initialise, calibrate, sweep, **settings) as app,
        TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client,
    ):
        wait_until_ready(client)
        yield client


def sqlite_url(folder: Path) -> str:
    """A database of its own in a folder."""
    return f"sqlite:///{folder / 'warpwright.db'}"


@pytest.fixture(scope="session")
def client() -> Iterator[TestClient]:
    """A client of the whole application on a host without a GPU."""
    # Without the cache, so that a test finds out what the solver says, whoever asked before.
    with service(answer_cache_bytes=0) as client:
        yield client


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server of these tests' own."""
    if not os.environ.get(VARIABLE):
        pytest.skip("PostgreSQL's part is run by make test-postgres")
    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database's URL, of either kind."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    server: Postgres = request.getfixturevalue("postgres")
    return server.emptied()


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """An open database that this test holds."""
    with closing(Database(database_url)) as database:
        database.open()
        database.hold()
        yield database
