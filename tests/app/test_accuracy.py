"""``warpwright bench accuracy`` and ``bench plan --regret`` over a small recorded ground truth."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from app.accuracy import accuracy, pick_vs_cublas
from app.cli.main import main
from app.plan import candidates
from app.recorded import read_recorded
from app.regret_plan import fastest, make_regret_plan, model_first
from kernels.bench_plan import parse_plan
from solver.accuracy import FITTED
from solver.config import Config
from solver.families import sm90_gemm_legality as legality
from solver.peers import triton_wishes
from solver.problem import Problem
from solver.question import Question
from solver.raced import REASONS, TOP_COUNT, TRUTH_COUNT
from tests.ground_truths import H200, Timed, config, off_by, predicted_us, write_truth

HELD, SEEN = Problem(64, 4096, 4096), Problem(16, 4096, 4096)
SMALL = Problem(128, 128, 256)
TRITON = {"tile_m": 64, "tile_n": 32, "tile_k": 128, "warps": 4, "stages": 5, "halves": False}
NVMMH = {
    **{"tile_m": 64, "tile_n": 32, "tile_k": 128, "stages": 8},
    **{"split_k": 1, "cluster_m": 1, "cluster_n": 4},
}
TOP_KEYS = {"rows", "mean_ape", "p95_ape", "max_ape"}


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.host.host_gpu", lambda: None)


def rows(held_error: float = 0.1) -> list[Timed]:
    return [
        *(off_by(HELD, config(64, stages), held_error) for stages in range(2, 12)),
        *(off_by(SEEN, config(64, stages), 0.01 * stages) for stages in range(2, 12)),
        off_by(SMALL, config(128, 8), 0.05, suite="paper", role="paper"),
        off_by(Problem(128, 128, 128), config(64, 8), 0.02, suite="paper", role="paper"),
    ]


def pick_row(problem: Problem, ratio: float, stages: int = 0) -> dict[str, Any]:
    pick = model_first(problem, H200)[0][0].to_dict()
    return {
        **{"suite": "llm", "cache": "cold", "role": "pick", "status": "passed"},
        **problem.to_dict(),
        "config": pick | ({"stages": stages} if stages else {}),
        "ratio_to_cublas": ratio,
        "triton_how": TRITON,
    }


def recorded_folder(folder: Path, timed: list[Timed] | None = None) -> Path:
    write_truth(folder, rows() if timed is None else timed)
    ceilings = {"tensor_tflops": 800.0, "read_gb_per_s": 4000.0}
    (folder / "ceilings.json").write_text(json.dumps({"ceilings": ceilings}))
    said = {"cache": "cold", "pick": NVMMH, "time_us": 20.0}
    estimates = [[64, 64, 64, stages, 1, 1, 1, 30.0 - stages] for stages in range(2, 12)]
    nvmmh = {"rows": [{**p.to_dict(), **said, "estimates": estimates} for p in (HELD, SEEN)]}
    (folder / "nvmmh.json.gz").write_bytes(gzip.compress(json.dumps(nvmmh).encode()))
    picks = {"rows": [pick_row(HELD, 1.21), pick_row(SEEN, 1.0), pick_row(HELD, 0.5, stages=2)]}
    (folder / "best_llm.json").write_text(json.dumps(picks))
    return folder


def race_all(folder: Path) -> None:
    """Record a race in which each candidate takes 1 % longer than the one before it."""
    plan = make_regret_plan(read_recorded("h200", folder), "h200", lambda done, total: None)
    races = []
    for job in parse_plan(json.dumps(plan)).jobs():
        candidates = [
            {
                "config": row.config.to_dict(),
                "of": list(row.of),
                "relative": 1 + 0.01 * place,
                "median_us": 10.0 * (1 + 0.01 * place),
            }
            for place, row in enumerate(job)
        ]
        learnt = {"winner": 1, "beats_pick": True}
        races.append(job[0].identity() | {"candidates": candidates, "learnt": learnt})
    (folder / "regret.json").write_text(json.dumps({"rows": races}))


def test_without_a_ground_truth_it_names_the_command_that_makes_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["--device", "h200", "--results", str(tmp_path), "--json"]
    for command in (["accuracy"], ["plan", "--regret", "--out", str(tmp_path / "plan.json")]):
        assert main(["bench", *command, *words]) == 3
        detail = json.loads(capsys.readouterr().out)["detail"]
        assert "warpwright sweep --ground-truth" in detail
        assert str(tmp_path) in detail


def test_it_prints_every_figure_of_the_contract(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    race_all(recorded_folder(tmp_path))
    words = ["bench", "accuracy", "--device", "h200", "--results", str(tmp_path), "--json"]
    assert main(words) == 0
    body = json.loads(capsys.readouterr().out)
    for part in ("paper", "llm"):
        assert set(body[part]) >= TOP_KEYS | {"quiet", "noise", "by_m", "by_kind", "by_split"}
        assert set(body[part]["quiet"]) == TOP_KEYS
        peers = {"roofline"} | ({"published"} if part == "paper" else {"nvmmh"})
        assert set(body[part]["peers"]) == peers
    assert (body["paper"]["rows"], body["llm"]["rows"]) == (1, 10)
    assert body["paper"]["mean_ape"] == pytest.approx(0.05, abs=1e-4)
    assert body["llm"]["max_ape"] == pytest.approx(0.10, abs=1e-4)
    regret = body["regret"]
    assert (regret["shapes"], regret["unmeasured"]) == (2, 0)
    assert regret["geomean"] == regret["worst"] == regret["top5_worst"] == 1.0
    assert (regret["learnt_shapes"], regret["learnt_worst"]) == (2, pytest.approx(1.01))
    assert regret["peers"]["nvmmh"]["shapes"] == regret["peers"]["triton"]["shapes"] == 2
    assert regret["peers"]["nvmmh"]["geomean"] > 1
    assert regret["peers"]["nvmmh"]["pick_time"]["rows"] == 2
    assert set(regret["over_measured"]) == {"model", "nvmmh", "roofline"}
    against = body["pick_vs_cublas"]
    assert against == {
        **{"shapes": 3, "geomean": pytest.approx(1.1), "worst": 1.0},
        **{"unmeasured": 0, "stale": 1},
    }
    assert "hash" in body["held_out"]


def test_a_person_gets_a_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    race_all(recorded_folder(tmp_path))
    assert main(["bench", "accuracy", "--results", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for word in ("10.0%", "without noisy rows", "m 17-64", "nvmmh", "Regret", "1.100, 1.000"):
        assert word in out
    write_truth(tmp_path / "held", rows()[:10])
    assert main(["bench", "accuracy", "--results", str(tmp_path / "held"), "--fitted"]) == 0
    assert "fitted rows" in capsys.readouterr().out


def test_what_was_not_recorded_leaves_its_part_empty(tmp_path: Path) -> None:
    write_truth(tmp_path, rows())
    body = accuracy(read_recorded("h200", tmp_path), "h200")
    assert body["llm"]["peers"] == {}
    assert (body["regret"]["shapes"], body["regret"]["unmeasured"]) == (2, 2)
    assert body["regret"]["geomean"] is body["pick_vs_cublas"]["geomean"] is None
    assert body["pick_vs_cublas"]["shapes"] == 0


def test_fitted_figures_look_at_nothing_that_is_held_out(tmp_path: Path) -> None:
    bodies = []
    for name, error in (("a", 0.1), ("b", 0.6)):
        folder = recorded_folder(tmp_path / name, rows(error))
        race_all(folder)
        bodies.append(accuracy(read_recorded("h200", folder), "h200", FITTED))
    for body in bodies:
        assert body["rows"] == "fitted"
        assert body["llm"]["rows"] == 10
        assert body["regret"]["shapes"] == body["pick_vs_cublas"]["shapes"] == 1
        del body["llm"]["noise"], body["paper"]["noise"]  # of what was measured, not of the model
    assert bodies[0] == bodies[1]


def test_a_table_that_was_cut_off_is_no_ground_truth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between two lines, so that what is left is a whole table by itself."""
    path = recorded_folder(tmp_path) / "ground_truth.csv.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(lines[:-1])))
    assert main(["bench", "accuracy", "--results", str(tmp_path), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["errors"][0]
    assert error["field"] == "results"
    assert "ground_truth.json counts" in error["message"]


@pytest.mark.parametrize("text", ["[", "[]", "{}", '{"rows": 3}', '{"rows": [3]}'])
@pytest.mark.parametrize(
    "name",
    [
        "regret.json",
        "ground_truth.json",
        "best_llm.json",
        "picks_odd20.json",
        "ceilings.json",
        "nvmmh.json.gz",
    ],
)
def test_a_damaged_record_is_named(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded_folder(tmp_path)
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert main(["bench", "accuracy", "--results", str(tmp_path), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["errors"][0]
    assert error["field"] == "results"
    assert name in error["message"]


def test_races_hold_the_pick_the_models_first_the_fastest_measured_and_the_peers(
    tmp_path: Path,
) -> None:
    recorded = read_recorded("h200", recorded_folder(tmp_path))
    plan = make_regret_plan(recorded, "h200", lambda done, total: None)
    jobs = parse_plan(json.dumps(plan)).jobs()
    assert [job[0].problem for job in jobs] == [HELD, SEEN]
    for job, group in zip(jobs, recorded.groups, strict=False):
        configs = [row.config for row in job]
        assert len(set(configs)) == len(configs)
        first = [each for each, _ in model_first(group.problem, H200)]
        assert configs[:TOP_COUNT] == first
        assert [row.of[0] for row in job[:2]] == ["pick", "top"]
        of = {why: [row.config for row in job if why in row.of] for why in REASONS}
        assert of["top"] == first
        question = Question(group.problem)
        raced = candidates(question, TOP_COUNT)
        assert set(of["contest"]) == {Config.from_dict(fields) for fields, _ in raced}
        assert of["contest"][0] == first[0]
        assert of["truth"] == [each for each in configs if each in fastest(group)]
        assert len(of["truth"]) == TRUTH_COUNT
        for peer in ("nvmmh", "triton"):
            (mapped,) = [row.config for row in job if peer in row.of]
            assert (mapped.tile_m, mapped.tile_n, mapped.tile_k) == (64, 32, 128)
        for row in job:
            legality.check(row.config, row.problem, H200)
            assert row.predicted_us == predicted_us(row.problem, row.config)
    predicted = [row.predicted_us for row in jobs[0][:TOP_COUNT]]
    assert predicted == sorted(predicted)  # type: ignore[type-var]
    assert triton_wishes(TRITON)["math_warpgroups"] == 1


def test_the_fastest_are_those_measured_so_in_order(tmp_path: Path) -> None:
    (group, *_) = read_recorded("h200", recorded_folder(tmp_path)).groups
    order = sorted(range(10), key=lambda row: float(group.measured_us[row]))
    assert [each.stages for each in fastest(group, 3)] == [2 + row for row in order[:3]]


def test_races_may_be_those_of_one_suite(tmp_path: Path) -> None:
    recorded = read_recorded("h200", recorded_folder(tmp_path))
    whole, part = (
        make_regret_plan(recorded, "h200", lambda *_: None, suite) for suite in (None, "llm")
    )
    assert part["rows"] == [row for row in whole["rows"] if row["suite"] == "llm"] != []


def test_a_plan_of_races_takes_no_count_and_a_plan_no_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded_folder(tmp_path)
    out = ["--out", str(tmp_path / "plan.json"), "--json"]
    for words, field in (
        (["--regret", "--suite", "no", "--results", str(tmp_path)], "suite"),
        (["--regret", "--best", "3"], "best"),
        (["--regret", "--cache", "warm"], "cache"),
        (["--results", str(tmp_path)], "results"),
    ):
        assert main(["bench", "plan", *words, *out]) == 2
        assert json.loads(capsys.readouterr().out)["errors"][0]["field"] == field


def test_a_pick_that_failed_against_cublas_is_unmeasured(tmp_path: Path) -> None:
    folder = recorded_folder(tmp_path)
    picks = [pick_row(HELD, 1.2), pick_row(SEEN, 1.1) | {"status": "failed"}]
    (folder / "best_llm.json").write_text(json.dumps({"rows": picks}))
    figures = pick_vs_cublas(read_recorded("h200", folder), "h200")
    assert (figures["shapes"], figures["unmeasured"], figures["worst"]) == (2, 1, 1.2)
