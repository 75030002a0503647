"""The application behind its own HTTP server: for what a test client, which has no connection,
can't show."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import uvicorn
from fastapi import FastAPI

from app.http_protocol import protocol
from app.metrics import Metrics
from app.serve import address_of, listen
from app.services import Services


@contextmanager
def serving(app: FastAPI) -> Iterator[int]:
    """Start an application and serve it on a free port, which is what this gives."""
    listener = listen(app.state.settings.model_copy(update={"port": 0}))
    _, port = address_of(listener)
    config = uvicorn.Config(
        app,
        http=protocol(app.state.settings, lambda reason: metrics_of(app).count_drop(reason)),
        log_config=None,
        access_log=False,
        ws="none",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        end = time.monotonic() + 120
        while not (server.started and services_of(app).pool.ready):
            assert time.monotonic() < end, "the service did not get ready"
            time.sleep(0.02)
        yield port
    finally:
        server.should_exit = True
        thread.join()


def services_of(app: FastAPI) -> Services:
    """What a started application works with."""
    services: Services = app.state.services
    return services


def metrics_of(app: FastAPI) -> Metrics:
    """What a started application counts."""
    return services_of(app).metrics


@contextmanager
def connection(port: int) -> Iterator[http.client.HTTPConnection]:
    """One connection to a service on this machine."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as made:
        yield made
