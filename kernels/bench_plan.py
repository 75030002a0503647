"""Plan files of the bench runner: rows made elsewhere, read and checked here.

A plan is JSON: ``suite``, ``cache``, ``commit``, ``source_hash`` and ``rows``, each with
``suite``, ``cache``, ``role`` (pick | best | sample | regret), the fields of the problem (``m``,
``n``, ``k``; the others where they are not Problem's defaults), ``config``, ``predicted_us`` and,
optionally, ``check`` (true) and ``of`` (words, of a row of role ``regret`` why it is tried). Rows
of role ``best`` for one problem are candidates: the fastest is reported. Those of role ``regret``
are raced against one another, and each is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from sys import float_info
from typing import Any

from kernels.files import parse_json, read_bytes
from solver.config import Config
from solver.errors import InvalidInput
from solver.families.sm90_gemm import CompileKey, compile_key
from solver.problem import CACHES, Problem

ROLES = ("pick", "best", "sample", "regret")
TOGETHER = ("best", "regret")
"""Roles of which the rows of one problem are one job."""

DEFAULTS = {"suite": "unnamed", "cache": "cold"}
"""What a plan has for rows that don't say it."""

_OPTIONAL = tuple(field.name for field in fields(Problem) if field.default is not MISSING)


def problem_of(row: Mapping[str, Any]) -> Problem:
    """The problem of a row of a plan or a result; fields it does not have are the defaults.

    Raises KeyError where m, n or k is missing, InvalidProblem for a value out of its limits.
    """
    optional = {name: row[name] for name in _OPTIONAL if name in row}
    return Problem(row["m"], row["n"], row["k"], **optional)


class InvalidPlan(InvalidInput):
    """A plan file that can't be read; ``field`` is the place in it."""


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One row of a plan."""

    suite: str
    cache: str
    role: str
    problem: Problem
    config: Config
    predicted_us: float | None
    check: bool
    of: tuple[str, ...] = ()

    def identity(self) -> dict[str, Any]:
        """The row's own fields, all of the problem's among them, as the result repeats them."""
        return {
            "suite": self.suite,
            "cache": self.cache,
            "role": self.role,
            **self.problem.to_dict(),
            "config": self.config.to_dict(),
            "predicted_us": self.predicted_us,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan file. ``source_hash`` is that of the kernels it was made for, None if unsaid."""

    suite: str
    cache: str
    commit: str | None
    source_hash: str | None
    rows: tuple[PlanRow, ...]

    def keys(self) -> tuple[CompileKey, ...]:
        """The compile keys its rows need, sorted."""
        keys = {compile_key(r.config, r.problem.dtype, r.problem.kernel_layout) for r in self.rows}
        return tuple(sorted(keys))

    def jobs(self) -> tuple[tuple[PlanRow, ...], ...]:
        """Rows as they are run: each alone, but candidates of one problem (TOGETHER) at the place
        of the first."""
        jobs: dict[Any, list[PlanRow]] = {}
        for index, row in enumerate(self.rows):
            together = row.role in TOGETHER
            same = (row.role, row.suite, row.cache, row.problem) if together else index
            jobs.setdefault(same, []).append(row)
        return tuple(tuple(job) for job in jobs.values())


def _words(raw: Any, place: str) -> tuple[str, ...]:
    if not isinstance(raw, list) or not all(isinstance(word, str) for word in raw):
        raise InvalidPlan(place, "must be a list of words")
    return tuple(raw)


def _text(raw: Mapping[str, Any], name: str, place: str, default: str) -> str:
    value = raw.get(name, default)
    if not isinstance(value, str):
        raise InvalidPlan(f"{place}{name}", f"must be text, got {value!r}")
    return value


def _said(raw: Mapping[str, Any], name: str) -> str | None:
    return None if raw.get(name) is None else _text(raw, name, "", "")


def _predicted_us(value: Any, place: str) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 < value <= float_info.max:
        raise InvalidPlan(
            f"{place}.predicted_us", f"must be null or a finite number above 0, got {value!r}"
        )
    return float(value)


def _row(raw: Any, place: str, defaults: dict[str, str]) -> PlanRow:
    if not isinstance(raw, dict):
        raise InvalidPlan(place, "must be an object")
    try:
        problem = problem_of(raw)
        config = Config.from_dict(raw["config"])
    except KeyError as error:
        raise InvalidPlan(place, f"lacks {error.args[0]}") from error
    except InvalidInput as error:
        raise InvalidPlan(f"{place}.{error.field}", error.message) from error
    row = PlanRow(
        suite=_text(raw, "suite", f"{place}.", defaults["suite"]),
        cache=raw.get("cache", defaults["cache"]),
        role=raw.get("role", "pick"),
        problem=problem,
        config=config,
        predicted_us=_predicted_us(raw.get("predicted_us"), place),
        check=raw.get("check", True),
        of=_words(raw.get("of", []), f"{place}.of"),
    )
    if row.role not in ROLES:
        raise InvalidPlan(f"{place}.role", f"must be one of {', '.join(ROLES)}, got {row.role!r}")
    if row.cache not in CACHES:
        raise InvalidPlan(
            f"{place}.cache", f"must be one of {', '.join(CACHES)}, got {row.cache!r}"
        )
    if not isinstance(row.check, bool):
        raise InvalidPlan(f"{place}.check", f"must be true or false, got {row.check!r}")
    return row


def parse_plan(text: str | bytes, name: str = "") -> Plan:
    """A plan from its JSON text, which errors call ``name`` as in ``parse_json``.

    Raises InvalidInput where it is none, InvalidPlan, which names the row and the field.
    """
    raw = parse_json(text, "plan", name)
    if not isinstance(raw, dict) or not isinstance(raw.get("rows"), list):
        raise InvalidPlan("plan", "must be an object with a list of rows")
    if not raw["rows"]:
        raise InvalidPlan("rows", "must hold at least one row")
    defaults = {name: _text(raw, name, "", word) for name, word in DEFAULTS.items()}
    rows: Sequence[PlanRow] = [
        _row(row, f"rows[{index}]", defaults) for index, row in enumerate(raw["rows"])
    ]
    return Plan(
        **defaults,
        commit=_said(raw, "commit"),
        source_hash=_said(raw, "source_hash"),
        rows=tuple(rows),
    )


def read_plan(path: Path) -> Plan:
    """The plan in a file. Raises InvalidInput where it can't be read, InvalidPlan as above."""
    return parse_plan(read_bytes(path, "plan"), f"{path} ")
