"""The plan that tells what clusters cost: twins that differ in little, none of them held out."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.recorded import results_folder
from bench import cluster_plan, sample_plan
from kernels.bench_plan import parse_plan
from solver.device import load_profile
from solver.families.sm90_gemm_legality import check
from solver.problem import Problem
from solver.split import is_held_out

H200 = load_profile("h200")


def test_nothing_that_is_held_out_is_planned() -> None:
    planned = cluster_plan.problems()
    assert len(planned) > 40
    assert len(set(planned)) == len(planned)
    assert not any(is_held_out(p.m, p.n, p.k) for p in planned)


def test_a_tile_comes_with_and_without_a_cluster() -> None:
    problem = Problem(1024, 1024, 2048)
    chosen = cluster_plan.twins(problem, H200, random.Random(1))
    assert len(set(chosen)) == len(chosen)
    for config in chosen:
        check(config, problem, H200)
    tiles = Counter((c.tile_m, c.tile_n, c.split_k, c.tile_k) for c in chosen)
    forms = {(c.tile_m, c.tile_n, c.split_k, c.tile_k, c.cluster_m, c.cluster_n) for c in chosen}
    assert len(forms) == len(chosen)
    assert sum(count > 1 for count in tiles.values()) >= 3


@pytest.mark.parametrize("plan", [cluster_plan, sample_plan])
@pytest.mark.parametrize(
    ("device", "out", "named"),
    [
        ("h999", "plan.json", "device: must be one of"),
        ("a100", "plan.json", "a100 runs no kernel family"),
        ("h200", ".", "out: must name a file"),
        ("h200", "file/plan.json", "can't be written"),
    ],
)
def test_what_no_plan_can_be_made_of_is_named(
    plan: Any, device: str, out: str, named: str, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended:
        plan.main(["--device", device, "--out", str(tmp_path / out)])
    assert ended.value.code == 2
    assert named in capsys.readouterr().err


def test_a_plan_s_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_plan, "problems", lambda: [Problem(1024, 1024, 2048)])
    out = tmp_path / "new" / "plan.json"
    cluster_plan.main(["--out", str(out)])
    assert len(parse_plan(out.read_text("utf-8")).rows) > 3


def test_the_recorded_rows_are_a_plan_s() -> None:
    path = results_folder("h200") / "calibration_clusters.json.gz"
    record = json.loads(gzip.decompress(path.read_bytes()))
    assert record["complete"]
    assert record["measured"] == record["planned"] == len(record["rows"])
    names = {"suite", "cache", "role", "m", "n", "k", "config"}
    rows = [{name: row[name] for name in names} for row in record["rows"]]
    plan = parse_plan(json.dumps({"suite": record["suite"], "rows": rows}))
    assert {row.problem for row in plan.rows} <= set(cluster_plan.problems())
