"""Plans for a GPU host: which configurations are tried."""

from __future__ import annotations

import json

import pytest

from app.plan import candidates, make_plan, spread
from kernels.bench_plan import parse_plan
from solver.constraints import Constraints
from solver.device import load_profile
from solver.pick import best_rows
from solver.problem import Problem
from solver.question import Question
from solver.space import tabulate

PROBLEM = Problem(64, 4096, 4096)


def shapes(configs: list[dict[str, int]]) -> set[tuple[int, ...]]:
    names = ("tile_m", "tile_n", "tile_k", "split_k", "cluster_m", "cluster_n")
    return {tuple(config[name] for name in names) for config in configs}


@pytest.mark.parametrize(("count", "first"), [(2, 1), (5, 1), (16, 1), (20, 5), (30, 15)])
def test_candidates_are_of_further_shapes_before_they_are_of_the_first(
    count: int, first: int
) -> None:
    rows = best_rows(tabulate(PROBLEM, load_profile("h200"), "calibrated"), 4000)
    chosen = spread(rows, count)
    assert chosen[:first] == list(rows[:first])
    later = [row.config.to_dict() for row in chosen[first:]]
    assert len(shapes(later)) == count - first
    assert not shapes(later) & shapes([row.config.to_dict() for row in rows[:first]])
    assert [row.time for row in chosen] == sorted(row.time for row in chosen)


@pytest.mark.parametrize("problem", [PROBLEM, Problem(8192, 8192, 8192)])
@pytest.mark.parametrize("count", [2, 5, 16, 30])
def test_where_shapes_run_out_their_variants_are_candidates(problem: Problem, count: int) -> None:
    """As where a user asks for one tile: what it is raced against is of that tile too."""
    asked = {"tile_m": 64, "tile_n": 64, "tile_k": 64, "split_k": 1, "cluster_m": 1}
    asked["cluster_n"] = 1
    constraints = Constraints.from_dict({"config": {n: {"in": [v]} for n, v in asked.items()}})
    question = Question(problem, device="h200", proof="none", constraints=constraints)
    found = candidates(question, count)
    configs = [config for config, _ in found]
    assert len(shapes(configs)) == 1
    assert len({str(config) for config in configs}) == count
    assert [time_us for _, time_us in found] == sorted(time_us for _, time_us in found)


def test_one_candidate_is_the_pick() -> None:
    question = Question(PROBLEM, device="h200", proof="none")
    first = candidates(question, 1)
    assert len(first) == 1
    assert candidates(question, 30)[0] == first[0]


def test_a_plan_without_a_best_holds_picks_alone() -> None:
    shared = {"device": "h200", "cache": "warm", "progress": lambda done, total: None}
    alone = make_plan("x/mine.csv", [PROBLEM], best=0, **shared)
    assert [row["role"] for row in alone["rows"]] == ["pick"]
    plan = make_plan("x/mine.csv", [PROBLEM], best=30, **shared)
    assert (plan["suite"], plan["cache"]) == ("mine", "warm")
    roles = [row["role"] for row in plan["rows"]]
    assert roles == ["pick"] + ["best"] * 30
    assert plan["rows"][0]["config"] == plan["rows"][1]["config"] == alone["rows"][0]["config"]
    assert plan["rows"][0]["predicted_us"] == plan["rows"][1]["predicted_us"]
    assert len({str(row["config"]) for row in plan["rows"][1:]}) == 30


def test_a_small_space_gives_what_it_has() -> None:
    plan = make_plan(
        "tiny.csv",
        [Problem(1, 1, 1)],
        device="h200",
        best=64,
        cache="cold",
        progress=lambda done, total: None,
    )
    assert len(plan["rows"]) == 65
    assert len(parse_plan(json.dumps(plan)).jobs()) == 2


def test_candidates_of_a_large_product_hold_tiles_that_load_least() -> None:
    large = Question(Problem(8192, 8192, 8192), device="h200", proof="none")
    configs = [config for config, _ in candidates(large, 24)]
    assert len({str(config) for config in configs}) == len(configs) == 24
    assert configs[0] == candidates(large, 1)[0][0]
    tiles = {(config["tile_m"], config["tile_n"]) for config in configs}
    assert (256, 192) in tiles
    assert (256, 192) not in {
        (config["tile_m"], config["tile_n"])
        for config, _ in candidates(Question(PROBLEM, device="h200", proof="none"), 24)
    }
