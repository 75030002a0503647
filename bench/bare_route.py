"""A FastAPI application of one route that returns bytes as they are: what a service in Python
can do at best, to hold ours against.

    python -m bench.bare_route FILE

answers GET /v1/optimize with the file's bytes on a free port of loopback, which it prints as
``{"port": N}``.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Response


def application(body: bytes) -> FastAPI:
    """The application."""
    app = FastAPI()

    @app.get("/v1/optimize")
    async def bare() -> Response:
        return Response(body, media_type="application/json")

    return app


def main() -> None:
    """Serve until terminated."""
    app = application(Path(sys.argv[1]).read_bytes())
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
