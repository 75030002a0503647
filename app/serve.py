"""Runs the service on one address until it is told to stop."""

from __future__ import annotations

import gc
import logging
import socket
from typing import Any

import uvicorn
from fastapi import FastAPI

from app import logs
from app.errors import AddressInUse
from app.http_protocol import protocol
from app.main import create_app
from app.metrics import Drop
from app.services import Services
from app.settings import Settings, unknown_variables
from app.store.database import Database

log = logging.getLogger(__name__)

BACKLOG = 2048
HOLD_S = 10.0
"""How long to wait for the database of a service that is still ending."""
CONNECTIONS_S = 10
"""How long open requests may take to end once the service stops."""


def listen(settings: Settings) -> socket.socket:
    """A bound socket; AddressInUse says which address could not be had and why."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            # Held from here on, so that two services started at once can't both believe in it.
            listener.listen(BACKLOG)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        raise AddressInUse(
            f"can't listen on {settings.host}:{settings.port} ({error.strerror or error}); "
            "another port: --port N"
        ) from error
    return listener


def address_of(listener: socket.socket) -> tuple[str, int]:
    """Host and port of a bound socket."""
    host, port = listener.getsockname()[:2]
    return str(host), int(port)


def serve(settings: Settings, listener: socket.socket, **parts: Any) -> None:
    """Serve on ``listener`` until SIGINT or SIGTERM; returns after a clean stop by SIGINT.

    ``parts`` go to ``create_app``. Raises EnvironmentLacks where the database can't be used, or
    another service works with it.
    """
    logs.configure(settings)
    for name in unknown_variables():
        log.warning("nothing reads %s", name)
    if settings.allowed_hosts and not settings.keys_required:
        log.warning(
            "no key is needed: where a proxy passes on requests from elsewhere, set "
            "WARPWRIGHT_REQUIRE_KEYS=always"
        )
    database = Database(settings.database)
    try:
        database.open()
        database.hold(HOLD_S)
        app = create_app(settings, database, **parts)
        config = uvicorn.Config(
            app,
            http=protocol(settings, lambda reason: _count_drop(app, reason)),
            log_config=None,  # its logs go where ours do
            access_log=False,  # app.api.observe writes it
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=CONNECTIONS_S,
        )
        # What is loaded by now stays. A full collection, which a large body brings about, would
        # walk over all of it and stop the event loop for some 60 ms.
        gc.collect()
        gc.freeze()
        _Server(config, app).run(sockets=[listener])
    except KeyboardInterrupt:
        log.info("stopped")
    finally:
        database.close()


def _count_drop(app: FastAPI, reason: Drop) -> None:
    services: Services = app.state.services
    services.metrics.count_drop(reason)


class _Server(uvicorn.Server):
    """Tells the application that it stops before open requests are waited for."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        services: Services = self._app.state.services
        services.gpu.drain()
        services.streams.close()
        await super().shutdown(sockets)
