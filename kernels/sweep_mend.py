"""Measure rows of a merged table again whose clock was still held back by what ran before them.

A short launch draws little power, and runs at the highest clock there is; where it ran lower, as a
rule the power cap still held for a heavy product measured just before. Sweeps wait for that to pass
(``kernels.sweep_worker``); tables made before they did are mended by this.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kernels.files import read_json
from kernels.host import HostGpu
from kernels.process import Worker
from kernels.sources import commit as own_commit
from kernels.sweep_file import difference, figure_cells
from kernels.sweep_host import compile_failures, host_facts
from kernels.sweep_merge import MENDED, RECORD, TABLE, repeat_noise, write_table
from kernels.sweep_runner import Done, Figures, SweepRunner, read_device_facts
from kernels.verify import require_gpu
from solver.config import Config
from solver.errors import InvalidInput
from solver.families import sm90_gemm
from solver.ground_truth import COLUMNS, CONFIG_FIELDS, FIGURES, GZIP_DAMAGED, problem_of_row
from solver.sweep_design import SweepRow, Visit

SHORT_US = 100.0
LOW = 0.96  # of the highest clock in the table
RULE = f"launches under {SHORT_US:g} us at less than {LOW:g} of the table's highest clock"

Row = dict[str, str]


def read_table(folder: Path) -> tuple[list[Row], dict[str, Any]]:
    """The rows of a folder's table and its record. Raises InvalidInput (field ``out``)."""
    try:
        with gzip.open(folder / TABLE, "rt", encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            rows, columns = list(reader), tuple(reader.fieldnames or ())
    except (*GZIP_DAMAGED, ValueError, csv.Error) as error:
        raise InvalidInput("out", f"{folder} holds no table of a sweep: {error}") from error
    record = read_json(folder / RECORD, "out")
    if columns != COLUMNS or not isinstance(record, dict):
        raise InvalidInput("out", f"{folder / TABLE} has other columns than a sweep's")
    return rows, record


def held_back(table: Sequence[Row]) -> list[tuple[int, int]]:
    """(place, turn) of every measurement of a short launch at a low clock; turn 1 is a repeat's."""
    clocks = [int(row["sm_clock_mhz"]) for row in table if row["sm_clock_mhz"]]
    low = LOW * max(clocks, default=0)
    found = []
    for place, row in enumerate(table):
        for turn, (time, clock) in enumerate(
            (("median_us", "sm_clock_mhz"), ("repeat_us", "repeat_sm_clock_mhz"))
        ):
            if row[time] and row[clock] and float(row[time]) < SHORT_US and int(row[clock]) < low:
                found.append((place, turn))
    return found


def _sweep_row(row: Row) -> SweepRow:
    config = Config(sm90_gemm.NAME, **{name: int(row[name]) for name in CONFIG_FIELDS})
    return SweepRow(row["suite"], row["cache"], row["role"], problem_of_row(row), config)


def _visits(rows: Sequence[SweepRow], found: Sequence[tuple[int, int]]) -> list[Visit]:
    """The measurements by problem, repeats after everything else."""
    groups: dict[Any, list[int]] = {}
    for place, turn in found:
        row = rows[place]
        groups.setdefault((turn, row.suite, row.cache, row.problem), []).append(place)
    return [Visit(key[0], tuple(places)) for key, places in sorted(groups.items(), key=_turn)]


def _turn(group: tuple[Any, list[int]]) -> int:
    turn: int = group[0][0]
    return turn


def _put(row: Row, turn: int, figures: Figures) -> None:
    """A new measurement in the place of the old one."""
    cells = [str(cell) for cell in figure_cells(figures)]
    if turn == 0:
        row |= dict(zip(FIGURES, cells, strict=True))
    else:
        row["repeat_us"], row["repeat_sm_clock_mhz"] = cells[0], cells[2]


def _refuse_other(record: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raise InvalidInput where the table was measured with anything else than what is here."""
    other = difference({name: record.get(name) for name in ours}, ours)
    if other is not None:
        name, was, now = other
        raise InvalidInput("out", f"the table was measured with {name} {was}, here it is {now}")


def mend(folder: Path, commit: str | None, console: Console) -> dict[str, Any]:
    """Measure again what was held back and write the table anew; what it came to.

    A measurement that fails now leaves the old one; where the whole ends early, what was measured
    is kept, and another run goes on. The record's ``mended`` says by which rule how many were
    measured again, and when. Raises InvalidInput for a folder without a table and
    for a table of another device, driver, compiler, package or source, and what a sweep raises.
    """
    table, record = read_table(folder)
    found = held_back(table)
    rows = [_sweep_row(row) for row in table]
    gpu, device = require_gpu()
    taken = failed = 0

    def done(place: int, turn: int, figures: Figures) -> None:
        nonlocal taken, failed
        if figures.median_us is None:
            failed += 1
        else:
            _put(table[place], turn, figures)
            taken += 1

    try:
        _measure(rows, found, record, gpu, device, done, console)
    finally:
        if taken:
            entry = {
                "rule": RULE,
                "measured_again": taken,
                "still_low": len(held_back(table)),
                "commit": commit or own_commit(),
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            record |= {
                MENDED: [*record.get(MENDED, []), entry],
                "repeat_noise": repeat_noise(table),
            }
            write_table(folder, table, record)
    left = len(held_back(table))
    return {
        "out": str(folder),
        "found": len(found),
        "measured_again": taken,
        "failed": failed,
        "still_low": left,
        "table": str(folder / TABLE),
    }


def _measure(
    rows: Sequence[SweepRow],
    found: Sequence[tuple[int, int]],
    record: Mapping[str, Any],
    gpu: HostGpu,
    device: str,
    done: Done,
    console: Console,
) -> None:
    """Compile and measure, with bars, on what the table was measured on."""
    with Worker() as worker:
        facts = host_facts(gpu, read_device_facts(worker))
        _refuse_other(record, json.loads(json.dumps(facts)))
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeRemainingColumn(), console=console) as bars:
            failures = compile_failures(sorted({rows[place].key for place, _ in found}), bars)
            bar = bars.add_task("measure", total=len(found))

            def told(place: int, turn: int, figures: Figures) -> None:
                done(place, turn, figures)
                bars.update(bar, advance=1)

            SweepRunner(rows, device, failures, told, worker).run(_visits(rows, found))
