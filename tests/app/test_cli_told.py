"""Commands of many shapes and of files: what can't be is named, before there is work to lose."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import app.cli.bench
import app.cli.settings
import app.cli.table
from app import answers, exports
from app.cli import gpu
from app.cli.documents import check_folder, check_writable, write_folder, write_whole
from app.cli.main import main
from app.errors import EnvironmentLacks
from app.picks import check

SIZE = ("64", "64", "64")
PICKS = 'device = "h200"\n[[problems]]\nm = 8\nn = 8\nk = 8\n'
SHAPES = "m,n,k\n8,8,8\n"
COMMANDS: dict[str, tuple[list[str], Any, str]] = {
    "plan": (["bench", "plan", "--suite", "SHAPES", "--out", "PLACE"], app.cli.bench, "make_plan"),
    "table": (["table", "--shapes", "SHAPES", "--out", "PLACE"], app.cli.table, "make_table"),
    "export": (["export", *SIZE, "--out", "PLACE"], exports, "export"),
    "settings": (
        ["settings", "--shapes", "SHAPES", "--to", "triton", "--out", "PLACE"],
        app.cli.settings,
        "settings_files",
    ),
    "compile": (["compile", *SIZE, "--out", "PLACE"], gpu, "compile_kernel"),
    "certificate": (["optimize", *SIZE, "--certificate", "PLACE"], answers, "certify"),
    "lock": (["lock", "PLACE.toml", "--server", "http://127.0.0.1:9"], check, "solve_all"),
}
"""Of each command that writes a file at its end: its words, and the work that precedes it."""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_place_that_can_not_be_written_is_told_before_the_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(*_: Any, **__: Any) -> Any:
        raise AssertionError("worked, with no place for the result")

    words, module, function = COMMANDS[name]
    monkeypatch.setattr(module, function, work)
    shapes, place = tmp_path / "shapes.csv", tmp_path / "file" / "there"
    shapes.write_text(SHAPES)
    (tmp_path / "file").write_text("no folder")
    if name == "lock":
        place = tmp_path / "picks"
        place.with_suffix(".toml").write_text(PICKS)
        place.with_suffix(".lock.json").mkdir()
    before = sorted(tmp_path.rglob("*"))
    filled = [w.replace("PLACE", str(place)).replace("SHAPES", str(shapes)) for w in words]
    assert main(filled) == 3
    assert re.search("can't be (written|made)", capsys.readouterr().err)
    assert sorted(tmp_path.rglob("*")) == before


def refused(write: Any, *arguments: Any) -> bool:
    try:
        write(*arguments)
    except EnvironmentLacks:
        return True
    return False


def test_what_is_checked_before_is_what_can_be_written_after(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    places = ("there", "new", "link", "no/new", "there/new", ".", "\0")
    for name in places:
        place = tmp_path / name
        assert refused(check_writable, place) == refused(write_whole, place, b"new"), name
    for name in ("a", "a/b/c", "there", "there/d", "."):
        folder = tmp_path / name
        assert refused(check_folder, folder) == refused(write_folder, folder, {"x": b""}), name
    check_writable(Path("/dev/null"))


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "plan", "--suite", "SHAPES", "--out", "OUT"],
        ["table", "--shapes", "SHAPES", "--out", "OUT"],
        ["settings", "--shapes", "SHAPES", "--to", "triton", "--out", "OUT"],
        ["export", *SIZE, "--out", "OUT"],
        ["compile", *SIZE],
        ["optimize", *SIZE],
        ["explain", *SIZE],
        ["bench", "solve", "--suite", "SHAPES"],
        ["bench", "accuracy"],
        ["bench", "fused"],
    ],
    ids=" ".join,
)
def test_an_empty_device_is_no_device_and_not_the_hosts(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes, out = tmp_path / "shapes.csv", tmp_path / "out"
    shapes.write_text(SHAPES)
    filled = [w.replace("OUT", str(out)).replace("SHAPES", str(shapes)) for w in words]
    assert main([*filled, "--device", ""]) == 2
    assert "device: " in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "plan", "--suite", "SHAPES", "--out", "OUT"],
        ["table", "--shapes", "SHAPES", "--out", "OUT"],
        ["settings", "--shapes", "SHAPES", "--to", "server", "--out", "OUT"],
        ["bench", "solve", "--suite", "SHAPES"],
        ["bench", "constraints", "--suite", "SHAPES"],
        ["bench", "strategies", "--suite", "SHAPES"],
        ["bench", "memory", "--suite", "SHAPES"],
    ],
    ids=" ".join,
)
def test_of_many_shapes_the_one_that_can_not_be_is_named(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes, out = tmp_path / "shapes.csv", tmp_path / "out"
    shapes.write_text(f"m,n,k\n64,64,64\n{2**31 - 1},65536,8\n")
    filled = [w.replace("OUT", str(out)).replace("SHAPES", str(shapes)) for w in words]
    assert main([*filled, "--device", "h200"]) == 2
    told = capsys.readouterr().err
    assert f"m: {2**31 - 1} x 65536 x 8 in bf16 (tn): no configuration" in told.replace("\n", " ")
    assert not out.exists()


def test_an_empty_suite_is_no_suite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "plan", "--suite", "", "--out", str(tmp_path / "plan.json")]) == 2
    assert "suite: must be one of llm, paper" in capsys.readouterr().err
