"""A PostgreSQL server of the tests' own: found, started in a temporary folder, stopped.

    python -m tests.postgres --install    look for the server's programs, have Debian's installed

PostgreSQL refuses to run as root: root's runs as ``nobody``.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from bench import debian

VARIABLE = "WARPWRIGHT_TEST_POSTGRES"
"""Set where the tests of PostgreSQL are to run."""

UNPRIVILEGED = "nobody"
START_S = 30.0


def programs() -> Path | None:
    """The folder of ``initdb`` and ``postgres``, the newest where there are several."""
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    found = sorted(debian, key=lambda path: int(path.parent.name), reverse=True)
    found += [Path(folder) for folder in os.get_exec_path()]
    whole = (f for f in found if (f / "initdb").exists() and (f / "postgres").exists())
    return next(whole, None)


class Postgres:
    """A server on a free port of loopback, in a folder that is gone with it."""

    def __init__(self) -> None:
        where = programs()
        if where is None:
            raise RuntimeError("PostgreSQL is not installed: python -m tests.postgres --install")
        self._programs = where
        self._root = os.geteuid() == 0
        self._folder = Path(tempfile.mkdtemp(prefix="warpwright-postgres-"))
        if self._root:
            shutil.chown(self._folder, UNPRIVILEGED)
        self._data = self._folder / "data"
        self._server: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        command = [where / "initdb", "-D", self._data, "-U", "test", "-A", "trust", "--no-sync"]
        done = subprocess.run(command, capture_output=True, text=True, **self._identity())
        if done.returncode != 0:
            shutil.rmtree(self._folder)
            raise RuntimeError(f"initdb: {done.stdout}{done.stderr}")

    def url(self, database: str = "postgres") -> str:
        """A database's URL."""
        return f"postgresql://test@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": 60,
        }
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, *words],
                stdout=log,
                stderr=log,
                **self._identity(),
            )
        end = time.monotonic() + START_S
        while not self._answers():
            if time.monotonic() > end or self._server.poll() is not None:
                raise RuntimeError((self._folder / "log").read_text())
            time.sleep(0.05)
        with suppress(psycopg.errors.DuplicateDatabase):
            self.execute("CREATE DATABASE tests")

    def stop(self) -> None:
        """End the server at once, as a machine that loses its power would."""
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait()
            self._server = None

    def close(self) -> None:
        """End the server and remove its folder."""
        self.stop()
        shutil.rmtree(self._folder)

    def emptied(self) -> str:
        """The URL of the tests' database, which nobody else uses and which has nothing in it.

        One for all tests: a database takes three hundred files.
        """
        for statement in (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'tests'",
            "ALTER DATABASE tests RESET ALL",
        ):
            self.execute(statement)
        for statement in ("DROP SCHEMA public CASCADE", "CREATE SCHEMA public"):
            self.execute(statement, "tests")
        return self.url("tests")

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Run a statement as the server's own user."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _identity(self) -> dict[str, Any]:
        if not self._root:
            return {}
        return {"user": UNPRIVILEGED, "extra_groups": (), "cwd": self._folder}


if __name__ == "__main__":
    if sys.argv[1:] != ["--install"]:
        sys.exit(__doc__)
    sys.exit(debian.install("postgresql", programs, "PostgreSQL's server"))
