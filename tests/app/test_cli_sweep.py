"""``warpwright sweep``: the same thing as ``python -m kernels.sweep``, in the command's manners."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kernels.sweep
import kernels.verify
from app.cli.main import main
from kernels.errors import GpuLost


def test_without_a_gpu_it_says_so_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernels.verify, "host_gpu", lambda: None)
    out = tmp_path / "sweep"
    assert main(["sweep", "--ground-truth", "--out", str(out), "--json"]) == 3
    assert "no NVIDIA GPU" in json.loads(capsys.readouterr().out)["detail"]
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--ground-truth", "--shard", "2/2"], "shard"),
        (["--ground-truth", "--design", "0"], "design"),
        (["--ground-truth", "--seed", "-1"], "seed"),
        (["--ground-truth", "--partial"], "partial"),
        (["--ground-truth", "--merge"], "arguments"),
        (["--merge"], "out"),
        ([], "arguments"),
    ],
)
def test_a_wrong_option_is_named(
    words: list[str], field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *words, "--out", str(tmp_path), "--json"]) == 2
    body = json.loads(capsys.readouterr().out)
    assert field in json.dumps(body)


def test_a_gpu_that_fails_is_something_missing_and_no_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost(sweep: Any, console: Any) -> None:
        raise GpuLost("8 rows failed one after another, the last with a fault")

    monkeypatch.setattr(kernels.sweep, "run_sweep", lost)
    assert main(["sweep", "--ground-truth", "--out", str(tmp_path), "--json"]) == 3
    assert "8 rows failed" in json.loads(capsys.readouterr().out)["detail"]


@pytest.mark.parametrize(("failed", "code"), [(0, 0), (2, 1)])
def test_a_row_that_failed_makes_the_answer_no(
    failed: int,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record: dict[str, Any] = {
        "out": "x",
        "planned": 9,
        "measured": 9,
        "failed": failed,
        "complete": True,
        "table": "x/ground_truth.csv.gz",
    }
    monkeypatch.setattr(kernels.sweep, "run_sweep", lambda sweep, console: record)
    assert main(["sweep", "--ground-truth", "--out", str(tmp_path), "--json"]) == code
    assert json.loads(capsys.readouterr().out) == record
    assert main(["sweep", "--ground-truth", "--out", str(tmp_path)]) == code
    assert "ground_truth.csv.gz" in capsys.readouterr().out


def test_a_merge_tells_the_noise_of_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = {
        "rows": 9,
        "failed": 0,
        "repeated": 2,
        "repeat_noise": {"llm": {"rows": 2, "median": 0.0042, "p95": 0.031}},
        "complete": True,
    }
    monkeypatch.setattr(kernels.sweep, "merge", lambda out, partial: record)
    assert main(["sweep", "--merge", "--out", str(tmp_path)]) == 0
    assert "llm 0.4% (p95 3.1%)" in capsys.readouterr().out
