"""What a sweep leaves while it runs, so that it may be killed at any moment, and go on.

A shard has two files: a CSV to which each measurement is appended, a line at a time, and a JSON
head that says what is measured, on what and how. The CSV is not compressed: a gzip member cut by a
kill would have to be repaired, a line that was cut is dropped. ``kernels.sweep_merge`` makes the
compressed table of whole shards.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from kernels.files import read_json, replace_whole
from kernels.sweep_runner import Figures
from solver.errors import InvalidInput
from solver.ground_truth import CONFIG_FIELDS, FIGURES, PROBLEM_FIELDS, WHERE_FIELDS
from solver.sweep_design import SweepRow

COLUMNS = ("row", "turn", *WHERE_FIELDS, *PROBLEM_FIELDS, *CONFIG_FIELDS, *FIGURES)
HEAD = {"facts": dict, "shard": int, "shards": int, "planned": int, "dates": list}
BETWEEN = "+"
"""Between the words of a cell that has several."""

AS_BEFORE = {"seed": "--seed", "design_rows": "--design", "commit": "--commit"}
"""Facts of a head that an option sets."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The ``index``-th of ``count`` parts of a sweep."""

    index: int = 0
    count: int = 1

    @property
    def stem(self) -> str:
        """Its files' name."""
        return f"shard_{self.index}_of_{self.count}"


def heads(folder: Path) -> list[Path]:
    """Heads of the shards in a folder, sorted."""
    return sorted(folder.glob("shard_*_of_*.json"))


def read_head(path: Path) -> dict[str, Any]:
    """A shard's head. Raises InvalidInput (field ``out``)."""
    head = read_json(path, "out")
    if not isinstance(head, dict) or any(
        not isinstance(head.get(name), kind) for name, kind in HEAD.items()
    ):
        raise InvalidInput("out", f"{path} is no head of a sweep")
    return head


def read_rows(path: Path) -> list[dict[str, str]]:
    """The whole lines of a shard's CSV; a last one without its end is not looked at.

    Raises InvalidInput (field ``out``) naming a line that is none of a sweep's.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidInput("out", f"{path} can't be read: {error.strerror}") from error
    return list(_parse(path, data[: _whole(data)]))


def _whole(data: bytes) -> int:
    """Bytes up to the end of the last whole line."""
    return data.rfind(b"\n") + 1


def _parse(path: Path, data: bytes) -> Iterator[dict[str, str]]:
    try:
        reader = csv.reader(io.StringIO(data.decode(), newline=""), strict=True)
        for number, cells in enumerate(reader, start=1):
            if number == 1:
                if tuple(cells) != COLUMNS:
                    raise InvalidInput("out", f"{path}, line 1: has other columns than a sweep's")
                continue
            row = dict(zip(COLUMNS, cells, strict=False))
            if len(cells) != len(COLUMNS) or not all(row[n].isdecimal() for n in COLUMNS[:2]):
                raise InvalidInput("out", f"{path}, line {number}: is none of a sweep's")
            yield row
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput("out", f"{path} is no CSV: {error}") from error


def line(cells: list[Any]) -> bytes:
    """One line of CSV, ended."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


def figure_cells(figures: Figures) -> list[Any]:
    """The cells of FIGURES; times to a tenth of a nanosecond."""

    def rounded(value: float | None, digits: int) -> float | str:
        return "" if value is None else round(value, digits)

    return [
        rounded(figures.median_us, 4),
        rounded(figures.p95_us, 4),
        "" if figures.sm_clock_mhz is None else figures.sm_clock_mhz,
        rounded(figures.power_w, 1),
        BETWEEN.join(figures.throttle),
        figures.reason or "",
    ]


def difference(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first fact that is not the same: its name, theirs, ours. None where all are."""
    for name in dict.fromkeys((*ours, *theirs)):
        was, now = theirs.get(name), ours.get(name)
        if isinstance(was, dict) and isinstance(now, dict):
            if inner := difference(was, now):
                return f"{name}.{inner[0]}", *inner[1:]
        elif was != now:
            return name, was, now
    return None


def _refuse_other(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raise InvalidInput (field ``out``) where a shard was begun with other facts than these."""
    other = difference(theirs, ours)
    if other is None:
        return
    name, was, now = other
    same = f", or {AS_BEFORE[name]} {was} as before" if name in AS_BEFORE and was else ""
    raise InvalidInput(
        "out",
        f"{path} was begun with {name} {was}, here it is {now}: give --out another folder{same}",
    )


class ShardFile:
    """A shard's files, open for more rows. A context manager.

    ``facts`` is what rows must have in common to stand in one table, JSON values by name.
    Raises InvalidInput (field ``out``) where the files are of other facts, are no sweep's, can't
    be written, or are being written by another process.
    """

    def __init__(self, folder: Path, shard: Shard, facts: Mapping[str, Any], planned: int) -> None:
        self._head_path = folder / f"{shard.stem}.json"
        self._path = folder / f"{shard.stem}.csv"
        self._head: dict[str, Any] = {
            "facts": json.loads(json.dumps(facts)),
            "shard": shard.index,
            "shards": shard.count,
            "planned": planned,
            "dates": [],
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise InvalidInput("out", f"{self._path} can't be opened: {error.strerror}") from error
        try:
            self._resume()
        except BaseException:
            os.close(self._file)
            raise

    def _resume(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InvalidInput("out", f"another sweep is writing {self._path}") from error
        size = os.fstat(self._file).st_size
        if self._head_path.exists():
            before = read_head(self._head_path)
            _refuse_other(self._head_path, before["facts"], self._head["facts"])
            self._head["dates"] = before["dates"]
        elif size:
            raise InvalidInput("out", f"{self._path} has no {self._head_path.name} beside it")
        self._head["dates"].append(datetime.now(UTC).isoformat(timespec="seconds"))
        data = self._path.read_bytes()
        whole = _whole(data)
        rows = list(_parse(self._path, data[:whole]))
        self.failed = sum(bool(row["reason"]) for row in rows)
        self.done = {(int(row["row"]), int(row["turn"])) for row in rows}
        if len(self.done) != len(rows):
            raise InvalidInput("out", f"{self._path} holds some row twice")
        self._write_head()  # first, so that there is never a row without its head
        if whole < len(data):
            os.ftruncate(self._file, whole)
        if not whole:
            self._append(line(list(COLUMNS)))

    def __enter__(self) -> ShardFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._write_head()
        finally:
            os.close(self._file)

    def add(self, index: int, turn: int, row: SweepRow, figures: Figures) -> None:
        """Append one measurement; it is in the file when this returns."""
        where = [row.suite, row.cache, row.role]
        problem, config = row.problem.to_dict(), row.config.to_dict()
        self._append(
            line(
                [
                    index,
                    turn,
                    *where,
                    *(problem[name] for name in PROBLEM_FIELDS),
                    *(config[name] for name in CONFIG_FIELDS),
                    *figure_cells(figures),
                ]
            )
        )
        self.done.add((index, turn))
        self.failed += figures.reason is not None

    def _append(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            raise InvalidInput("out", f"{self._path} can't be written: {error.strerror}") from error

    def _write_head(self) -> None:
        counts = {
            "measured": len(self.done),
            "failed": self.failed,
            "complete": len(self.done) == self._head["planned"],
        }
        text = json.dumps(self._head | counts, indent=1, allow_nan=False) + "\n"
        try:
            replace_whole(self._head_path, text.encode())
        except OSError as error:
            raise InvalidInput(
                "out", f"{self._head_path} can't be written: {error.strerror}"
            ) from error
