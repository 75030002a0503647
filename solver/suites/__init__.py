"""Suites: named lists of problems, kept as CSV files whose columns are fields of a problem.

``llm`` holds the products of large language models at several batch sizes, ``paper`` the
512 cubes' regime of arXiv 2506.11209 (M, N, K up to 1,024). A path to a CSV file of the
same form is a suite too.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import Any

from solver.errors import InvalidInput
from solver.limits import shortened
from solver.problem import Problem

SIZES = ("m", "n", "k")
NAMES = ("dtype", "layout", "out_dtype")
OPTIONAL = tuple(field.name for field in fields(Problem) if field.name not in SIZES)


def suite_names() -> tuple[str, ...]:
    """Names of the suites that ship, sorted."""
    files = resources.files("solver.suites").iterdir()
    return tuple(sorted(f.name.removesuffix(".csv") for f in files if f.name.endswith(".csv")))


def load_suite(suite: str) -> tuple[Problem, ...]:
    """The problems of a suite that ships, or of the CSV file at the path ``suite``.

    Raises InvalidInput (field ``suite``) for an unknown name or an unreadable file, and
    with the line's number for a line that is no problem.
    """
    if suite in suite_names():
        text = resources.files("solver.suites").joinpath(f"{suite}.csv").read_text("utf-8")
        return parse_suite(suite, text)
    path = Path(suite)
    if not path.is_file():
        raise InvalidInput(
            "suite",
            f"must be one of {', '.join(suite_names())} or a CSV file that is there, got "
            f"{_shown([suite])}",
        )
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidInput("suite", f"can't be read from {suite!r}: {error}") from error
    return parse_suite(suite, text)


def parse_suite(name: str, text: str) -> tuple[Problem, ...]:
    """The problems of a CSV text: a header with m, n, k and any other fields of a problem, then
    rows. An empty cell of such a field is its default.

    Raises InvalidInput (field ``suite``) naming the line that breaks a rule.
    """
    rows = _rows(name, text)
    header = [column.strip() for column in next(rows, (1, []))[1]]
    unknown = [column for column in header if column not in SIZES + OPTIONAL]
    if unknown or len(set(header)) != len(header) or not set(SIZES) <= set(header):
        raise InvalidInput(
            "suite",
            f"{name}, line 1: the header must name m, n, k and may name {', '.join(OPTIONAL)}, "
            f"got {_shown(header)}",
        )
    problems = [_problem(name, line, header, row) for line, row in rows if any(map(str.strip, row))]
    if not problems:
        raise InvalidInput("suite", f"{name}: must hold at least one problem")
    return tuple(problems)


def _rows(name: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """(the line's number, its cells) of every line; a row is a line, a quoted one too."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InvalidInput("suite", f"{name}, line {line}: is no CSV: {error}") from None
        if row is None:
            return
        if any("\n" in cell or "\r" in cell for cell in row):
            raise InvalidInput("suite", f"{name}, line {line}: a cell must not hold a line break")
        yield line, row


def _shown(row: list[str]) -> str:
    """A row in a message, cut where it is long."""
    return shortened(repr(",".join(row)))


def _problem(name: str, line: int, header: list[str], row: list[str]) -> Problem:
    if len(row) != len(header):
        raise InvalidInput(
            "suite", f"{name}, line {line}: must have {len(header)} cells, got {len(row)}"
        )
    cells = {column: cell.strip() for column, cell in zip(header, row, strict=True)}
    given = {column: cell for column, cell in cells.items() if cell or column in SIZES}
    numbers = {column: cell for column, cell in given.items() if column not in NAMES}
    for column, cell in numbers.items():
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", cell):
            raise InvalidInput(
                "suite",
                f"{name}, line {line}: {column} must be an integer of at most 20 digits, "
                f"got {_shown([cell])}",
            )
    values: dict[str, Any] = given | {column: int(cell) for column, cell in numbers.items()}
    try:
        return Problem(**values)
    except InvalidInput as error:
        raise InvalidInput("suite", f"{name}, line {line}: {error}") from error
