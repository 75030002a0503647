"""The connection to SQLite or PostgreSQL: opened once, brought to the present tables, held by one
service at a time.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    NotSupportedError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.pool import QueuePool

from app.errors import EnvironmentLacks, StoreUnavailable
from app.store.urls import database_url, shown_url

BUSY_TIMEOUT_S = 5.0
"""How long a statement waits for another's lock, and a connection for PostgreSQL's answer."""

_DEFECTS = (DataError, IntegrityError, NotSupportedError, ProgrammingError)
"""Statements that are wrong. Every other failure is the database's: a file that is locked, full,
damaged or read-only, a server that does not answer."""

log = logging.getLogger(__name__)

SERVICE_LOCK = 0x57617270777269  # "Warpwri", PostgreSQL's advisory locks go by number
LOCK_POLL_S = 0.1
LOCK_SUFFIX = ".service"


class Database:
    """An engine on one database; every statement's failure to reach it is StoreUnavailable.

    Safe to use from several threads. ``open`` brings the tables to the present; ``hold`` keeps
    other services off until ``close``.
    """

    def __init__(self, url: str) -> None:
        self.url = database_url(url)
        self._engine = _engine(self.url)
        self._file = Path(self.url.database or "")
        self._identity: tuple[int, int] | None = None
        self._lock: _FileLock | _AdvisoryLock = (
            _FileLock(self._file) if self.is_sqlite else _AdvisoryLock(self._engine)
        )
        self._locking = threading.Lock()

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file of SQLite's."""
        return self.url.get_backend_name() == "sqlite"

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return shown_url(self.url)

    @property
    def absent(self) -> bool:
        """Whether it is a file that is not there; ``open`` makes it."""
        return self.is_sqlite and not self._file.exists()

    def open(self) -> None:
        """Make the file, its owner's alone, with its folder, and bring the tables to the present.
        Raises EnvironmentLacks where this can't be done, for a database of a newer program too."""
        from alembic.util import CommandError  # slow to import, and only a start needs it

        try:
            if self.is_sqlite:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                _make_private(self._file)
            migrate(self._engine)
            if self.is_sqlite:
                self._identity = _identity(self._file)
        except CommandError as error:
            raise EnvironmentLacks(
                f"the database {self.shown} has tables of a newer version of this program: {error}"
            ) from error
        except (OSError, SQLAlchemyError) as error:
            raise EnvironmentLacks(f"the database {self.shown}: {_reason(error)}") from error

    def hold(self, wait_s: float = 0.0) -> None:
        """Be the one service of this database, or EnvironmentLacks after ``wait_s`` seconds."""
        end = time.monotonic() + wait_s
        while not self.held():
            if time.monotonic() >= end:
                raise EnvironmentLacks(
                    f"another service works with the database {self.shown}; "
                    "give this one its own, as WARPWRIGHT_DATABASE=sqlite:////folder/file.db"
                )
            time.sleep(LOCK_POLL_S)

    def held(self) -> bool:
        """Whether this service still holds the database: PostgreSQL lets go of a lost
        connection's lock, which is then taken again where that can be done. Raises EnvironmentLacks
        where SQLite's lock can't be looked at."""
        with self._locking:
            try:
                return self._lock.take()
            except OSError as error:
                raise EnvironmentLacks(
                    f"the database {self.shown}: the lock beside it, {self._file}{LOCK_SUFFIX}, "
                    f"can't be taken: {error.strerror or error}"
                ) from error

    def standing(self) -> str:
        """``held``, ``unreachable``, or ``another_service`` where one has taken it over."""
        try:
            with self.read() as connection:
                connection.execute(text("SELECT 1 FROM jobs LIMIT 1"))
        except StoreUnavailable:
            return "unreachable"
        return "held" if self.held() else "another_service"

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that is committed at the end, or not at all."""
        self._require_file()
        with _translated(), self._engine.begin() as connection:
            yield connection
        self._require_file()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that changes nothing."""
        self._require_file()
        with _translated(), self._engine.connect() as connection:
            if self.is_sqlite:
                connection = connection.execution_options(reads=True)
            yield connection

    def close(self) -> None:
        """Let other services in."""
        with self._locking:
            self._lock.release()
        self._engine.dispose()

    def _require_file(self) -> None:
        """SQLite itself would go on writing to a file that was deleted, and lose it all."""
        if self._identity is None:
            return
        try:
            same = _identity(self._file) == self._identity
        except OSError:
            same = False
        if not same:
            raise StoreUnavailable(f"the database can't be used: {self._file} is gone")


def _make_private(file: Path) -> None:
    """An empty file that its owner alone may read, where there is none: SQLite would make one by
    the umask. It gives its journals (-wal, -shm) the permissions of the file they belong to.

    One that is there is not even opened: closing it would let go of this process's locks on it.
    """
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _identity(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_dev, status.st_ino


def migrate(engine: Engine) -> None:
    """Bring a database to the present tables; one that is newer than this program is refused."""
    from alembic import command
    from alembic.config import Config
    from alembic.migration import MigrationContext

    config = Config()
    config.set_main_option("script_location", "app.store:migrations")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        context = MigrationContext.configure(connection)
        before = context.get_current_revision()
        command.upgrade(config, "head")
        after = context.get_current_revision()
    if before != after:
        log.info("the database's tables went from version %s to %s", before or "none", after)


def _engine(url: URL) -> Engine:
    options: dict[str, Any] = {
        "poolclass": QueuePool,
        "pool_pre_ping": True,
        "pool_timeout": BUSY_TIMEOUT_S,
        "json_serializer": partial(json.dumps, allow_nan=False),  # NaN is no JSON to PostgreSQL
        "json_deserializer": _decoded,
    }
    if url.get_backend_name() != "sqlite":
        limit_ms = int(BUSY_TIMEOUT_S * 1e3)
        options["connect_args"] = {
            "connect_timeout": max(1, int(BUSY_TIMEOUT_S)),
            "tcp_user_timeout": limit_ms,  # a server that vanished acknowledges nothing
            "options": f"-c lock_timeout={limit_ms}",
        }
        try:
            return create_engine(url, **options)
        except (ImportError, NoSuchModuleError) as error:
            raise EnvironmentLacks(f"PostgreSQL's driver is missing: {error}") from error
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S}, **options)

    # The driver's own transactions begin too late for WAL: two that read first and then write
    # would fail at once, however long they may wait.
    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        reads = connection.get_execution_options().get("reads", False)
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine


def _decoded(text: str | bytes) -> Any:
    """JSON's value, or the text itself where it is none: a damaged row must not hide the others."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def is_defect(error: Exception) -> bool:
    """Whether a statement or a value is wrong, and not the database out of reach."""
    if isinstance(error, DBAPIError):
        return isinstance(error, _DEFECTS) and not error.connection_invalidated
    return not isinstance(error, SQLAlchemyError)


@contextmanager
def _translated() -> Iterator[None]:
    """The driver's failures as the project's own."""
    try:
        yield
    except DBAPIError as error:
        if is_defect(error):
            raise
        raise StoreUnavailable(f"the database can't be used: {_reason(error)}") from error
    except PoolExhausted as error:
        raise StoreUnavailable("too many wait for the database") from error


def _reason(error: Exception) -> str:
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return " ".join(str(cause).split()) or type(cause).__name__


class _FileLock:
    """A lock on a file beside SQLite's, which ends with its process."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + LOCK_SUFFIX)
        self._file: int | None = None

    def take(self) -> bool:
        if self._file is not None:
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        except OSError:  # a file system without locks
            os.close(file)
            raise
        self._file = file
        return True

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class _AdvisoryLock:
    """PostgreSQL's own lock, which ends with the connection that holds it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    def take(self) -> bool:
        if self._connection is not None:
            with suppress(DBAPIError):
                self._connection.execute(text("SELECT 1"))
                self._connection.commit()
                return True
            self.release()
        connection = None
        try:
            connection = self._engine.connect()
            taken = connection.execute(
                text("SELECT pg_try_advisory_lock(:number)"), {"number": SERVICE_LOCK}
            ).scalar_one()
            connection.commit()
        except (DBAPIError, PoolExhausted):
            taken = False
        if not taken:
            if connection is not None:
                connection.close()
            return False
        self._connection = connection
        return True

    def release(self) -> None:
        if self._connection is not None:
            with suppress(DBAPIError):
                self._connection.invalidate()
                self._connection.close()
            self._connection = None
