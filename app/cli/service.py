"""serve: the HTTP service in the foreground."""

from __future__ import annotations

import argparse
import signal
from typing import Any

from rich.console import Console
from rich.markup import escape

from app.cli.arguments import add_json, bounded
from app.cli.session import INTERRUPTED, OK, Session


def add_commands(commands: Any) -> None:
    """Register this module's command."""
    serve_ = commands.add_parser("serve", help="run the HTTP service")
    serve_.add_argument("--host", help="address to listen on (127.0.0.1)")
    serve_.add_argument(
        "--port", type=bounded("port", 0, 65535), help="port to listen on (8000; 0: a free one)"
    )
    serve_.add_argument(
        "--workers", type=bounded("workers", 1, 256), help="solver processes (one a core, up to 4)"
    )
    serve_.add_argument(
        "--check", action="store_true", help="print the settings that hold, and start nothing"
    )
    add_json(serve_)
    serve_.set_defaults(run=run)


def run(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright serve``; settings it does not name come from WARPWRIGHT_* variables.

    Exits 0 after SIGTERM, by which service managers stop what they started, 130 after SIGINT.
    """
    # Here, not above: FastAPI and all it brings would hold up every other command.
    from app.serve import address_of, listen, serve, url_of
    from app.settings import load_settings, unknown_variables

    settings = load_settings(host=arguments.host, port=arguments.port, workers=arguments.workers)
    if arguments.check:
        for name in unknown_variables():
            session.say(f"nothing reads {escape(name)}")
        record = {**settings.to_dict(), "resolved": settings.resolved()}
        session.emit(record, lambda console: _show_settings(console, record))
        return OK
    listener = listen(settings)
    host, port = address_of(listener)
    body = {"host": host, "port": port}
    words = f"{url_of(listener)}/   Documentation: /docs   Stop: Ctrl-C"
    ended = serve(
        settings,
        listener,
        on_start=lambda: session.emit(body, lambda console: console.print(words, soft_wrap=True)),
    )
    return INTERRUPTED if ended is signal.SIGINT else OK


def _show_settings(console: Console, record: dict[str, Any]) -> None:
    """Every setting on a line of its own: a table would cut a long path and leave lists out."""
    for name, value in record.items():
        if name == "resolved":
            continue
        words = f"auto: {record['resolved'][name]}" if value == "auto" else _words(value)
        console.print(f"{name:<22} {words}", soft_wrap=True, markup=False, highlight=False)


def _words(value: Any) -> str:
    """A value as its variable would be set."""
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)
