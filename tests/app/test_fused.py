"""``warpwright bench fused``: what it prints, its exit codes, and what the pages make of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from app.cli.main import main
from app.recorded import results_folder
from bench.fused_page import draw_fused, fused_line, fused_part, read_fused
from tests.app.test_cli import run_json
from tests.norm_profiles import bare, invented
from tests.norm_records import timed, write_record

KEYS = (
    *("problems", "advice_right", "confusion", "advice_right_heldout", "right_when_yes"),
    *("right_when_no", "mean_ape", "regret_mean", "specialised_wins"),
)


@pytest.fixture(autouse=True)
def _invented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.host.host_gpu", lambda: None)
    monkeypatch.setattr("app.fused.load_profile", lambda name: invented(name))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results")
    rows = timed(invented(), 0.02, chosen=lambda cell: cell.problem.degree in (0, 512))
    write_record(path / "norm_grid.json", [*rows, rows[0] | {"status": "failed"}])
    shutil.copy(results_folder("h200") / "ceilings.json", path)
    return path


def test_one_object_has_every_figure(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, body = run_json(capsys, "bench", "fused", "--results", str(folder))
    assert code == 0
    assert set(KEYS) <= set(body)
    assert (body["problems"], body["failed_rows"]) == (32, 1)
    assert body["against"].keys() == {"like_warps", "strong", "plain"}
    assert 0.005 < body["mean_ape"] < 0.03
    assert len(body["by_problem"]) == 32


def test_fitted_looks_at_nothing_held_out(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    _, whole = run_json(capsys, "bench", "fused", "--results", str(folder))
    code, body = run_json(capsys, "bench", "fused", "--results", str(folder), "--fitted")
    assert code == 0
    assert body["problems"] == whole["problems"] - whole["problems_heldout"]
    assert body["problems_heldout"] == 0
    assert body["advice_right_heldout"] is body["mean_ape_heldout"] is None


def test_a_person_is_shown_tables(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["bench", "fused", "--results", str(folder)]) == 0
    out = capsys.readouterr().out
    for words in ("Divided warps over 32 problems", "plain kernel", "4:12 is before 8:8"):
        assert words in out


def test_without_a_record_it_exits_3_and_says_what_makes_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, body = run_json(capsys, "bench", "fused", "--results", str(tmp_path))
    assert code == 3
    assert "kernels.norm.bench" in body["detail"]
    other = {"suite": "llm", "protocol": {}, "rows": []}
    (tmp_path / "norm_grid.json").write_text(json.dumps(other))
    code, body = run_json(capsys, "bench", "fused", "--results", str(tmp_path))
    assert code == 2
    assert "kernels.norm.bench" in body["detail"]


def test_the_page_shows_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path
) -> None:
    _, body = run_json(capsys, "bench", "fused", "--results", str(folder))
    record, why = read_fused(folder, "h200")
    page = fused_part(record, why)
    assert json.loads(json.dumps(record)) == body
    for claim in body["claims"]:
        assert f"| {claim['claim']} | {claim['over']} | {claim['held']} of" in page
    assert f"{body['advice_right']:.1%}" in fused_line(record, why, "docs/")
    assert page.count("fp32, width 1024, degree 512") == 4
    drawn = draw_fused(record, tmp_path)
    assert all((tmp_path / name).is_file() for name in drawn.values())


def test_the_line_names_what_divided_warps_win_at_natural_occupancy(folder: Path) -> None:
    record, why = read_fused(folder, "h200")
    assert record is not None
    natural, crowded = (
        next(row for row in record["by_problem"] if (row["warps_per_sm"] is None) is free)
        for free in (True, False)
    )
    rows = [natural | {"gain": 1.03}, natural | {"width": 7, "gain": 1.01}, crowded | {"gain": 1.2}]
    line = fused_line(dict(record) | {"by_problem": rows}, why, "docs/")
    named = f"{natural['dtype']}, width {natural['width']}, degree {natural['degree']}"
    assert f"1.03 times as fast: {named}); where" in line
    rows = [natural | {"gain": 0.9}]
    assert "0.90 times as fast); where" in fused_line(
        dict(record) | {"by_problem": rows}, why, "docs/"
    )


def test_a_page_without_record_or_constants_says_so(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, why = read_fused(tmp_path, "h200")
    assert record is None
    assert "no grid of norm_activation has been measured" in fused_part(record, why)
    assert draw_fused(record, tmp_path) == {}
    monkeypatch.setattr("app.fused.load_profile", lambda name: bare(name))
    record, why = read_fused(folder, "h200")
    assert "no constant of norm_activation" in fused_line(record, why, "docs/")
