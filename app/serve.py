"""Runs the service on one address until it is told to stop."""

from __future__ import annotations

import gc
import logging
import signal
import socket
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

from app import logs
from app.errors import AddressInUse
from app.http_protocol import protocol
from app.http_server import HttpServer
from app.main import create_app
from app.metrics import Drop
from app.services import Services
from app.settings import Settings, unknown_variables
from app.stop_signals import Stopped, StopSignals
from app.store.database import Database
from solver.device import check_profiles

log = logging.getLogger(__name__)

BACKLOG = 2048
HOLD_S = 10.0
"""How long to wait for the database of a service that is still ending."""
CONNECTIONS_S = 10.0
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


def url_of(listener: socket.socket) -> str:
    """Where a bound socket is reached."""
    host, port = address_of(listener)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    settings: Settings,
    listener: socket.socket,
    *,
    on_start: Callable[[], None] = lambda: None,
    **parts: Any,
) -> signal.Signals:
    """Serve on ``listener``, which is closed then, until SIGINT or SIGTERM; returns which of them
    it was, SIGINT where both came.

    ``on_start`` is called once requests are answered; what it raises ends the service and is
    raised. ``parts`` go to ``create_app``. Raises EnvironmentLacks where the database can't be
    used, or another service works with it, and UnusableProfile.
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
    with StopSignals() as signals:
        try:
            check_profiles()  # no solver process could start: each question would wait for one
            _hold(database)
            app = create_app(settings, database, **parts)

            def started() -> None:
                _say(settings, listener, app)
                on_start()

            http = protocol(settings, lambda reason: _count_drop(app, reason))
            server = HttpServer(app, http, started, CONNECTIONS_S)
            # What is loaded by now stays. A full collection, which a large body brings about,
            # would walk over all of it and stop the event loop for some 60 ms.
            gc.collect()
            gc.freeze()
            signals.hand_to(server.handle_exit)
            server.run(sockets=[listener])
            if server.failure is not None:
                raise server.failure
        except Stopped:
            pass
        finally:
            signals.ignore()
            listener.close()
            database.close()
    ended = signal.SIGINT if signal.SIGINT in signals.seen else signal.SIGTERM
    log.info("stopped by %s", ended.name)
    return ended


def _count_drop(app: FastAPI, reason: Drop) -> None:
    services: Services = app.state.services
    services.metrics.count_drop(reason)


def _hold(database: Database) -> None:
    """Be the database's one service, saying what is waited for."""
    log.info("opening the database %s", database.shown)
    database.open()
    if not database.held():
        log.warning(
            "another service works with the database %s: waiting %g s at most for it to end",
            database.shown,
            HOLD_S,
        )
        database.hold(HOLD_S)


def _say(settings: Settings, listener: socket.socket, app: FastAPI) -> None:
    """One line for whoever reads the log: what is served, from where, on what."""
    services: Services = app.state.services
    log.info(
        "serving",
        extra={
            "address": url_of(listener),
            "database": services.database.shown,
            "keys_required": settings.keys_required,
            "gpu": services.host.gpu_name,
        },
    )
