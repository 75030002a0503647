"""What ``make run`` starts: the service, and one real question to it once it is ready."""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import threading
import time
from typing import Any

from rich.console import Console

from app.cli.show import show_answer
from app.errors import AddressInUse, EnvironmentLacks
from app.serve import address_of, listen, serve
from app.settings import load_settings
from solver.errors import InvalidInput

QUESTION = {"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16"}
READY_WITHIN_S = 300.0


def main(arguments: list[str] | None = None) -> int:
    """Start, ask, print, and stay in the foreground until interrupted."""
    parser = argparse.ArgumentParser(prog="make run", description=__doc__)
    parser.add_argument("--port", type=int, help="port to listen on (8000)")
    try:
        settings = load_settings(port=parser.parse_args(arguments).port, log_level="warning")
        listener = listen(settings)
    except (InvalidInput, AddressInUse) as error:
        print(f"error: {error} (make run PORT=N)", file=sys.stderr)
        return 3 if isinstance(error, AddressInUse) else 2
    threading.Thread(target=_ask, args=address_of(listener), daemon=True).start()
    try:
        serve(settings, listener)
    except EnvironmentLacks as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return 0  # after Ctrl-C too: make calls any other code an error


def _ask(host: str, port: int) -> None:
    console = Console()
    console.print(f"Starting the service on http://{host}:{port} …")
    begun = time.monotonic()
    while _request(host, port, "GET", "/readyz")[0] != 200:
        if time.monotonic() - begun > READY_WITHIN_S:
            console.print(f"[red]the service was not ready after {READY_WITHIN_S:g} s[/red]")
            return
        time.sleep(0.1)
    console.print(f"Ready after {time.monotonic() - begun:.1f} s. POST /v1/optimize")
    console.print_json(data=QUESTION, indent=None)
    status, answer, timings = _request(host, port, "POST", "/v1/optimize", QUESTION)
    if status != 200:
        console.print(f"[red]{status}: {answer}[/red]")
        return
    show_answer(console, answer)
    console.print(f"Server-Timing: {timings}", soft_wrap=True)
    console.print(f"In a browser: http://{host}:{port}/   Stop: Ctrl-C")
    console.print(f"Documentation: http://{host}:{port}/docs")


def _request(
    host: str, port: int, method: str, path: str, body: Any = None
) -> tuple[int, Any, str]:
    """(status, JSON, Server-Timing); status 0 where nothing answers yet."""
    connection = http.client.HTTPConnection(host, port, timeout=120)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.load(response), response.getheader("Server-Timing", "")
    except OSError:
        return 0, None, ""
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
