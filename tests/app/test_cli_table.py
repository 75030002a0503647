"""``warpwright table``: picks made offline, the same bytes every time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app import answers
from app.cli.main import main
from kernels.picks import load_table
from kernels.sources import source_hash
from solver.device import load_profile
from solver.problem import Problem
from solver.question import Question

SHAPES = "m,n,k,layout,lda\n128,256,512,tn,\n16,64,333,tt,400\n128,256,512,,\n"


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    file = tmp_path / "shapes.csv"
    file.write_text(SHAPES)
    return file


def made(shapes: Path, *words: str) -> Path:
    out = shapes.with_name("table.json")
    assert main(["table", "--shapes", str(shapes), "--out", str(out), *words]) == 0
    return out


def test_a_table_has_each_problems_proved_pick(shapes: Path) -> None:
    table = load_table(made(shapes, "--device", "h200"))
    problems = [Problem(128, 256, 512), Problem(16, 64, 333, layout="tt", lda=400)]
    assert list(table.picks) == problems
    for problem in problems:
        answer, _ = answers.optimize(Question(problem, proof="none"))
        config = table.find(problem)
        assert config is not None
        assert config.to_dict() == answer["config"]
    assert table.find(Problem(128, 256, 512, layout="tt")) is None
    table.require(load_profile("h200"))


def test_a_table_has_the_same_bytes_every_time_and_says_what_made_it(shapes: Path) -> None:
    first = made(shapes, "--proof", "none").read_bytes()
    assert made(shapes, "--proof", "none").read_bytes() == first
    document = json.loads(first)
    assert document["made_for"]["source_hash"] == source_hash()
    assert document["made_for"]["profile_sha256"] == load_profile("h200").sha256
    assert set(document["made_by"]) >= {"warpwright", "model_version", "proof", "cache"}
    assert document["made_by"]["proof"] == "none"


def test_the_command_says_what_it_wrote(shapes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = made(shapes, "--json")
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (record["out"], record["rows"], record["device"]) == (str(out), 2, "h200")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--device", "a100"], 2, "runs no kernel family"),
        (["--proof", "some"], 2, "proof"),
        (["--shapes", "nowhere.csv"], 2, "shapes: must be one of"),
        (["--out", "/nowhere/table.json"], 3, "can't be written"),
    ],
)
def test_what_cannot_be_made_is_said(
    shapes: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    usual = ["--shapes", str(shapes), "--out", str(shapes.with_name("t.json")), "--proof", "none"]
    assert main(["table", *usual, *words]) == code
    assert said in " ".join(capsys.readouterr().err.split())
