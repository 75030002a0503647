"""Suites: named lists of problems, kept as CSV files with the columns m, n, k and dtype.

``llm`` holds the products of large language models at several batch sizes, ``paper`` the
512 cubes' regime of arXiv 2506.11209 (M, N, K up to 1,024). A path to a CSV file of the
same form is a suite too.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from solver.errors import InvalidInput
from solver.problem import Problem

SIZES = ("m", "n", "k")
OPTIONAL = ("dtype", "layout")


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
        return parse_suite(suite, text.splitlines())
    path = Path(suite)
    if not path.is_file():
        raise InvalidInput(
            "suite", f"must be one of {', '.join(suite_names())} or a CSV file, got {suite!r}"
        )
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("suite", f"can't be read from {suite!r}: {error}") from error
    return parse_suite(suite, text.splitlines())


def parse_suite(name: str, lines: Iterable[str]) -> tuple[Problem, ...]:
    """The problems of a CSV text: a header with m, n, k (dtype, layout optional), then rows.

    Raises InvalidInput (field ``suite``) naming the line that breaks a rule.
    """
    reader = csv.reader(lines)
    header = [column.strip() for column in next(reader, [])]
    unknown = [column for column in header if column not in SIZES + OPTIONAL]
    if unknown or len(set(header)) != len(header) or not set(SIZES) <= set(header):
        raise InvalidInput(
            "suite",
            f"{name}, line 1: the header must name m, n, k and may name dtype and layout, "
            f"got {','.join(header)!r}",
        )
    problems = []
    for row in reader:
        if not any(cell.strip() for cell in row):
            continue
        problems.append(_problem(name, reader.line_num, header, row))
    if not problems:
        raise InvalidInput("suite", f"{name}: must hold at least one problem")
    return tuple(problems)


def _problem(name: str, line: int, header: list[str], row: list[str]) -> Problem:
    if len(row) != len(header):
        raise InvalidInput(
            "suite", f"{name}, line {line}: must have {len(header)} cells, got {len(row)}"
        )
    cells = {column: cell.strip() for column, cell in zip(header, row, strict=True)}
    try:
        m, n, k = (int(cells.pop(column)) for column in SIZES)
    except ValueError:
        raise InvalidInput(
            "suite", f"{name}, line {line}: m, n and k must be integers, got {','.join(row)!r}"
        ) from None
    try:
        return Problem(m, n, k, **cells)
    except InvalidInput as error:
        raise InvalidInput("suite", f"{name}, line {line}: {error}") from error
