"""The joint solve against layered ones: what stands for a layer, what is cut, what is found."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from solver.config import Config
from solver.device import load_profile
from solver.pick import best_rows, price
from solver.problem import Problem
from solver.proof import Prover
from solver.simulator import simulate_rows
from solver.space import tabulate
from solver.strategies import (
    KEPT,
    LAYER_FIELDS,
    PLAYED_ITERATIONS_MAX,
    SEARCHED_ROWS_MAX,
    STRATEGIES,
    Comparison,
    bench_strategies,
    build_layers,
    compare,
    play,
)

H200 = load_profile("h200")
PROBLEMS = (Problem(1, 4096, 4096), Problem(4096, 4096, 4096), Problem(64, 2112, 7168))


@cache
def prover() -> Prover:
    return Prover()


@cache
def compared(problem: Problem) -> Comparison:
    return compare(problem, H200, prover())


def is_plain(config: Config) -> bool:
    one = (config.split_k, config.raster_group, config.cluster_m, config.cluster_n)
    return one == (1, 1, 1, 1) and config.mma_in_flight == 0


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_a_layer_is_stood_for_by_its_plain_row_of_the_deepest_ring(problem: Problem) -> None:
    table = tabulate(problem, H200, "calibrated")
    layers = build_layers(table)
    work, kernel = table.rows(np.arange(len(table.first)))
    stands = {}
    for w, k in zip(layers.work, layers.kernel, strict=True):
        config = table.config(int(w), int(k))
        stands[tuple(getattr(config, name) for name in LAYER_FIELDS)] = config
    assert len(stands) == len(layers.work)
    deepest: dict[tuple[int, ...], int] = {}
    for w, k in zip(work, kernel, strict=True):
        config = table.config(int(w), int(k))
        layer = tuple(getattr(config, name) for name in LAYER_FIELDS)
        deepest.setdefault(layer, 0)
        if is_plain(config):
            deepest[layer] = max(deepest[layer], config.stages)
    assert set(stands) == set(deepest)
    plain = [layer for layer, stages in deepest.items() if stages]
    assert len(plain) > 0.8 * len(stands)
    for layer in plain:
        assert is_plain(stands[layer])
        assert stands[layer].stages == deepest[layer]


def test_a_layer_without_a_plain_row_is_stood_for_by_its_first() -> None:
    table = tabulate(Problem(64, 2112, 7168), H200, "calibrated")
    split = table.restrict(
        table.works.config["split_k"] > 1, np.ones(len(table.kernels.slots), dtype=bool)
    )
    layers = build_layers(split)
    for layer, work in enumerate(layers.work):
        assert work == np.flatnonzero(layers.of == layer)[0]
    assert (layers.kernel == split.first[layers.work]).all()


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_a_run_is_played_to_its_own_end_or_said_to_be_cut(problem: Problem) -> None:
    table = tabulate(problem, H200, "calibrated")
    layers = build_layers(table)
    time, whole = play(table, layers.work, layers.kernel)
    exact, _ = price(table, layers.work, layers.kernel)
    steps = (table.works.units * table.works.iterations)[layers.work]
    assert (whole == (steps <= PLAYED_ITERATIONS_MAX)).all()
    assert (time[whole] == exact[whole]).all()
    assert np.abs(time / exact - 1).max() < 0.02


def test_no_more_of_a_run_is_played_than_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    played = []

    def spy(rows):  # type: ignore[no-untyped-def]
        played.append(int((rows.units * rows.iterations).max()))
        return simulate_rows(rows)

    monkeypatch.setattr("solver.strategies.simulate_rows", spy)
    for problem in (Problem(65536, 65536, 64), Problem(64, 64, 2**22)):
        table = tabulate(problem, H200, "calibrated")
        layers = build_layers(table)
        time, _ = play(table, layers.work, layers.kernel)
        exact, _ = price(table, layers.work, layers.kernel)
        assert np.abs(time / exact - 1).max() < 0.05
    assert max(played) <= PLAYED_ITERATIONS_MAX


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_more_layers_find_no_worse_and_none_finds_better_than_the_joint_solve(
    problem: Problem,
) -> None:
    row = compared(problem)
    best = best_rows(tabulate(problem, H200, "calibrated"))[0]
    assert row.outcomes["joint"].config == best.config
    gaps = [row.gap(f"layered_{kept}") for kept in KEPT]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] >= row.gap("joint") == 0


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_a_layered_strategy_finds_the_optimum_where_it_keeps_its_layer(problem: Problem) -> None:
    row = compared(problem)
    assert len(row.ranking) == len(set(row.ranking.tolist()))
    for kept in KEPT:
        assert row.is_optimum(f"layered_{kept}") == (row.optimum_rank <= kept)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_z3_alone_is_asked_of_a_small_layer_and_finds_its_pick(problem: Problem) -> None:
    outcomes = compared(problem).outcomes
    first = outcomes["layered_1"]
    assert ("z3_alone" in outcomes) == (first.configurations <= SEARCHED_ROWS_MAX)
    if "z3_alone" in outcomes:
        assert outcomes["z3_alone"].config == first.config


def test_the_bench_adds_up_its_shapes() -> None:
    calls: list[tuple[int, int]] = []
    result = bench_strategies(PROBLEMS[:2], progress=lambda *at: calls.append(at))
    assert calls == [(i, 6) for i in range(1, 7)]
    assert result["shapes"] == len(result["by_shape"]) == 2
    assert tuple(result["strategies"]) == STRATEGIES
    for name, figures in result["strategies"].items():
        rows = [s["strategies"][name] for s in result["by_shape"] if name in s["strategies"]]
        assert figures["shapes"] == len(rows)
        if not rows:
            continue
        gaps = [row["gap"] for row in rows]
        assert figures["worst_gap"] == max(gaps)
        assert figures["geomean_gap"] == pytest.approx(
            math.prod(1 + gap for gap in gaps) ** (1 / len(gaps)) - 1
        )
        assert figures["optimum"] == sum(row["optimum"] for row in rows) / len(rows)
        assert figures["p99_ms"] >= figures["p50_ms"] > 0
    joint = result["strategies"]["joint"]
    assert (joint["optimum"], joint["worst_gap"], joint["simulate_p50_ms"]) == (1, 0, 0)


def test_a_suite_without_a_small_layer_reports_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("solver.strategies.SEARCHED_ROWS_MAX", 1)
    result = bench_strategies(PROBLEMS[:1])
    assert result["strategies"]["z3_alone"] == {"shapes": 0}
    assert result["with_candidate_p50_ms"] is None
