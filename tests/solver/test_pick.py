"""The pick against brute force over the whole legal space by the event simulator."""

from __future__ import annotations

import random

import numpy as np
import pytest

from solver import oracle
from solver.device import load_profile
from solver.errors import IllegalConfig, InvalidProblem
from solver.families import sm90_gemm
from solver.objective import DEFAULT
from solver.pick import best_rows, find_row, price, work_bounds
from solver.problem import Problem
from solver.space import tabulate
from solver.suites import load_suite

H200 = load_profile("h200")


def sample_problems() -> list[Problem]:
    rng = random.Random(20261129)
    suite = [p for p in load_suite("llm") if p.m * p.n < 2**25]
    odd = [
        Problem(rng.randint(1, 5000), rng.randint(1, 5000), 8 * rng.randint(1, 600), dtype)
        for dtype in ("bf16", "fp16", "bf16", "fp16", "bf16")
    ]
    return [*rng.sample(suite, 5), *odd, Problem(1, 1, 8), Problem(4096, 4096, 4096)]


@pytest.mark.parametrize("problem", sample_problems(), ids=str)
def test_the_pick_is_the_brute_force_optimum(problem: Problem) -> None:
    table = tabulate(problem, H200, "calibrated")
    best = best_rows(table)[0]
    first = oracle.first_rows(table, DEFAULT.to_dict())[0]
    assert (first.time, first.wait, first.config) == (best.time, best.wait, best.config)


def test_the_best_rows_are_distinct_ordered_and_the_true_first_ones() -> None:
    table = tabulate(Problem(300, 2048, 1024), H200, "calibrated")
    rows = best_rows(table, 40)
    assert len({row.config for row in rows}) == 40
    assert [row.order for row in rows] == sorted(row.order for row in rows)
    work, kernel = table.rows(np.arange(len(table.first)))
    time, _ = price(table, work, kernel)
    assert [row.time for row in rows] == sorted(time.tolist())[:40]


def test_no_row_beats_the_bound_of_its_work() -> None:
    table = tabulate(Problem(512, 4096, 4096), H200, "calibrated")
    work, kernel = table.rows(np.arange(len(table.first)))
    time, wait = price(table, work, kernel)
    assert (time >= work_bounds(table)[work]).all()
    assert (wait >= 0).all()


def test_every_row_of_the_space_passes_the_check_of_a_single_configuration() -> None:
    problem = Problem(200, 3000, 2048)
    table = tabulate(problem, H200, "calibrated")
    work, kernel = table.rows(np.arange(len(table.first)))
    rng = random.Random(5)
    for i in rng.sample(range(len(work)), 150):
        config = table.config(int(work[i]), int(kernel[i]))
        sm90_gemm.check(config, problem, H200)
        row = find_row(table, config)
        assert (row.work, row.kernel) == (work[i], kernel[i])


def test_every_configuration_of_the_domain_is_in_the_space_or_breaks_a_limit() -> None:
    problem = Problem(130, 96, 512)
    table = tabulate(problem, H200, "calibrated")
    rng = random.Random(6)
    inside = outside = 0
    fields = set()
    for _ in range(400):
        tile_m, warpgroups = rng.choice(sm90_gemm.TILE_SHAPES)
        config = best_rows(table)[0].config.from_dict(
            {
                "family": sm90_gemm.NAME,
                "tile_m": tile_m,
                "math_warpgroups": warpgroups,
                "tile_n": rng.choice(sm90_gemm.TILE_N),
                "tile_k": rng.choice(sm90_gemm.TILE_K),
                "stages": rng.choice(sm90_gemm.STAGES),
                "mma_in_flight": rng.randint(0, 1),
                "dma_warps": rng.randint(1, 2),
                "register_split": rng.randint(0, 1),
                "split_k": rng.choice(sm90_gemm.SPLIT_K[:4]),
                "raster_group": 1,
            }
        )
        try:
            sm90_gemm.check(config, problem, H200)
        except IllegalConfig as error:
            outside += 1
            fields.add(error.field)
            with pytest.raises(IllegalConfig):
                find_row(table, config)
        else:
            inside += 1
            find_row(table, config)
    assert inside > 20
    assert outside > 20
    assert fields <= set(best_rows(table)[0].config.to_dict())


def test_configurations_of_a_space_are_distinct() -> None:
    table = tabulate(Problem(640, 1024, 768), H200, "calibrated")
    work, kernel = table.rows(np.arange(len(table.first)))
    configs = {table.config(int(w), int(k)) for w, k in zip(work, kernel, strict=True)}
    assert len(configs) == table.size


def test_rows_that_tma_cannot_take_are_refused_with_field_and_limit() -> None:
    with pytest.raises(InvalidProblem, match=r"k: must be a multiple of 8"):
        tabulate(Problem(64, 64, 100), H200, "calibrated")
