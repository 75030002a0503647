"""Plans of norm_activation cells, and what the runner does with a cell that hangs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.norm import bench, worker
from kernels.norm.cells import Cell, races, read_cells
from kernels.norm.compile import compile_key
from kernels.process import Outcome, OutcomeKind
from kernels.protocol import NORM
from solver.device import load_profile
from solver.errors import InvalidInput
from solver.families.norm_activation import NormConfig, NormProblem

H200 = load_profile("h200")
PROBLEM = NormProblem(100, 1024, "bf16", "rms", "poly", 8)
CELLS = [
    Cell("first", PROBLEM, NormConfig("strong", 4)),
    Cell("first", PROBLEM, NormConfig("strong", 8), 1000, 8, True),
    Cell("first", PROBLEM, NormConfig("plain", 4, hold="reload")),
    Cell("second", NormProblem(100, 64), NormConfig("strong", 4)),
]


def written(folder: Path, cells: list[Any]) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps({"cells": cells}), "utf-8")
    return path


def test_a_plan_comes_back_as_its_cells(tmp_path: Path) -> None:
    found = read_cells(written(tmp_path, [cell.to_dict() for cell in CELLS]), H200)
    assert found == CELLS
    assert [len(members) for members in races(found)] == [3, 1]


def test_a_cell_needs_a_problem_and_a_configuration_and_nothing_else(tmp_path: Path) -> None:
    shortest = {"problem": {"rows": 5, "width": 9}, "config": {"kind": "strong", "consumers": 4}}
    shortest["config"]["vector_bytes"] = 4
    (found,) = read_cells(written(tmp_path, [shortest]), H200)
    assert found.reserved_smem_bytes == 0
    assert found.problem == NormProblem(5, 9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda cell: cell["problem"].update(width=0), r"cells\[1\].width: must be between 1"),
        (lambda cell: cell["problem"].update(depth=1), r"cells\[1\].problem: must be one of rows"),
        (lambda cell: cell["problem"].pop("rows"), r"cells\[1\].problem.rows: is required"),
        (lambda cell: cell["config"].update(team=3), r"cells\[1\].team: must divide"),
        (lambda cell: cell["config"].update(stages=3), r"cells\[1\].stages: is no configuration"),
        (lambda cell: cell.update(config=[]), r"cells\[1\].config: must be an object, got list"),
        (lambda cell: cell.pop("problem"), r"cells\[1\].problem: is required"),
        (lambda cell: cell.update(speed=1), r"cells\[1\].field: must be one of race, problem"),
        (lambda cell: cell.update(reserved_smem_bytes=-1), r"cells\[1\].reserved_smem_bytes: must"),
        (lambda cell: cell["problem"].update(rows=7), "race: first has cells of more than one"),
    ],
)
def test_a_wrong_cell_is_told_by_number_and_field(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    cells = [cell.to_dict() for cell in CELLS]
    change(cells[1])
    with pytest.raises(InvalidInput, match=words):
        read_cells(written(tmp_path, cells), H200)


@pytest.mark.parametrize("text", ["", "[]", '{"cells": 3}', '{"cells": []}', "{}"])
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text, "utf-8")
    with pytest.raises(InvalidInput, match=r"plan|cells"):
        read_cells(path, H200)


class Hangs:
    """A worker in whose process one configuration never ends."""

    def __init__(self, culprit: NormConfig | None, always: bool = False) -> None:
        self._culprit, self._always = culprit, always
        self.calls: list[str] = []

    def call(self, function: Any, arguments: tuple[Any, ...], deadline_s: float) -> Outcome:
        self.calls.append(function.__name__)
        cells = arguments[0] if isinstance(arguments[0], list) else [arguments[0]]
        hangs = self._culprit in [cell.config for cell in cells]
        if hangs or (self._always and function is worker.measure_race):
            return Outcome(OutcomeKind.TIMEOUT, deadline_s, message="killed at its deadline")
        if function is worker.check_cell:
            return Outcome(OutcomeKind.OK, 0.1, value="")
        rows = [{"status": "passed", "median_us": 1.0} for _ in cells]
        return Outcome(OutcomeKind.OK, 0.1, value=rows)

    def close(self) -> None:
        self.calls.append("close")


def runner_of(fake: Hangs, monkeypatch: pytest.MonkeyPatch, **failures: str) -> bench.Runner:
    monkeypatch.setattr(bench, "Worker", lambda: fake)
    return bench.Runner(failures, NORM)


def test_a_race_without_trouble_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Hangs(None)
    with runner_of(fake, monkeypatch) as runner:
        rows = runner.run(CELLS[:3])
    assert fake.calls == ["measure_race", "close"]
    assert [row["status"] for row in rows] == ["passed"] * 3
    assert [row["config"] for row in rows] == [cell.config.to_dict() for cell in CELLS[:3]]


def test_a_cell_that_hangs_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Hangs(CELLS[1].config)
    rows = runner_of(fake, monkeypatch).run(CELLS[:3])
    assert [row["status"] for row in rows] == ["passed", "failed", "passed"]
    assert rows[1]["details"] == "timeout: killed at its deadline"
    assert fake.calls == ["measure_race", *["check_cell"] * 3, "measure_race"]


def test_a_race_that_hangs_without_a_culprit_fails_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Hangs(None, always=True)
    rows = runner_of(fake, monkeypatch).run(CELLS[:3])
    assert [row["status"] for row in rows] == ["failed"] * 3
    assert fake.calls == ["measure_race", *["check_cell"] * 3]


def test_a_kernel_that_did_not_compile_is_not_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Hangs(CELLS[0].config)
    name = compile_key(PROBLEM, CELLS[0].config).name
    rows = runner_of(fake, monkeypatch, **{name: "spills 8 bytes"}).run(CELLS[:3])
    assert [row["status"] for row in rows] == ["failed", "passed", "passed"]
    assert rows[0]["details"] == "spills 8 bytes"
    assert fake.calls == ["measure_race"]


def test_the_command_says_that_there_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    plan = written(tmp_path, [cell.to_dict() for cell in CELLS])
    assert bench.main([str(plan), "--out", str(tmp_path / "out.json")]) == 3
    assert "no NVIDIA GPU" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()
