"""Which kernels the Hopper family has, said by its legality alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from solver.config import Config
from solver.device import load_profile
from solver.errors import IllegalConfig
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.families.sm90_gemm import CompileKey
from solver.families.sm90_gemm_registers import register_table
from solver.problem import ELEMENT_BYTES, LAYOUTS, Problem

H200 = load_profile("h200")
TALL = (16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)
ODD = (8, 24, 40, 56, 72, 88, 104, 120)  # K-major B alone


@pytest.mark.parametrize(("dtype", "layout"), [*product(ELEMENT_BYTES, LAYOUTS)])
def test_the_candidate_keys_are_these_in_this_order(dtype: str, layout: str) -> None:
    tiles_n = sorted((*TALL, *ODD)) if layout.endswith("n") else TALL
    widest = {
        (64, 1): 256,
        (128, 1): 208,
        (192, 1): 128,  # 144 / 2 · 3 = 216
        (128, 2): 256,
        (256, 2): 208,
        (192, 3): 256,
    }
    assert legality.candidate_keys(dtype, layout) == tuple(
        CompileKey(dtype, layout, tile_m, tile_n, tile_k, warpgroups, split, flight)
        for (tile_m, warpgroups), most in widest.items()
        for tile_n in tiles_n
        if tile_n <= most
        for tile_k in (64, 128)
        for split in ((0,) if warpgroups == 1 else (0, 1))
        for flight in (0, 1)
    )


def test_the_compiler_leaves_4736_of_the_candidates() -> None:
    table = register_table()
    keys = [
        key
        for dtype, layout in product(ELEMENT_BYTES, LAYOUTS)
        for key in legality.candidate_keys(dtype, layout)
    ]
    assert len(keys) == len(set(keys)) == 5216
    assert sum(table.of(key) > 0 for key in keys) == 4736


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"tile_m": 256, "tile_n": 224, "math_warpgroups": 2}, "tile_n"),
        ({"register_split": 1}, "register_split"),
        ({"tile_n": 24}, "tile_n"),
        ({"cluster_m": 2}, "cluster_m"),
        ({"cluster_n": 2}, "cluster_n"),
    ],
)
def test_what_no_kernel_is_or_walks_is_illegal_by_name(change: dict[str, int], field: str) -> None:
    config = replace(Config(family.NAME, 64, 64, 64, 2), **change)
    with pytest.raises(IllegalConfig) as raised:
        legality.check(config, Problem(320, 448, 512, layout="tt"), H200)
    assert raised.value.field == field


def test_a_cluster_wider_than_the_device_is_said_to_be_that() -> None:
    columns = Config(family.NAME, 64, 64, 64, 2, cluster_m=2).to_dict()
    limits = legality.grid_limits(columns, Problem(128, 64, 64), 1)
    with pytest.raises(IllegalConfig, match="cluster's CTAs must be at most the 1 SMs; got 2"):
        legality.refuse_broken(limits, columns)
