"""The table of a sweep's shards: one compressed CSV, and a JSON of the same name beside it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from kernels.files import read_json, replace_whole
from kernels.sweep_file import difference, heads, line, read_head, read_rows
from solver.errors import InvalidInput
from solver.ground_truth import COLUMNS

TABLE = "ground_truth.csv.gz"
RECORD = "ground_truth.json"
MENDED = "mended"  # of a record: what was measured again since (kernels.sweep_mend)


def merge(folder: Path, partial: bool = False) -> dict[str, Any]:
    """Write TABLE and RECORD of all shards of a sweep in a folder; returns the record.

    Rows come in the design's order, repeats beside what they repeat. With ``partial`` shards may
    be missing or incomplete; the record says so. Raises InvalidInput (field ``out``) otherwise,
    and where shards differ in anything that must be one: sources, commit, driver, device,
    protocol, design.
    """
    if _is_mended(folder):
        raise InvalidInput(
            "out",
            f"{folder / TABLE} was mended since it was merged, which its shards don't know: where "
            "it may go, move it and its record away first",
        )
    paths = heads(folder)
    if not paths:
        raise InvalidInput("out", f"{folder} holds no sweep")
    shards = [read_head(path) for path in paths]
    facts, count = shards[0]["facts"], shards[0]["shards"]
    for path, head in zip(paths[1:], shards[1:], strict=True):
        if head["shards"] != count:
            raise InvalidInput("out", f"{path} is one of {head['shards']}, others are of {count}")
        if other := difference(head["facts"], facts):
            name, theirs, ours = other
            raise InvalidInput(
                "out", f"{path} was measured with {name} {theirs}, {paths[0].name} with {ours}"
            )
    measured = [read_rows(path.with_suffix(".csv")) for path in paths]
    missing = sorted(set(range(count)) - {head["shard"] for head in shards})
    complete = not missing
    for path, head, rows in zip(paths, shards, measured, strict=True):
        if len(rows) < head["planned"]:
            complete = False
            if not partial:
                raise InvalidInput(
                    "out",
                    f"{path} has {len(rows)} of {head['planned']} measurements: start it again "
                    "with the same options, or take what there is with --partial",
                )
    if missing and not partial:
        names = ", ".join(f"{index}/{count}" for index in missing)
        raise InvalidInput("out", f"{folder} lacks shard {names}; --partial does without")
    table = _joined([row for rows in measured for row in rows])
    record = {
        **facts,
        "columns": list(COLUMNS),
        "dates": sorted(date for head in shards for date in head["dates"]),
        "rows": len(table),
        "failed": sum(not row["median_us"] for row in table),
        "repeated": sum(bool(row["repeat_us"]) for row in table),
        "repeat_noise": repeat_noise(table),
        "complete": complete,
    }
    write_table(folder, table, record)
    return record


def _is_mended(folder: Path) -> bool:
    try:
        record = read_json(folder / RECORD, "out")
    except InvalidInput:
        return False  # none yet, or none that is worth keeping
    return isinstance(record, dict) and MENDED in record


def write_table(folder: Path, table: list[dict[str, str]], record: dict[str, Any]) -> None:
    """Write rows as TABLE and what is said of them as RECORD."""
    text = b"".join([line(list(COLUMNS)), *(line([row[n] for n in COLUMNS]) for row in table)])
    replace_whole(folder / TABLE, gzip.compress(text, 9, mtime=0))
    replace_whole(folder / RECORD, (json.dumps(record, indent=1) + "\n").encode())


def _joined(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """One row for each id, with the repeat's time in it."""
    table: dict[int, dict[str, str]] = {}
    for row in rows:
        if row["turn"] == "0":
            if int(row["row"]) in table:
                raise InvalidInput("out", f"row {row['row']} is in two shards")
            table[int(row["row"])] = row | {"repeat_us": "", "repeat_sm_clock_mhz": ""}
    for row in rows:
        if row["turn"] != "0" and int(row["row"]) in table:
            first = table[int(row["row"])]
            first["repeat_us"] = row["median_us"]
            first["repeat_sm_clock_mhz"] = row["sm_clock_mhz"]
            if row["reason"] and not first["reason"]:
                first["reason"] = f"repeat: {row['reason']}"
    return [table[index] for index in sorted(table)]


def repeat_noise(table: list[dict[str, str]]) -> dict[str, dict[str, float]]:
    """By suite, how far apart (as a part of the first) two measurements of a row were: the number
    of rows, the median and the 95th percentile."""
    apart: dict[str, list[float]] = {}
    for row in table:
        if row["median_us"] and row["repeat_us"]:
            ratio = float(row["repeat_us"]) / float(row["median_us"])
            apart.setdefault(row["suite"], []).append(abs(ratio - 1))
    return {
        suite: {
            "rows": len(values),
            "median": round(float(np.median(values)), 5),
            "p95": round(float(np.percentile(values, 95)), 5),
        }
        for suite, values in apart.items()
    }
