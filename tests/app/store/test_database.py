"""Which databases are taken, and what is said of those that can't be."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import MetaData, create_engine, text
from sqlalchemy.exc import TimeoutError as PoolExhausted

from app.errors import EnvironmentLacks
from app.store import migrations
from app.store.database import Database
from app.store.jobs import JobStore
from app.store.launches import LaunchFilter, page
from app.store.tables import metadata
from app.store.urls import database_url, shown_url
from solver.errors import InvalidInput


@pytest.mark.parametrize(
    "value",
    [
        "",
        "jobs.db",
        "mysql://host/name",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:jobs.db?uri=true",
        "sqlite",
        "postgresql://me:hush@host:port/name",
    ],
)
def test_another_database_is_refused_and_one_that_works_is_named(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(InvalidInput) as refused:
        database_url(value)
    assert refused.value.field == "database"
    assert "hush" not in refused.value.message
    suggested = re.findall(r"sqlite:///[^\s:,;]+", refused.value.message)
    assert suggested
    monkeypatch.chdir("/")
    for url in suggested:
        with closing(Database(url)) as database:
            assert str(database.url.database).startswith("/")
            database.open()
    assert (tmp_path / "state" / "warpwright" / "warpwright.db").exists()


def test_a_relative_path_is_shown_from_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Database("sqlite:///jobs.db").shown == f"sqlite:///{tmp_path}/jobs.db"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hush@host/name",
        "postgresql://host/name?user=me&password=hush",
        "postgresql://me:hush@host/name?sslpassword=hush&password=hush&sslmode=require",
    ],
)
def test_no_form_of_a_password_is_shown(url: str) -> None:
    shown = shown_url(database_url(url))
    assert "hush" not in shown
    assert "***" in shown
    assert "host/name" in shown


def test_a_password_is_never_shown() -> None:
    database = Database("postgresql://user:secret@127.0.0.1:1/name")
    assert "secret" not in database.shown
    with pytest.raises(EnvironmentLacks) as refused:
        database.open()
    assert "secret" not in str(refused.value)
    assert "127.0.0.1" in str(refused.value)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentLacks, match="file"):
        Database(f"sqlite:///{tmp_path}/file/jobs.db").open()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_text("not a database, and long enough to be looked at" * 100)
    with pytest.raises(EnvironmentLacks, match=r"jobs\.db"):
        Database(f"sqlite:///{tmp_path}/jobs.db").open()


def test_a_newer_programs_database_is_refused(database: Database) -> None:
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(EnvironmentLacks, match=r"of a newer version of this program: .*9999"):
        database.open()


def test_migrations_lead_to_the_tables(database: Database) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """Permissions of a folder's files."""
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


@pytest.mark.usefixtures("open_umask")
def test_every_file_that_is_made_is_its_owners_alone(tmp_path: Path) -> None:
    with closing(Database(f"sqlite:///{tmp_path}/jobs.db")) as database:
        database.open()
        database.hold()
        with database.write() as connection:
            connection.exec_driver_sql("DELETE FROM jobs")
        assert modes(tmp_path) == dict.fromkeys(
            ("jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.db.service"), 0o600
        )


def test_a_file_that_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    file.touch()
    file.chmod(0o640)
    with closing(Database(f"sqlite:///{file}")) as database:
        database.open()
        assert modes(tmp_path)["jobs.db"] == 0o640


def test_a_folder_in_the_files_place_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "jobs.db"
    folder.mkdir()
    with pytest.raises(EnvironmentLacks, match=r"jobs\.db"):
        Database(f"sqlite:///{folder}").open()


def a_folder(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock.mkdir()


def another_users(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refuse(path: str | Path, *arguments: int, **more: int) -> int:
        if Path(path) == lock:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, *arguments, **more)

    monkeypatch.setattr("app.store.database.os.open", refuse)


def on_a_disk_without_locks(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("app.store.database.fcntl.flock", refuse)


@pytest.mark.parametrize("fault", [a_folder, another_users, on_a_disk_without_locks])
def test_a_lock_that_cannot_be_taken_is_named_with_the_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:
    with closing(Database(f"sqlite:///{tmp_path}/jobs.db")) as database:
        database.open()
        fault(tmp_path / "jobs.db.service", monkeypatch)
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(EnvironmentLacks) as refused:
            database.hold()
        assert len(os.listdir("/proc/self/fd")) == before
    words = str(refused.value)
    assert f"{tmp_path}/jobs.db.service, can't be taken: " in words
    assert words.endswith(("Is a directory", "Permission denied", "No locks available"))


def test_a_lock_is_not_held_where_every_connection_is_in_use() -> None:
    database = Database("postgresql://user@127.0.0.1:1/name")

    def none_left() -> None:
        raise PoolExhausted

    database._engine.connect = none_left  # type: ignore[assignment]
    assert not database.held()


VERSIONS = sorted(
    file.name.partition("_")[0] for file in Path(migrations.__file__).parent.glob("versions/0*.py")
)


def filled(column: Any) -> Any:
    """A value that a column of an earlier version may hold."""
    kind = column.type.python_type
    if kind is str:
        return "1" * min(column.type.length or 32, 32)
    document = {"a": [1]}
    values = {int: 1, float: 1.5, bool: False, dict: document, object: document}
    return datetime(2026, 1, 1, tzinfo=UTC) if kind is datetime else values[kind]


@pytest.mark.parametrize("version", VERSIONS)
def test_no_row_of_an_earlier_version_is_lost(database_url: str, version: str) -> None:
    """A migration that copies a table, as SQLite's do that change a column, must not take along the
    rows of other tables that belong to it."""
    config = Config()
    config.set_main_option("script_location", "app.store:migrations")
    database, earlier = Database(database_url), MetaData()
    engine = create_engine(database.url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, version)
        earlier.reflect(connection)
        tables = [table for table in earlier.sorted_tables if table.name != "alembic_version"]
        assert len(tables) >= 4
        for table in tables:
            row = {column.name: filled(column) for column in table.columns}
            connection.execute(table.insert().values(row))
        before = [connection.execute(table.select()).all() for table in tables]
    with closing(database):
        database.open()
        with database.read() as connection:
            assert [connection.execute(table.select()).all() for table in tables] == before
    engine.dispose()


def test_jobs_and_launches_of_an_earlier_version_are_read(database_url: str) -> None:
    """Tables as of the second migration, with a row in each, brought up to date."""
    config = Config()
    config.set_main_option("script_location", "app.store:migrations")
    database = Database(database_url)
    engine = create_engine(database.url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        moment = "2026-01-01 00:00:00+00:00" if not database.is_sqlite else "2026-01-01 00:00:00"
        connection.execute(
            text(
                "INSERT INTO jobs (id, kind, status, priority, request, attempts, losses, "
                "cancel_requested, key_id, request_sha256, created_at) VALUES "
                f"('{'1' * 32}', 'verification', 'queued', 1, '{{}}', 0, 0, false, '', "
                f"'{'0' * 64}', '{moment}')"
            )
        )
        connection.execute(
            text(
                "INSERT INTO job_events (job_id, number, name, data, at) VALUES "
                f"('{'1' * 32}', 1, 'status', '{{}}', '{moment}')"
            )
        )
        connection.execute(
            text(
                "INSERT INTO launches (job_id, attempt, key_id, at, gpu, request, outcome, "
                f"gpu_seconds) VALUES ('{'2' * 32}', 1, '', '{moment}', 'GPU-0', '{{}}', "
                "'passed', 1.5)"
            )
        )
    engine.dispose()
    with closing(database):
        database.open()
        store = JobStore(database, waiting=5, kept=5)
        job = store.get("1" * 32)
        assert (job.status, job.request_id, job.to_dict()["request_id"]) == ("queued", None, None)
        assert [event.name for event in store.events(job.id)] == ["status"]
        (launch,), _ = page(database, LaunchFilter(), limit=5)
        assert (launch["gpu_seconds"], launch["request_id"], launch["kernels"]) == (1.5, None, None)
        taken = store.claim("GPU-0")
        assert taken is not None
        assert taken.id == job.id
