"""The measured ground truth of a device: its table's columns, and a reader that needs numpy alone.

The table is a gzipped CSV, one line a (problem, configuration) pair; a JSON file of the same name
beside it says what it was measured with (``docs/ground-truth.md``). It is made by
``kernels.sweep``, its rows are chosen by ``solver.sweep_design``.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from dataclasses import dataclass, fields
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np

from solver.config import Config
from solver.errors import InvalidInput
from solver.problem import CACHES, Problem

WHERE_FIELDS = ("suite", "cache", "role")
PROBLEM_FIELDS = tuple(field.name for field in fields(Problem))
CONFIG_FIELDS = tuple(field.name for field in fields(Config) if field.name != "family")
FIGURES = ("median_us", "p95_us", "sm_clock_mhz", "power_w", "throttle", "reason")
REPEAT_FIGURES = ("repeat_us", "repeat_sm_clock_mhz")
COLUMNS = ("row", *WHERE_FIELDS, *PROBLEM_FIELDS, *CONFIG_FIELDS, *FIGURES, *REPEAT_FIGURES)
GZIP_DAMAGED = (OSError, EOFError, zlib.error)
"""What a gzipped file raises that can't be read, is cut off or was changed."""
WORDS = ("dtype", "layout", "out_dtype")  # of a problem's fields, those that are no integers


@dataclass(frozen=True, slots=True)
class GroundTruthGroup:
    """Timed rows of one problem. ``columns`` are configuration fields, times are in µs; ``p95_us``
    is over a row's replays; ``repeat_us`` is the second measurement of a row, NaN where it was
    measured once."""

    suite: str
    problem: Problem
    cold: bool
    columns: dict[str, np.ndarray[Any, np.dtype[np.int64]]]
    role: np.ndarray[Any, np.dtype[np.str_]]
    measured_us: np.ndarray[Any, np.dtype[np.float64]]
    p95_us: np.ndarray[Any, np.dtype[np.float64]]
    repeat_us: np.ndarray[Any, np.dtype[np.float64]]


def load_ground_truth(path: Path) -> tuple[GroundTruthGroup, ...]:
    """The timed rows of a table, by problem and cache state, in the table's order.

    Raises InvalidInput (field ``ground_truth``) for a file that is no such table.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise InvalidInput("ground_truth", f"{path} has other columns than {COLUMNS}")
            groups: dict[Any, list[dict[str, str]]] = {}
            for row in reader:
                if row["median_us"]:
                    key = tuple(row[name] for name in ("suite", "cache", *PROBLEM_FIELDS))
                    groups.setdefault(key, []).append(row)
            return tuple(_group(rows) for rows in groups.values())
    except (*GZIP_DAMAGED, ValueError, csv.Error) as error:
        raise InvalidInput("ground_truth", f"{path} can't be read: {error}") from error


def problem_of_row(row: dict[str, str]) -> Problem:
    """The problem of a row of the table. Raises InvalidProblem, and ValueError for no number."""
    values: dict[str, Any] = {
        name: row[name] if name in WORDS else int(row[name]) for name in PROBLEM_FIELDS
    }
    return Problem(**values)


def _time_us(text: str) -> float:
    """A time; not a number where there is none. Raises ValueError for another than that."""
    if not text:
        return nan
    time_us = float(text)
    if not 0 < time_us < inf:
        raise ValueError(f"a time must be a finite number above 0, got {text}")
    return time_us


def _group(rows: list[dict[str, str]]) -> GroundTruthGroup:
    def times(name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([_time_us(row[name]) for row in rows])

    if rows[0]["cache"] not in CACHES:
        raise ValueError(f"cache must be {' or '.join(CACHES)}, got {rows[0]['cache']!r}")
    return GroundTruthGroup(
        suite=rows[0]["suite"],
        problem=problem_of_row(rows[0]),
        cold=rows[0]["cache"] == "cold",
        columns={
            name: np.array([int(row[name]) for row in rows], dtype=np.int64)
            for name in CONFIG_FIELDS
        },
        role=np.array([row["role"] for row in rows]),
        measured_us=times("median_us"),
        p95_us=times("p95_us"),
        repeat_us=times("repeat_us"),
    )
