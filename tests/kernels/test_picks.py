"""Tables of picks: what is read, and what is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels import picks
from kernels.errors import TableRefused
from kernels.picks import load_table, parse_table, table_document
from solver.config import Config
from solver.device import load_profile
from solver.families import sm90_gemm as family
from solver.problem import Problem

DEVICE = load_profile("h200")
CONFIG = Config(family.NAME, 64, 64, 64, 3)
PROBLEM = Problem(64, 64, 64, layout="tt", ldc=72)
DOCUMENT = table_document([(PROBLEM, CONFIG)], DEVICE, {"warpwright": "0"})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    file.write_text(json.dumps(DOCUMENT))
    table = load_table(file)
    assert table.find(PROBLEM) == CONFIG
    assert table.find(replace(PROBLEM, ldc=80)) is None
    assert table.find(Problem(64, 64, 64, layout="tt")) is None
    table.require(DEVICE)


def test_a_table_for_something_else_is_refused_with_both_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = parse_table(DOCUMENT, "table.json")
    with pytest.raises(TableRefused, match=r"table\.json was made for the device h200, here it is"):
        table.require(load_profile("h100_sxm"))
    with pytest.raises(TableRefused, match="the device profile"):
        table.require(replace(DEVICE, sha256="0"))
    monkeypatch.setattr(picks, "source_hash", lambda: "f" * 64)
    with pytest.raises(TableRefused, match=r"the kernel sources .*make it again: warpwright table"):
        table.require(DEVICE)


def repr_short(content: bytes) -> str:
    return repr(content[:4])


def without(name: str) -> Callable[[Any], Any]:
    return lambda document: {key: value for key, value in document.items() if key != name}


def with_row(**parts: Any) -> Callable[[Any], Any]:
    return lambda document: document | {"rows": [document["rows"][0] | parts]}


def with_another_row(**parts: Any) -> Callable[[Any], Any]:
    """The same problem once more, with parts of its configuration changed."""

    def change(document: Any) -> Any:
        (row,) = document["rows"]
        return document | {"rows": [row, row | {"config": row["config"] | parts}]}

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _: [], "is no table of picks of the format warpwright-table-1, but list"),
        (lambda _: {}, "but None"),
        (lambda document: document | {"format": "warpwright-table-9"}, "warpwright-table-9"),
        (without("rows"), "has no rows"),
        (without("made_for"), "does not say what it was made for"),
        (with_row(problem={"m": 0, "n": 1, "k": 1}), "row 0: m: must be between 1"),
        (with_row(problem={"m": 1, "n": 1, "k": 1, "colour": 1}), "row 0: problem.colour: is unkn"),
        (with_row(problem={"m": 1, "n": 1}), "row 0: problem.k: is required"),
        (with_row(problem={"m": "1", "n": 1, "k": 1}), "row 0: m: must be an integer"),
        (with_row(problem=None), "row 0: problem: is required and must be a JSON object"),
        (with_row(config=[1]), "row 0: config: is required and must be a JSON object"),
        (with_another_row(stages=4), "row 1: its problem has another row before"),
        (with_row(config={"family": family.NAME}), "row 0: tile_m: is required"),
        (lambda document: document | {"rows": [3]}, "row 0: problem: is required"),
    ],
)
def test_what_is_no_table_is_refused(change: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(TableRefused, match=words):
        parse_table(change(copy.deepcopy(DOCUMENT)), "table.json")


def test_a_row_that_is_there_twice_is_read_once() -> None:
    table = parse_table(with_another_row()(DOCUMENT), "table.json")
    assert table.picks == {PROBLEM: CONFIG}


@pytest.mark.parametrize("content", [b"{", b"\xff", b"", b"[" * 100_000], ids=repr_short)
def test_a_file_that_is_no_json_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "table.json"
    file.write_bytes(content)
    with pytest.raises(TableRefused, match="can't be read as a table of picks"):
        load_table(file)
