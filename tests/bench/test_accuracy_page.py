"""What is shown of accuracy: nothing before a frozen model was held against what is held out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.accuracy import accuracy
from app.recorded import read_recorded, results_folder
from bench.accuracy_page import (
    NAME,
    accuracy_line,
    accuracy_parts,
    draw_accuracy,
    error_table,
    read_accuracy,
    regret_table,
)
from bench.records import read_record
from tests.app.test_accuracy import race_all, recorded_folder
from tests.bench.test_report import made
from tests.ground_truths import write_truth


def frozen(folder: Path) -> Path:
    """A results folder whose H200 has a ground truth, races, and the figures over them."""
    h200 = recorded_folder(folder / "h200")
    race_all(h200)
    (h200 / NAME).write_text(json.dumps(accuracy(read_recorded("h200", h200), "h200")))
    (h200 / "best_llm.json").unlink()
    return h200


def test_a_plain_sentence_stands_where_there_is_nothing_to_show(tmp_path: Path) -> None:
    page, readme = made(tmp_path)
    for text, link in ((page, "(accuracy.md)"), (readme, "(docs/accuracy.md)")):
        assert "not shown: no ground truth has been measured" in text
        assert link in text
    from tests.app.test_accuracy import rows

    write_truth(tmp_path / "h200", rows())
    page, _ = made(tmp_path)
    assert "no frozen model has been held against what is held out" in page
    assert not list(tmp_path.glob("img/truth.png"))


def test_errors_regrets_and_plots_are_shown_once_they_are_there(tmp_path: Path) -> None:
    frozen(tmp_path)
    page, readme = made(tmp_path)
    assert "| LLM suite and further shapes, cold | 10 | 10.0% | 10.0% | 10.0% |" in page
    assert "| m 17-64 | 10 | 10.0% |" in page
    assert "| published, another GPU and kernel | 2,048 | 4.5% | - | 21.5% |" in page
    assert "| the pick | 2 | 1.000 | 1.000 |" in page
    assert "| Triton's pick | 2 |" in page
    assert "shapes, cold, 10 rows: 10.0% in the mean, 10.0% at p95, 10.0% at most" in readme
    assert "known of 2 shapes, the pick takes 1.000 of its time" in readme
    assert "verified with `top_k` 5 takes 1.0" in readme
    for image in ("truth.png", "error_by_class.png", "regret_over_k.png"):
        assert (tmp_path / "img" / image).stat().st_size > 5000
        assert f"(docs/img/{image})" in readme
        assert f"(img/{image})" in page


def test_figures_of_another_model_are_refused(tmp_path: Path) -> None:
    folder = frozen(tmp_path)
    record = json.loads((folder / NAME).read_text()) | {"profile_sha256": "0" * 64}
    (folder / NAME).write_text(json.dumps(record))
    with pytest.raises(SystemExit, match="another model"):
        read_accuracy(folder, "h200")


def test_figures_without_races_or_peers_have_dashes(tmp_path: Path) -> None:
    write_truth(tmp_path, [])
    record = accuracy(read_recorded("h200", tmp_path), "h200")
    assert "| the paper's protocol, warm | 0 | - | - | - |" in error_table(record)
    assert "| the pick | 0 | - | - |" in regret_table(record)
    assert draw_accuracy(None, tmp_path, "h200", tmp_path) == {}


def test_the_recorded_figures_are_those_of_the_recorded_rows() -> None:
    folder = results_folder("h200")
    shown, why = read_accuracy(folder, "h200")
    root = folder.parents[2]
    assert accuracy_line(shown, why, "docs/") in (root / "README.md").read_text("utf-8")
    page = (root / "docs" / "results.md").read_text("utf-8")
    for part in accuracy_parts(shown, why, ""):
        assert part in page
    if shown is not None:
        again = json.loads(json.dumps(accuracy(read_recorded("h200", folder), "h200")))
        for part in ("paper", "llm"):
            assert {name: again[part][name] for name in ("rows", "mean_ape", "max_ape")} == {
                name: shown[part][name] for name in ("rows", "mean_ape", "max_ape")
            }
    assert read_record(folder / "nothing.json") is None
