"""``warpwright bench`` of the solver: what it prints, and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli.main import main


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.host.host_gpu", lambda: None)


def suite_of(folder: Path, *problems: str) -> str:
    file = folder / "suite.csv"
    file.write_text("\n".join(["m,n,k", *problems]) + "\n")
    return str(file)


def test_it_reports_each_strategys_quality_and_time(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    suite = suite_of(tmp_path, "1,4096,4096", "512,512,512")
    assert main(["bench", "strategies", "--suite", suite, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["suite"], body["shapes"], body["device"]) == (suite, 2, "h200")
    assert len(body["by_shape"]) == 2
    for name in ("joint", "layered_1", "layered_4", "layered_16"):
        assert {"geomean_gap", "worst_gap", "optimum", "p50_ms", "p99_ms"} <= set(
            body["strategies"][name]
        )
    assert body["strategies"]["z3_alone"]["shapes"] <= 2


def test_it_prints_a_table_for_a_person(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # times on a busy machine have more digits
    assert main(["bench", "strategies", "--suite", suite_of(tmp_path, "64,64,64")]) == 0
    out = capsys.readouterr().out
    for word in ("joint", "layered_16", "optimum", "simulate"):
        assert word in out


def test_constraints_and_objectives_are_timed_and_checked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    suite = suite_of(tmp_path, "64,512,512", "512,512,512")
    wishes = {
        "--constraints": {"smem_bytes": {"max": 98304}, "sms": {"max": 100}},
        "--objective": {"kind": "pareto", "axes": ["time", "smem"], "within": 1.25, "cap": 32},
    }
    words = [word for name, raw in wishes.items() for word in (name, json.dumps(raw))]
    assert main(["bench", "solve", "--suite", suite, "--check", *words, "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["constraints"] == wishes["--constraints"]
    assert body["objective"] == wishes["--objective"]
    counts = ("shapes", "optimal", "equal_to_brute_force", "controls_refused")
    assert {body[name] for name in counts} == {2}
    assert all(row["front"] >= 1 for row in body["by_shape"])


def test_a_suite_that_a_constraint_leaves_nothing_of_exits_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    suite = suite_of(tmp_path, "64,512,512")
    none = json.dumps({"smem_bytes": {"max": 5}})
    assert main(["bench", "solve", "--suite", suite, "--constraints", none, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["optimal"] == 0


def test_random_constraint_sets_are_held_against_brute_force(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    suite = suite_of(tmp_path, "64,512,512", "100,100,104")
    words = ["bench", "constraints", "--suite", suite, "--sets", "12", "--seed", "1", "--json"]
    assert main(words) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["satisfiable"] + body["unsatisfiable"] == body["sets"] == 12
    assert body["equal_to_brute_force"] == body["satisfiable"]
    assert body["minimal_cores"] == body["least_relaxations"] == body["unsatisfiable"]


def test_the_protocol_is_read_off_kernels_and_proved(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "protocol", "--family", "sm90_gemm", "--sample", "2", "--seed", "3", "--json"]
    assert main(words) == 0
    body = json.loads(capsys.readouterr().out)["sm90_gemm"]
    assert body["keys"] == 2
    assert body["launches"] == 9 * (2 - body["alike"] - body["no_room"])
    assert body["ctas"] > body["launches"]
    assert body["mismatches"] == body["faults"] == []
    assert all(body["launches_with"].values())
    assert body["rings"] >= 2
    assert body["epilogues"] >= 6
    assert body["lemmas"] == 7 * body["rings"] + 2
    assert body["states"] > 100


def test_the_protocols_of_both_families_are_read_and_proved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", "protocol", "--sample", "1", "--seed", "3"]) == 0
    shown = capsys.readouterr().out
    assert "protocol of sm90_gemm" in shown
    assert "protocol of norm_activation" in shown


def test_norm_activations_protocol_is_read_off_a_plans_kernels(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    problem = {"rows": 64, "width": 256}
    ring = {"consumers": 2, "copies": "vector", "depth": 2, "chunk_bytes": 2048}
    named = {"kind": "specialised", "producers": 1, "barrier": "named", **ring}
    configs = [
        {"kind": "plain", "consumers": 4, "hold": "reload"},
        {"kind": "strong", "consumers": 4, "team": 2},
        named,
        named | {"depth": 3},
    ]
    plan.write_text(json.dumps({"cells": [{"problem": problem, "config": c} for c in configs]}))
    words = ["bench", "protocol", "--family", "norm_activation", "--plan", str(plan), "--json"]
    assert main(words) == 0
    body = json.loads(capsys.readouterr().out)["norm_activation"]
    assert (body["keys"], body["meet_nobody"]) == (3, 1)  # depths are launches of one kernel
    assert body["mismatches"] == body["faults"] == []
    assert body["launches_with"]["named_barriers"] >= 3
    assert body["launches_with"]["alike_warps"] >= 2
    assert (body["blocks"], body["instances"]) == (2, 2)
    assert body["lemmas"] == 8 + 2
    assert body["states"] > 50


def test_a_plan_of_norm_cells_goes_with_its_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "protocol", "--plan", "plan.json", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["errors"][0]["field"] == "plan"


@pytest.mark.parametrize("words", [["solve", "--check"], ["constraints", "--sets", "1"]])
def test_a_suite_too_long_for_brute_force_is_refused_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    suite = suite_of(tmp_path, "2147483647,1005,136")
    assert main(["bench", *words, "--suite", suite, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["errors"][0]
    assert error["field"] == "suite"
    assert "at most 2000000" in error["message"]


def test_memory_as_a_limit_and_as_a_penalty(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    suite = suite_of(tmp_path, "64,512,512", "512,512,512")
    assert main(["bench", "memory", "--suite", suite, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["kind"] for row in rows] == ["free", *["limit"] * 6, *["penalty"] * 5]
    for kind in ("limit", "penalty"):
        mine = [row for row in rows if row["kind"] == kind]
        times = [row["time_ratio_geomean"] for row in mine]
        assert times == sorted(times)
        assert all(row["smem_kib_max"] <= row["value"] for row in mine if kind == "limit")
    assert main(["bench", "memory", "--suite", suite]) == 0
    assert "penalty" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--constraints", '{"sms": {"max": "1"}}'], "constraints.sms.max"),
        (["--constraints", "nonsense"], "constraints"),
        (["--objective", '{"kind": "best"}'], "objective.kind"),
        (["--objective", "@/nowhere"], "objective"),
    ],
)
def test_a_wrong_wish_exits_2_and_names_its_path(
    capsys: pytest.CaptureFixture[str], words: list[str], field: str
) -> None:
    assert main(["bench", "solve", *words, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["errors"][0]["field"] == field


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--suite", "none"], "suite"),
        (["--device", "none"], "device"),
        (["--device", "mi300x"], "device"),
        (["--best", "3"], "arguments"),
    ],
)
def test_bad_input_exits_2_and_names_the_field(
    capsys: pytest.CaptureFixture[str], words: list[str], field: str
) -> None:
    assert main(["bench", "strategies", *words, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["errors"][0]["field"] == field
