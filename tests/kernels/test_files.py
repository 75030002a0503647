"""Files of a user's on a bare GPU host: one that is none of the kind is named and never a crash."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.recorded import NORM_GRID, read_norm_grid
from bench.fit import load_groups
from bench.power_fit import load_record
from kernels import bench
from kernels.bench import read_ceilings
from kernels.bench_plan import read_plan
from kernels.norm import bench as norm_bench
from kernels.norm.cells import read_plan as read_cells
from kernels.power import __main__ as power
from kernels.power.answers import read_answers
from kernels.power.run import earlier_rows
from kernels.sweep_file import read_head
from kernels.sweep_mend import RECORD, TABLE, read_table
from solver.errors import InvalidInput
from solver.ground_truth import COLUMNS, load_ground_truth

READERS: dict[str, Callable[[Path], Any]] = {
    "plan": read_plan,
    "ceilings": read_ceilings,
    "norm cells": read_cells,
    "answers": read_answers,
    "power record": lambda path: earlier_rows(path, {}, "power"),
    "sweep head": read_head,
    "sweep record": lambda path: read_table(path.parent),
    "power rows": lambda path: load_record([path]),
    "rows": lambda path: load_groups([path]),
}
CONFIG = {"family": "sm90_gemm", "tile_m": 64, "tile_n": 64, "tile_k": 64, "stages": 3}
ROW = {"m": 8, "n": 8, "k": 8, "cache": "cold", "config": CONFIG}
PLAN = json.dumps({"rows": [ROW]})
NO_JSON = {
    "empty": b"",
    "binary": b"\xff\xfe\x00",
    "cut off": b'{"rows": [',
    "deep": b"[" * 100_000,
    "digits": b"9" * 5000,
}
OTHER_JSON = ("null", "3", "[]", "[3]", "{}", '{"rows": [3]}', '{"cells": 3}', '{"questions": [3]}')


def table_beside(folder: Path) -> None:
    (folder / TABLE).write_bytes(gzip.compress(",".join(COLUMNS).encode() + b"\n"))


@pytest.mark.parametrize("content", NO_JSON.values(), ids=NO_JSON)
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_file_that_is_no_json_is_refused_by_every_reader(
    tmp_path: Path, read: Callable[[Path], Any], content: bytes
) -> None:
    table_beside(tmp_path)
    (tmp_path / RECORD).write_bytes(content)
    with pytest.raises(InvalidInput, match=RECORD):
        read(tmp_path / RECORD)


# What is said of a sweep's table may be anything that has names.
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (name, text)
        for name in READERS
        for text in OTHER_JSON
        if name != "sweep record" or not text.startswith("{")
    ],
)
def test_other_json_is_refused_by_every_reader(tmp_path: Path, name: str, text: str) -> None:
    table_beside(tmp_path)
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(InvalidInput):
        READERS[name](tmp_path / RECORD)


@pytest.mark.parametrize("name", [name for name in READERS if name != "power record"])
def test_a_file_that_is_not_there_or_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(InvalidInput):
            READERS[name](path)


@pytest.mark.parametrize("main", [bench.main, norm_bench.main, power.main])
@pytest.mark.parametrize("place", [".", "file/result.json"])
def test_a_result_that_has_no_place_is_told_before_the_plan_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], main: Any, place: str
) -> None:
    (tmp_path / "file").write_text(PLAN)
    assert main([str(tmp_path / "file"), "--out", str(tmp_path / place)]) == 2
    assert "out: " in capsys.readouterr().err


def damaged(data: bytes) -> list[bytes]:
    """A gzipped file of which bytes were changed, or the end is missing."""
    middle = len(data) // 2
    changed = data[:middle] + bytes(255 - byte for byte in data[middle : middle + 40])
    return [b"", b"no gzip", data[:middle], changed + data[middle + 40 :], data[:-4] + b"\0\0\0\0"]


@pytest.mark.parametrize("index", range(5))
def test_a_damaged_table_is_refused_by_every_reader(tmp_path: Path, index: int) -> None:
    rows = [str(number * number % 9973) for number in range(40 * len(COLUMNS))]
    lines = [",".join(COLUMNS), *(",".join(rows[at::40]) for at in range(40))]
    content = damaged(gzip.compress("\n".join(lines).encode()))[index]
    (tmp_path / TABLE).write_bytes(content)
    (tmp_path / RECORD).write_text("{}")
    (tmp_path / "rows.json.gz").write_bytes(content)
    with pytest.raises(InvalidInput, match=TABLE):
        load_ground_truth(tmp_path / TABLE)
    with pytest.raises(InvalidInput, match=r"no table|other columns"):
        read_table(tmp_path)
    with pytest.raises(InvalidInput, match="no file of rows"):
        load_groups([tmp_path / "rows.json.gz"])
    (tmp_path / f"{NORM_GRID}.gz").write_bytes(content)
    with pytest.raises(InvalidInput, match="can't be read"):
        read_norm_grid("h200", tmp_path)


def test_numbers_beyond_a_float_are_told_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps({"rows": [ROW | {"predicted_us": 10**400}]}))
    with pytest.raises(InvalidInput, match=r"rows\[0\]\.predicted_us: must be null or a finite"):
        read_plan(path)
    answers = {role: {"config": CONFIG} for role in ("pick", "weighted", "capped")}
    asked = {"weights": {"time": 1, "energy": 10**400}, "cap_w": 400, "answers": answers}
    for wrong in ({}, {"weights": {"time": 1, "energy": 1}, "cap_w": float("inf")}):
        path.write_text(json.dumps({"questions": [ROW | asked | wrong]}))
        with pytest.raises(InvalidInput, match=r"questions\[0\]: is no question"):
            read_answers(path)
