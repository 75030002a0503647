"""``warpwright settings``: picks in the form that others read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from kernels.settings.triton import EXPRESSIBLE

SHAPES = "m,n,k,layout\n16,4096,4096,tn\n4096,4096,4096,tt\n16,4096,4096,tn\n300,500,777,tn\n"


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    file = tmp_path / "shapes.csv"
    file.write_text(SHAPES)
    return file


def made(shapes: Path, to: str, capsys: pytest.CaptureFixture[str]) -> tuple[Any, dict[str, str]]:
    """The command's record, and the files that it wrote."""
    out = shapes.with_name(to)
    words = ["settings", "--shapes", str(shapes), "--to", to, "--out", str(out)]
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    files = {path.name: path.read_text() for path in out.iterdir()}
    assert set(record["files"]) == set(files)
    assert json.loads(files["cannot_express.json"]) == record["cannot_express"]
    assert main(words) == 0  # the same bytes again
    assert {path.name: path.read_text() for path in out.iterdir()} == files
    shown = capsys.readouterr().out
    assert "What they can't express:" in shown
    return record, files


def test_cutlass_gets_arguments_a_test_list_and_problems(
    shapes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, files = made(shapes, "cutlass", capsys)
    problems = json.loads(files["heuristics_problems.json"])
    assert [each["m"] for each in problems] == [16, 4096, 300]
    assert len(files["profiler_arguments.txt"].splitlines()) == 3
    named = [line.partition(",")[0] for line in files["testlist.csv"].splitlines()[1:]]
    assert files["kernels.txt"].splitlines() == list(dict.fromkeys(named))
    assert any("stages" in words for words in record["cannot_express"]["all"])
    further = record["cannot_express"]["further"]
    assert any("no multiple of 16 bytes" in str(each) for each in further)


def test_triton_gets_the_best_of_what_it_can_be_told(
    shapes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, files = made(shapes, "triton", capsys)
    configs = json.loads(files["triton_configs.json"])
    assert [each["m"] for each in configs] == [16, 4096, 300]
    for each in configs:
        assert each["config"]["kwargs"]["BLOCK_SIZE_N"] in EXPRESSIBLE["config"]["tile_n"]["in"]


def test_a_server_gets_a_file_for_each_weight(
    shapes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, files = made(shapes, "server", capsys)
    table = json.loads(files["N=4096,K=4096,device_name=NVIDIA_H200.json"])
    assert list(table) == ["16", "4096"]
    assert "N=500,K=777,device_name=NVIDIA_H200.json" in files


def test_a_problem_that_another_of_its_extents_hides_is_named(
    shapes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes.write_text("m,n,k,dtype,layout\n64,64,64,bf16,tn\n64,64,64,fp16,tn\n64,64,64,bf16,tt\n")
    record, _ = made(shapes, "server", capsys)
    further = record["cannot_express"]["further"]
    assert [(each["dtype"], each["layout"]) for each in further] == [("fp16", "tn"), ("bf16", "tt")]
    assert all("has one entry" in each["cannot_express"][0] for each in further)


def test_a_problem_of_which_nothing_can_be_said_is_left_out_and_named(
    shapes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes.write_text("m,n,k\n64,8,64\n64,64,64\n")
    record, files = made(shapes, "triton", capsys)
    assert [each["n"] for each in json.loads(files["triton_configs.json"])] == [64]
    (left_out,) = [x for x in record["cannot_express"]["further"] if x["n"] == 8]
    assert "no legal configuration satisfies" in left_out["cannot_express"][0]
