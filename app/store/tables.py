"""The database's tables, as SQLAlchemy knows them; ``migrations`` brings a database to them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator, TypeEngine

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Moment(TypeDecorator[datetime]):
    """A moment in UTC. SQLite keeps no time zone: it is taken off on the way in and put back."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a moment needs its time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class _AsItIs(sqlite.DATETIME):
    """SQLite's moment; what is none comes back as it stands there."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        read = super().result_processor(dialect, coltype)
        assert read is not None

        def read_or_keep(value: Any) -> Any:
            try:
                return read(value)
            except (TypeError, ValueError):
                return value

        return read_or_keep


class ShownMoment(Moment):
    """A moment by which nothing is decided. A damaged one, which SQLite may have, comes back as it
    is: it must not hide its row."""

    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(_AsItIs())  # type: ignore[no-untyped-call]
        return super().load_dialect_impl(dialect)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        is_one = isinstance(value, datetime)
        return super().process_result_value(value, dialect) if is_one else value


DOCUMENT = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
SERIAL = BigInteger().with_variant(Integer(), "sqlite")  # SQLite numbers rows of INTEGER alone

jobs = Table(
    "jobs",
    metadata,
    # Order of acceptance, never used twice: pages go by it.
    Column("number", SERIAL, primary_key=True),
    # Order of ending, none while it has not: the first to end are forgotten first.
    Column("ended", SERIAL, index=True),
    Column("id", String(32), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("status", String(16), nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("reason", String(64)),
    Column("request", DOCUMENT, nullable=False),
    Column("result", DOCUMENT),
    # The number of its present or last run, and how many of its runs were lost.
    Column("attempts", Integer, nullable=False),
    Column("losses", Integer, nullable=False),
    Column("gpu", String(100)),
    Column("cancel_requested", Boolean, nullable=False),
    Column("key_id", String(16), nullable=False),
    Column("idempotency_key", String(255)),
    Column("request_sha256", String(64), nullable=False),
    # Of the request that handed it in: the service's log names it too.
    Column("request_id", String(64)),
    Column("created_at", ShownMoment, nullable=False),
    Column("started_at", ShownMoment),
    Column("finished_at", ShownMoment),
    UniqueConstraint("key_id", "idempotency_key"),
    Index(None, "status", "priority", "number"),
    sqlite_autoincrement=True,
)

job_events = Table(
    "job_events",
    metadata,
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", String(32), nullable=False),
    Column("data", DOCUMENT, nullable=False),
    Column("at", ShownMoment, nullable=False),
)

# What a job measures row by row, recorded as it comes. ``basis`` is a digest of what rows must have
# in common to stand beside one another: a later run goes on with those of its own.
result_rows = Table(
    "result_rows",
    metadata,
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("basis", String(64), nullable=False),
    Column("data", DOCUMENT, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("name", String(100), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("scopes", DOCUMENT, nullable=False),
    Column("requests_per_minute", Integer),
    Column("gpu_seconds_per_day", Float),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment),
    Column("revoked_at", Moment),
)

launches = Table(
    "launches",
    metadata,
    Column("number", SERIAL, primary_key=True),
    # Kept when the job is forgotten, so no foreign key.
    Column("job_id", String(32), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("key_id", String(16), nullable=False),
    Column("at", ShownMoment, nullable=False),
    Column("gpu", String(100), nullable=False),
    Column("request", DOCUMENT, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("reason", String(64)),
    Column("detail", Text),
    Column("gpu_seconds", Float, nullable=False),
    Column("request_id", String(64)),
    # The ids of those that the run launched.
    Column("kernels", DOCUMENT),
    UniqueConstraint("job_id", "attempt"),
    Index(None, "key_id", "at"),
    sqlite_autoincrement=True,
)

measurements = Table(
    "measurements",
    metadata,
    # Order of measuring, never used twice: answers name the one they rest on.
    Column("number", SERIAL, primary_key=True),
    # Kept when the job is forgotten, so no foreign key.
    Column("verification_id", String(32), nullable=False, unique=True),
    Column("at", ShownMoment, nullable=False),
    Column("problem_sha256", String(64), nullable=False),
    Column("problem", DOCUMENT, nullable=False),
    Column("cache", String(8), nullable=False),
    # What it holds for: another driver, compiler or kernel is another measurement.
    Column("profile", String(64), nullable=False),
    Column("device", String(100), nullable=False),
    Column("driver", String(64), nullable=False),
    Column("nvrtc", String(32), nullable=False),
    Column("source_hash", String(64), nullable=False),
    # What was predicted of the pick, and by which model.
    Column("model_version", String(16), nullable=False),
    Column("profile_sha256", String(64), nullable=False),
    Column("config", DOCUMENT, nullable=False),
    Column("predicted_us", Float, nullable=False),
    Column("measured_us", Float, nullable=False),
    # How many were raced, the pick among them, and what surely beat the pick.
    Column("candidates", Integer, nullable=False),
    Column("winner", DOCUMENT),
    Index(None, "profile", "problem_sha256", "number"),
    sqlite_autoincrement=True,
)
