"""What constants are fitted to, and what the fit says of itself."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bench.fit import CALIBRATION, Group, load_groups, main, price, regret, report
from bench.keep_candidates import kept
from solver.calibration.rows import predict_us
from solver.config import Config
from solver.device import load_profile
from solver.pick import best_rows
from solver.problem import Problem
from solver.space import tabulate

H200 = load_profile("h200")
PROBLEM = {"m": 16, "n": 8192, "k": 4096}
TILE = {"tile_m": 64, "tile_n": 64, "tile_k": 128}


def row(role: str, **values: Any) -> dict[str, Any]:
    return {"suite": "some", "cache": "cold", "role": role, **PROBLEM, **values}


def timed(median_us: float | None, **change: int) -> dict[str, Any]:
    config = Config("sm90_gemm", **{**TILE, "stages": 5} | change).to_dict()
    return {"config": config, "median_us": median_us}


def load(tmp_path: Path, *rows: dict[str, Any]) -> list[Group]:
    path = tmp_path / "rows.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"rows": rows}).encode()))
    return load_groups([path])


def best_of(again_us: float, *candidates: dict[str, Any]) -> dict[str, Any]:
    config = candidates[0]["config"]
    return row("best", config=config, median_us=again_us, candidates=list(candidates))


def test_samples_and_candidates_are_groups_apart_and_picks_are_left_out(tmp_path: Path) -> None:
    groups = load(
        tmp_path,
        row("sample", **timed(10)),
        row("sample", **timed(11, stages=6)),
        row("sample", **timed(None, stages=7)),
        row("pick", **timed(9)),
        row("best", candidates=[], median_us=None),
        best_of(9.4, timed(9.4, stages=8), timed(None, stages=7), timed(9.9)),
    )
    assert [group.suite for group in groups] == [CALIBRATION, "some"]
    assert [list(group.measured_us) for group in groups] == [[10, 11], [9.4, 9.9]]
    assert [list(group.columns["stages"]) for group in groups] == [[5, 6], [8, 5]]


@pytest.mark.parametrize(("again_us", "steady"), [(10.2, True), (9.6, False), (10.4, False)])
def test_candidates_are_off_by_what_their_best_was_when_it_was_measured_again(
    again_us: float, steady: bool, tmp_path: Path
) -> None:
    (group,) = load(tmp_path, best_of(again_us, timed(10), timed(11, stages=6)))
    assert list(group.measured_us) == pytest.approx([again_us, 1.1 * again_us])
    assert group.steady is steady


def test_a_row_is_predicted_as_the_solver_does(tmp_path: Path) -> None:
    rows = best_rows(tabulate(Problem(**PROBLEM), H200, "calibrated"), 40)
    samples = [row("sample", config=each.config.to_dict(), median_us=1) for each in rows]
    (group,) = load(tmp_path, *samples)
    time, wait = price(group, H200)
    assert list(zip(time, wait, strict=True)) == [(each.time, each.wait) for each in rows]


def test_regret_is_what_the_row_predicted_fastest_takes_over_the_fastest(tmp_path: Path) -> None:
    deep, shallow = timed(12, stages=8), timed(10, stages=4)
    (group,) = load(tmp_path, best_of(10, shallow, deep))
    assert predict_us(group, H200).argmin() == 1
    assert regret(group, H200) == pytest.approx(1.2)
    words = report([group], H200)
    assert "candidates" in words
    assert "  some" in words


def test_rows_that_tie_go_as_the_solver_takes_them(tmp_path: Path) -> None:
    """Least shared memory where time and wait are the same: one k-iteration, any ring."""
    candidates = [timed(3, stages=9), timed(4, stages=6)]
    (group,) = load(tmp_path, best_of(3, *candidates) | {"k": 128})
    assert len(set(predict_us(group, H200))) == 1
    assert regret(group, H200) == pytest.approx(4 / 3)


def test_what_is_kept_of_results_is_their_best_rows_and_where_they_are_from() -> None:
    best, pick = row("best"), row("pick")
    result = {"suite": "some", "commit": "abc", "rows": [pick, best]}
    assert kept([result]) == {
        "results": {"some": {"suite": "some", "commit": "abc"}},
        "rows": [best],
    }


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{}", b"rows", b"\xff"])
@pytest.mark.parametrize("name", ["rows.json", "rows.json.gz", "truth.csv.gz"])
def test_a_file_that_has_no_rows_is_named(
    content: bytes | None, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        main([str(path)])
    assert ended.value.code == 2
    assert name in capsys.readouterr().err
