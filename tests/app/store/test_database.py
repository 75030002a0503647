"""Which databases are taken, and what is said of those that can't be."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import EnvironmentLacks
from app.store.database import Database, database_url
from app.store.tables import metadata
from solver.errors import InvalidInput


@pytest.mark.parametrize(
    "value",
    ["", "jobs.db", "mysql://host/name", "sqlite://", "sqlite:///:memory:", "sqlite"],
)
def test_another_database_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        database_url(value)
    assert refused.value.field == "database"


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
    with pytest.raises(EnvironmentLacks, match="9999"):
        database.open()


def test_migrations_lead_to_the_tables(database: Database) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
