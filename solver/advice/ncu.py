"""Nsight Compute's CSV: ``ncu --csv`` with ``--page raw`` or ``--page details``.

raw has a column for each metric, a row of units and a row for each launch; details, and the output
of ``ncu --csv`` while it profiles, a row for each metric of each launch. Lines before the header
and lines that begin with ``==`` are Nsight Compute's own words.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from solver.errors import InvalidInput
from solver.limits import shortened

FIELD = "ncu_csv"
MAX_CHARS = 2**24
MAX_COLUMNS = 10_000
MAX_ROWS = 200_000
LISTED = 8  # launches that a message names

ID, KERNEL, UNIT, NAME, VALUE = "ID", "Kernel Name", "Metric Unit", "Metric Name", "Metric Value"
BLOCK, GRID, CAPABILITY = "Block Size", "Grid Size", "CC"
OWN_WORDS = "=="
PLAIN = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
ELSEWHERE = re.compile(
    r"[+-]?(\d{1,3}(\.\d{3})+,\d+|\d{1,3}(\.\d{3}){2,}|\d+,(\d{1,2}|\d{4,})|0\d*,\d+)"
)
"""Numbers whose comma is the decimal point, where one can tell."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric as it is written, and its unit."""

    text: str
    unit: str


@dataclass(slots=True)
class Launch:
    """A launch that was profiled: its number, its kernel, and metrics by name; a name may stand for
    several, with different units."""

    id: str
    kernel: str
    metrics: dict[str, list[Metric]] = field(default_factory=dict)

    def add(self, name: str, text: str, unit: str) -> None:
        """Take a metric, unless it has no value."""
        if text.strip():
            self.metrics.setdefault(name, []).append(Metric(text.strip(), unit.strip()))


def read_launch(text: str, kernel: str | None = None) -> Launch:
    """The launch that ``kernel`` names: its ID, its kernel's name or a part of it.

    Raises InvalidInput under ``ncu_csv`` for what is no such export, under ``kernel`` where no
    launch or several are named.
    """
    return _chosen(read_launches(text), kernel)


def read_launches(text: str) -> list[Launch]:
    """All launches of an export, in its order."""
    if len(text) > MAX_CHARS:
        raise InvalidInput(FIELD, f"must have at most {MAX_CHARS} characters, got {len(text)}")
    rows = _rows(text)
    header = [name.strip() for name in next(rows, [])]
    if len(header) > MAX_COLUMNS:
        raise InvalidInput(FIELD, f"must have at most {MAX_COLUMNS} columns, got {len(header)}")
    if doubled := [name for name, count in Counter(header).items() if count > 1 and name]:
        raise InvalidInput(FIELD, f"has the column {shortened(min(doubled))} twice")
    if ID not in header or KERNEL not in header:
        raise InvalidInput(
            FIELD,
            f"has no header with {ID} and {KERNEL}; `ncu --csv --page raw --import FILE` makes one",
        )
    launches: dict[str, Launch] = {}
    if NAME in header and VALUE in header:
        _read_long(header, rows, launches)
    else:
        _read_wide(header, rows, launches)
    if not launches:
        raise InvalidInput(FIELD, "has no launch below its header")
    return list(launches.values())


def number(metric: str, text: str) -> float | None:
    """A number with or without thousands separators; None for what is not available.

    Raises InvalidInput naming the metric for anything else.
    """
    if text.lower() in ("n/a", "nan", "(!) n/a", "-"):
        return None
    if GROUPED.fullmatch(text):
        return float(text.replace(",", ""))
    if PLAIN.fullmatch(text):
        return float(text)
    raise InvalidInput(FIELD, f"{metric} must be a number, got {shortened(repr(text))}")


def _rows(text: str) -> Iterator[list[str]]:
    """The header and what follows, without Nsight Compute's own words."""
    lines = iter(text.removeprefix("\ufeff").splitlines())
    for line in lines:
        if KERNEL in line and not line.startswith(OWN_WORDS):
            break
    else:
        raise InvalidInput(FIELD, f"has no header: no line with {KERNEL}")

    def rest() -> Iterator[str]:
        yield line
        yield from (below for below in lines if below and not below.startswith(OWN_WORDS))

    reader = csv.reader(rest(), strict=True)
    try:
        for count, row in enumerate(reader):
            if count > MAX_ROWS:
                raise InvalidInput(FIELD, f"must have at most {MAX_ROWS} rows")
            yield row
    except csv.Error as error:
        raise InvalidInput(FIELD, f"row {reader.line_num} is no CSV: {error}") from None


def _read_long(header: list[str], rows: Iterator[list[str]], launches: dict[str, Launch]) -> None:
    for count, row in enumerate(rows, start=2):
        values = _by_name(header, row, count, short=True)
        launch = _launch(values, launches)
        if name := values.get(NAME, "").strip():
            launch.add(name, values.get(VALUE, ""), values.get(UNIT, ""))


def _read_wide(header: list[str], rows: Iterator[list[str]], launches: dict[str, Launch]) -> None:
    units: dict[str, str] | None = None
    for count, row in enumerate(rows, start=2):
        values = _by_name(header, row, count)
        if units is None:
            if values[ID].strip():
                raise InvalidInput(FIELD, "row 2 must have the units, and no ID")
            units = values
            continue
        if values[ID].strip() in launches:
            raise InvalidInput(FIELD, f"has the ID {shortened(values[ID])} twice")
        launch = _launch(values, launches)
        for name, text in values.items():
            if name not in (ID, KERNEL, BLOCK, GRID, CAPABILITY):
                launch.add(name, text, units[name])


def _by_name(
    header: list[str], row: list[str], count: int, *, short: bool = False
) -> dict[str, str]:
    """A row's values by column. ``short``: the last columns, which rules have, may be left out."""
    if len(row) > len(header) or (len(row) < len(header) and not short):
        raise InvalidInput(
            FIELD, f"row {count} must have {len(header)} values as the header has, got {len(row)}"
        )
    return dict(zip(header, row, strict=False))


def _launch(values: dict[str, str], launches: dict[str, Launch]) -> Launch:
    """The launch that a row is of, made where it is the first."""
    identity, kernel = values[ID].strip(), values.get(KERNEL, "").strip()
    if not identity or not kernel:
        raise InvalidInput(FIELD, f"every row must have {ID} and {KERNEL}")
    if identity not in launches:
        launches[identity] = launch = Launch(identity, kernel)
        for name in (BLOCK, GRID, CAPABILITY):
            launch.add(name, values.get(name, ""), "")
    elif launches[identity].kernel != kernel:
        raise InvalidInput(
            FIELD, f"ID {shortened(identity)} stands for two kernels: export one report at a time"
        )
    return launches[identity]


def _chosen(launches: list[Launch], kernel: str | None) -> Launch:
    found = launches
    if kernel is not None:
        found = (
            [launch for launch in launches if launch.id == kernel]
            or [launch for launch in launches if launch.kernel == kernel]
            or [launch for launch in launches if kernel in launch.kernel]
        )
    if len(found) == 1:
        _check_locale(found[0])
        return found[0]
    if found:
        listed = _listed([f"{each.id}: {shortened(each.kernel)}" for each in found])
        raise InvalidInput("kernel", f"must name one launch by its ID; there are {listed}")
    names = _listed([shortened(launch.kernel) for launch in launches])
    raise InvalidInput(
        "kernel", f"must be an ID, a name or a part of one: {names}; got {shortened(repr(kernel))}"
    )


def _listed(words: list[str]) -> str:
    """The first few, each once, and how many more."""
    each = list(dict.fromkeys(words))
    more = f" and {len(each) - LISTED} more" if len(each) > LISTED else ""
    return ", ".join(each[:LISTED]) + more


def _check_locale(launch: Launch) -> None:
    """Refuse a launch with numbers whose comma is the decimal point: its others can't be told."""
    for name, metrics in launch.metrics.items():
        for metric in metrics:
            if ELSEWHERE.fullmatch(metric.text):
                raise InvalidInput(
                    FIELD,
                    f"{shortened(name)} is {shortened(metric.text)}: numbers must have a decimal "
                    "point; export with LC_ALL=C",
                )
