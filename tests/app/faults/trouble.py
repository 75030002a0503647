"""What goes wrong with databases, done to real ones: locked, gone, full or read-only."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from app.store.database import Database
from tests.postgres import Postgres


class SqliteTrouble:
    """Trouble with a file."""

    def __init__(self, database: Database) -> None:
        self._file = Path(database.url.database or "")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Another process writes and does not come to an end."""
        with closing(sqlite3.connect(self._file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")

    @contextmanager
    def gone(self) -> Iterator[None]:
        """The file is moved away, as a volume that is lost, and comes back."""
        away = self._file.with_suffix(".away")
        self._file.rename(away)
        yield
        away.rename(self._file)

    @contextmanager
    def unwritable(self) -> Iterator[None]:
        """This process may not let a file grow past what the journal has, as on a full disk."""
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = self._file.with_name(f"{self._file.name}-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


class PostgresTrouble:
    """Trouble with a server."""

    def __init__(self, database: Database, server: Postgres) -> None:
        self._name = str(database.url.database)
        self._server = server

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Another session holds the table."""
        with psycopg.connect(self._server.url(self._name)) as other:
            other.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
            yield
            other.rollback()

    @contextmanager
    def gone(self) -> Iterator[None]:
        """The server loses its power and starts again."""
        self._server.stop()
        try:
            yield
        finally:
            self._server.start()

    @contextmanager
    def unwritable(self) -> Iterator[None]:
        """The server takes no writes, as managed ones do when their disk is full."""
        self._read_only("on")
        try:
            yield
        finally:
            self._read_only("off")

    def _read_only(self, value: str) -> None:
        self._server.execute(
            f"ALTER DATABASE {self._name} SET default_transaction_read_only = {value}"
        )
        self._server.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self._name}'"
        )
