"""The pick against brute force over the whole legal space by the event simulator."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from solver import oracle
from solver.config import Config
from solver.device import load_profile
from solver.errors import IllegalConfig
from solver.families import sm90_gemm, sm90_gemm_legality
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
        Problem(
            *(rng.randint(1, 5000) for _ in range(3)),
            dtype=dtype,
            layout=layout,
            out_dtype=rng.choice(["bf16", "fp16", "fp32"]),
        )
        for dtype, layout in (("bf16", "tn"), ("fp16", "nn"), ("bf16", "nt"), ("fp16", "tt"))
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
        sm90_gemm_legality.check(config, problem, H200)
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
                "cluster_m": rng.choice((1, 1, 2)),
                "cluster_n": rng.choice((1, 1, 2)),
                "split_k": rng.choice(sm90_gemm.SPLIT_K[:4]),
                "raster_group": 1,
            }
        )
        try:
            sm90_gemm_legality.check(config, problem, H200)
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


@pytest.mark.parametrize(
    ("problem", "step"),
    [
        (Problem(100, 100, 100), 8),
        (Problem(100, 100, 100, layout="nn"), 8),
        (Problem(100, 100, 100, layout="nt"), 16),
        (Problem(100, 100, 100, layout="tt"), 16),
        (Problem(100, 100, 100, out_dtype="fp32"), 16),
        (Problem(100, 1, 100, layout="tt"), 8),  # one column: contiguous in k all the same
        (Problem(1, 1, 1, out_dtype="fp32"), 16),
    ],
    ids=str,
)
def test_tiles_are_as_narrow_as_layout_and_output_allow(problem: Problem, step: int) -> None:
    tile_n = tabulate(problem, H200, "calibrated").works.config["tile_n"]
    assert tile_n.min() == step
    assert (tile_n % step == 0).all()
    for width in (8, 24):
        config = Config("sm90_gemm", 64, width, 64, 4)
        if step == 16:
            with pytest.raises(IllegalConfig, match="must be a multiple of 16") as caught:
                sm90_gemm_legality.check(config, problem, H200)
            assert caught.value.field == "tile_n"
        elif width <= problem.n:
            sm90_gemm_legality.check(config, problem, H200)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cluster_m": 2, "cluster_n": 2}, "cluster_m"),
        ({"cluster_m": 3}, "cluster_m"),
        ({"cluster_n": 4}, "cluster_m"),
        ({"cluster_m": 2, "tile_n": 24}, "cluster_m"),
        ({"cluster_m": 2}, "cluster_m"),  # 5 tiles along m
        ({"cluster_n": 2, "tile_n": 80}, "cluster_n"),  # 5 tiles along n
        ({"cluster_m": 2, "tile_m": 192, "math_warpgroups": 3, "raster_group": 2}, "raster_group"),
    ],
)
def test_a_cluster_that_would_lie_partly_outside_is_refused(
    change: dict[str, int], field: str
) -> None:
    config = Config("sm90_gemm", 64, 64, 64, 3)
    problem = Problem(320, 400, 512)
    sm90_gemm_legality.check(config, problem, H200)
    with pytest.raises(IllegalConfig) as caught:
        sm90_gemm_legality.check(dataclasses.replace(config, **change), problem, H200)
    assert caught.value.field == field


def test_every_cluster_of_the_space_divides_its_tiles() -> None:
    problem = Problem(320, 400, 512)
    table = tabulate(problem, H200, "calibrated")
    c = table.works.config
    clusters = set(zip(c["cluster_m"].tolist(), c["cluster_n"].tolist(), strict=True))
    assert clusters == {(1, 1), (2, 1), (1, 2)}
    assert (-(-problem.m // c["tile_m"]) % c["cluster_m"] == 0).all()
    assert (-(-problem.n // c["tile_n"]) % c["cluster_n"] == 0).all()
    assert (table.works.active % table.works.cluster == 0).all()
