"""What is wrong with a question is told before what is missing to answer it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.cli.main import main
from kernels.norm.bench import main as norm_bench

pytestmark = pytest.mark.usefixtures("bare_host")

PRODUCT = ("verify", "4096", "4096", "4096")
ROWS = ("--op", "norm_activation", "--rows", "10", "--width", "64")
GEMM = {"family": "sm90_gemm", "tile_m": 64, "tile_n": 64, "tile_k": 64, "stages": 4}


@pytest.fixture
def bare_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without a GPU and without ncu, whatever this one has."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("WARPWRIGHT_PROFILES", raising=False)


def config(values: dict[str, object]) -> tuple[str, str]:
    return "--config", json.dumps(values)


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (("verify", "0", "1", "1"), "m"),
        ((*PRODUCT, *config(GEMM | {"tile_n": 9})), "config.tile_n"),
        ((*PRODUCT, *config(GEMM | {"stages": 11, "tile_m": 256})), "config.math_warpgroups"),
        ((*PRODUCT, *config(GEMM), "--top-k", "3"), "top_k"),
        (("verify", *ROWS, *config({"kind": "strong", "consumers": 33})), "config.consumers"),
        (("verify", *ROWS, *config({"kind": "strong", "consumers": 4, "team": 3})), "config.team"),
        (("verify", *ROWS[:3], "0", *ROWS[4:]), "rows"),
        (("verify", *ROWS, "--degree", "3"), "degree"),
        (("profile", *ROWS[:3], "0", *ROWS[4:]), "rows"),
        (("profile", *ROWS, "--degree", "3"), "degree"),
        (("profile", *ROWS, "--warps-per-sm", "3"), "warps_per_sm"),
        (("calibrate",), "out"),
        (("calibrate", "--out", "."), "out"),
        (("calibrate", "--rows", "3", "--dry-run"), "rows"),
        (("sweep", "--ground-truth", "--out", "x", "--shard", "2/2"), "shard"),
        (("sweep", "--out", "x", "--mend"), "out"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value)[:60],
)
def test_a_bad_value_is_named_before_a_missing_gpu(
    command: tuple[str, ...],
    field: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--json"]) == 2
    body = json.loads(capsys.readouterr().out)
    assert [error["field"] for error in body["errors"]] == [field]


@pytest.mark.parametrize(
    "command",
    [PRODUCT, ("verify", *ROWS), ("profile", *ROWS), ("calibrate", "--dry-run")],
    ids=" ".join,
)
def test_of_a_good_question_the_gpu_is_what_is_missing(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["status"] == 503


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"m": 8, "n": 8, "k": 8, "config": GEMM | {"tile_n": 9}}, "config.tile_n"),
        ({"m": 8, "n": 8, "k": 8, "against": [GEMM | {"tile_n": 9}]}, "against.0.tile_n"),
        ({"m": 8, "n": 8, "k": 8, "top_k": 2, "against": [GEMM]}, "top_k"),
        (
            {"op": "norm_activation", "rows": 9, "width": 8, "config": {"kind": "ring"}},
            "config.consumers",
        ),
        (
            {
                "op": "norm_activation",
                "rows": 9,
                "width": 8,
                "config": {"kind": "strong", "consumers": 4, "team": 3},
            },
            "config.team",
        ),
    ],
    ids=str,
)
def test_over_http_too(client: TestClient, body: dict[str, object], field: str) -> None:
    response = client.post("/v1/verifications", json=body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == field


@pytest.mark.parametrize(
    ("cells", "field"),
    [
        ([], "cells"),
        ([{"problem": {"rows": 1, "width": 8}}], "config"),
        (
            [{"problem": {"rows": 1, "width": 8}, "config": {"kind": "strong", "consumers": 33}}],
            "cells[0].consumers",
        ),
    ],
)
def test_a_plan_is_read_before_a_gpu_is_looked_for(
    cells: list[object], field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"cells": cells}), "utf-8")
    assert norm_bench([str(plan), "--out", str(tmp_path / "out.json")]) == 2
    assert field in capsys.readouterr().err
