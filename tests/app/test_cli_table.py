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
from solver.constraints import Constraints
from solver.device import load_profile
from solver.objective import objective_from_dict
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


def test_a_table_is_by_the_objective_and_within_the_constraints(shapes: Path) -> None:
    wishes = {
        "objective": {"kind": "weighted", "weights": {"time": 1, "energy": 10}},
        "constraints": {"power_w": {"max": 250}, "config": {"stages": {"max": 4}}},
    }
    words = [word for name, value in wishes.items() for word in (f"--{name}", json.dumps(value))]
    out = made(shapes, "--proof", "none", *words)
    table = load_table(out)
    for problem, config in table.picks.items():
        question = Question(
            problem,
            proof="none",
            objective=objective_from_dict(wishes["objective"]),
            constraints=Constraints.from_dict(wishes["constraints"]),
        )
        answer, _ = answers.optimize(question)
        assert config.to_dict() == answer["config"]
        assert answer["predicted"]["sustained"]["power_w"] <= 250
    made_by = json.loads(out.read_text())["made_by"]
    assert made_by["constraints"] == wishes["constraints"]
    assert made_by["objective"]["weights"] == {"time": 1, "energy": 10}


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
        (["--objective", '{"kind": "pareto", "axes": ["time"]}'], 2, "a front is no pick"),
        (["--objective", '{"kind": "best"}'], 2, "objective.kind: must be one of"),
        (["--objective", "{"], 2, "objective: must be JSON"),
        (["--constraints", '{"sms": {"max": 100}}'], 2, "launches on all SMs"),
        (["--constraints", '{"power_w": {"min": 1}}'], 2, "constraints.power_w.min: is unknown"),
        (
            ["--constraints", '{"power_w": {"max": 10}}'],
            1,
            "128 x 256 x 512 in bf16 (tn): constraints: no legal configuration satisfies",
        ),
        (
            ["--constraints", '{"power_w": {"max": 500}}', "--device", "h100_sxm"],
            2,
            "the power of h100_sxm has not been measured",
        ),
    ],
)
def test_what_cannot_be_made_is_said(
    shapes: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    usual = ["--shapes", str(shapes), "--out", str(shapes.with_name("t.json")), "--proof", "none"]
    assert main(["table", *usual, *words]) == code
    assert said in " ".join(capsys.readouterr().err.split())
