"""What verifications of picks measured, kept when their jobs are forgotten."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, insert, select, true

from app.store.database import Database
from app.store.job import now
from app.store.job_rows import sha256_of
from app.store.launches import PRUNED_AT_ONCE
from app.store.tables import measurements
from solver.problem import Problem


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a measurement holds for: the device's profile and name, its driver, the compiler and the
    kernels' sources."""

    profile: str
    device: str
    driver: str
    nvrtc: str
    source_hash: str


@dataclass(frozen=True, slots=True)
class Measured:
    """A verification of a pick. ``candidates`` were raced, the pick among them; ``winner`` is what
    surely beat it, as ``app.measured_answer.Winner`` has it."""

    verification_id: str
    problem: Problem
    cache: str
    conditions: Conditions
    model_version: str
    profile_sha256: str
    config: Mapping[str, Any]
    predicted_us: float
    measured_us: float
    candidates: int
    winner: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Raced:
    """What the last race of a problem came to, under some conditions."""

    number: int
    verification_id: str
    at: datetime
    problem: Mapping[str, Any]
    cache: str
    winner: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Timed:
    """What a problem's pick took."""

    number: int
    problem: Mapping[str, Any]
    cache: str
    config: Mapping[str, Any]
    measured_us: float


class MeasurementStore:
    """The measurements of one database. Each method is one transaction and may raise
    StoreUnavailable. Safe to use from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, measured: Measured) -> Raced:
        """Remember a measurement, in place of an earlier one of the same verification: a run whose
        end could not be recorded is run again."""
        problem = measured.problem.to_dict()
        key = json.dumps([problem, measured.cache], sort_keys=True)
        values = {
            **{name: getattr(measured, name) for name in _KEPT},
            **asdict(measured.conditions),
            "at": now(),
            "problem": problem,
            "problem_sha256": sha256_of(key),
        }
        table = measurements
        with self._database.write() as connection:
            same = table.c.verification_id == measured.verification_id
            connection.execute(delete(table).where(same))
            row = connection.execute(insert(table).values(values).returning(*_RACED))
            return Raced(**row.mappings().one())

    def races(self, conditions: Conditions) -> list[Raced]:
        """The last race of each problem that was raced under these conditions, in order."""
        races = and_(_under(conditions), measurements.c.candidates > 1)
        last = select(func.max(measurements.c.number)).where(races)
        last = last.group_by(measurements.c.problem_sha256)
        query = select(*_RACED).where(measurements.c.number.in_(last))
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(measurements.c.number)).mappings()
            return [Raced(**row) for row in rows]

    def timings(self, conditions: Conditions, count: int) -> list[Timed]:
        """What the picks of the ``count`` problems measured last under these conditions took, each
        as it was measured last; the last one first."""
        table = measurements
        last = select(func.max(table.c.number)).where(_under(conditions))
        last = last.group_by(table.c.problem_sha256)
        query = select(*_TIMED).where(table.c.number.in_(last)).order_by(table.c.number.desc())
        with self._database.read() as connection:
            rows = connection.execute(query.limit(count)).mappings()
            return [Timed(**row) for row in rows]

    def prune(self, kept: int, conditions: Conditions, *, limit: int = PRUNED_AT_ONCE) -> int:
        """Drop the first measurements beyond the ``kept`` last, at most ``limit`` of them; how many
        were. What answers and drift rest on under these conditions stays: of each problem the last
        measurement and the last race."""
        table = measurements
        last = select(func.max(table.c.number)).scalar_subquery()
        old = table.c.number <= last - kept
        for what in (true(), table.c.candidates > 1):
            used = select(func.max(table.c.number)).where(_under(conditions), what)
            old = and_(old, table.c.number.not_in(used.group_by(table.c.problem_sha256)))
        first = select(table.c.number).where(old).order_by(table.c.number).limit(limit)
        with self._database.write() as connection:
            return connection.execute(delete(table).where(table.c.number.in_(first))).rowcount


_KEPT = (
    *("verification_id", "cache", "model_version", "profile_sha256", "config"),
    *("predicted_us", "measured_us", "candidates", "winner"),
)
_RACED = tuple(
    measurements.c[name]
    for name in ("number", "verification_id", "at", "problem", "cache", "winner")
)

_TIMED = tuple(
    measurements.c[name] for name in ("number", "problem", "cache", "config", "measured_us")
)


def _under(conditions: Conditions) -> ColumnElement[bool]:
    return and_(*(measurements.c[name] == value for name, value in asdict(conditions).items()))
