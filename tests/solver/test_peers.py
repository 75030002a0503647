"""Peers' picks become legal configurations of ours, and what they say is told of the right rows."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest

from solver.families import paper
from solver.families import sm90_gemm_legality as legality
from solver.ground_truth import load_ground_truth
from solver.peers import (
    ALIKE,
    Roofline,
    nearest_legal,
    nvmmh_estimates,
    published_times,
    roofline_times,
    triton_wishes,
)
from solver.pick import best_rows, find_row
from solver.problem import LAYOUTS, Problem
from solver.space import tabulate
from solver.sweep_design import cold_problems
from solver.units import TICKS_PER_US
from tests.ground_truths import H200, config, off_by, write_truth

SHAPES = [problem for problems in cold_problems(2).values() for problem in problems]


def test_whatever_is_wished_the_nearest_is_legal() -> None:
    rng = random.Random(7)
    for problem in SHAPES[::3]:
        wishes = {
            "tile_m": rng.choice((16, 64, 128, 256, 512)),
            "tile_n": rng.choice((8, 16, 80, 128, 160, 256)),
            "tile_k": rng.choice((32, 64, 128)),
            "stages": rng.randint(1, 14),
            "split_k": rng.choice((1, 2, 9)),
            "cluster_m": rng.choice((1, 2, 4)),
            "cluster_n": rng.choice((1, 2, 4)),
        }
        legality.check(nearest_legal(problem, H200, wishes), problem, H200)


def test_what_is_legal_is_its_own_nearest_and_the_model_fills_in_the_rest() -> None:
    problem = Problem(512, 4096, 4096)
    best = best_rows(tabulate(problem, H200, "calibrated"))[0].config
    named = {name for fields in ALIKE for name in fields}
    wishes = {name: getattr(best, name) for name in named}
    assert nearest_legal(problem, H200, wishes) == best
    assert nearest_legal(problem, H200, {}) == best


def test_a_tile_counts_before_a_split_and_that_before_the_rest() -> None:
    problem = Problem(4096, 4096, 4096)
    wishes = {"tile_m": 128, "tile_n": 128, "tile_k": 64, "stages": 12, "cluster_n": 4}
    nearest = nearest_legal(problem, H200, wishes)
    assert (nearest.tile_m, nearest.tile_n, nearest.tile_k) == (128, 128, 64)
    assert nearest.cluster_n == 2
    assert nearest.stages < 12  # what shared memory holds of such a tile


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tritons_tiles_are_taken_as_they_are_where_they_are_legal(layout: str) -> None:
    problem = Problem(4096, 4096, 4096, layout=layout)
    for tile_m, tile_n, warps, warpgroups in ((64, 64, 4, 1), (128, 128, 8, 2), (256, 128, 8, 2)):
        how = {"tile_m": tile_m, "tile_n": tile_n, "tile_k": 64, "warps": warps, "stages": 3}
        nearest = nearest_legal(problem, H200, triton_wishes(how | {"halves": True}))
        assert (nearest.tile_m, nearest.tile_n, nearest.tile_k) == (tile_m, tile_n, 64)
        assert (nearest.math_warpgroups, nearest.stages) == (warpgroups, 3)
        assert (nearest.split_k, nearest.cluster_m, nearest.cluster_n) == (1, 1, 1)


def test_estimates_are_those_of_the_same_problem_cache_and_kernel(tmp_path: Path) -> None:
    problem, other = Problem(64, 512, 512), Problem(64, 512, 520)
    rows = [
        off_by(problem, config(64, 4), 0.0),
        off_by(problem, config(64, 5), 0.0),
        off_by(problem, config(64, 4, split_k=2), 0.0),
        off_by(other, config(64, 4), 0.0),
        off_by(problem, config(64, 4), 0.0, suite="paper"),
    ]
    groups = load_ground_truth(write_truth(tmp_path, rows))
    said = {**problem.to_dict(), "cache": "cold", "estimates": [[64, 64, 64, 4, 1, 1, 1, 7.5]]}
    predict = nvmmh_estimates({"rows": [said]})
    times = [predict(group) for group in groups]
    assert times[0][0] == 7.5
    assert np.isnan(times[0][1:]).all()
    assert np.isnan(np.concatenate(times[1:])).all()


def test_a_roofline_is_the_later_of_operations_and_bytes(tmp_path: Path) -> None:
    roofline = Roofline.of({"tensor_tflops": 800.0, "read_gb_per_s": 4000.0})
    large, thin = Problem(8192, 8192, 8192), Problem(1, 4096, 4096)
    assert roofline.time_us(large) == pytest.approx(2 * 8192**3 / 800e6)
    assert roofline.time_us(thin) == pytest.approx(2 * (4096**2 + 2 * 4096) / 4000e3)
    (group,) = load_ground_truth(write_truth(tmp_path, [off_by(thin, config(), 0.0)]))
    assert roofline_times(roofline)(group).tolist() == [roofline.time_us(thin)]


def test_the_published_model_speaks_of_its_own_space_alone(tmp_path: Path) -> None:
    problem, other = Problem(512, 512, 256), Problem(512, 512, 256, layout="tt")
    known = config(128, 5, dma_warps=2)
    rows = [
        off_by(problem, known, 0.0, suite="paper"),
        off_by(problem, config(64, 4, mma_in_flight=1), 0.0, suite="paper"),
        off_by(problem, config(32, 4), 0.0, suite="paper"),
        off_by(other, known, 0.0, suite="paper"),
        off_by(problem, known, 0.0),
    ]
    predict = published_times(H200)
    times = [predict(group) for group in load_ground_truth(write_truth(tmp_path, rows))]
    table = paper.tabulate(problem, H200, stages=5)
    row = find_row(table, dataclasses.replace(known, family=paper.NAME))
    assert times[0][0] == row.time / TICKS_PER_US
    assert np.isnan(np.concatenate([times[0][1:], *times[1:]])).all()
