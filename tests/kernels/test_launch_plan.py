"""The launch a configuration asks for: pure arithmetic, no GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.launch_plan import ARGUMENTS, SWIZZLE_BYTES, plan_launch
from solver.config import Config
from solver.errors import IllegalConfig, InvalidProblem
from solver.families import sm90_gemm as family
from solver.problem import Problem

SMS = 132
CONFIG = Config(family.NAME, 128, 256, 64, 4, mma_in_flight=1, math_warpgroups=2, register_split=1)


def test_the_argument_block_has_the_layout_the_kernel_declares() -> None:
    offsets = {name: ARGUMENTS.fields[name][1] for name in ARGUMENTS.names}
    assert offsets == {
        "c": 0,
        "workspace": 8,
        "counters": 16,
        "ldc": 24,
        "m": 32,
        "n": 36,
        "k": 40,
        "stages": 44,
        "dma_warps": 48,
        "split_k": 52,
        "raster_group": 56,
        "stage_tx_bytes": 60,
        "c_by_tma": 64,
        "reserved": 68,
        "padding": 72,
    }
    assert ARGUMENTS.itemsize == 80


def test_the_arguments_are_the_plans_own_figures() -> None:
    plan = plan_launch(Problem(100, 200, 4096), replace(CONFIG, split_k=3), SMS, ldc=208)
    block = plan.arguments(c=2**47 + 16, workspace=2**46, counters=64)[0]
    assert {name: int(block[name]) for name in ARGUMENTS.names} == {
        "c": 2**47 + 16,
        "workspace": 2**46,
        "counters": 64,
        "ldc": 208,
        "m": 100,
        "n": 200,
        "k": 4096,
        "stages": 4,
        "dma_warps": 1,
        "split_k": 3,
        "raster_group": 1,
        "stage_tx_bytes": (104 + 200) * 64 * 2,
        "c_by_tma": 1,
        "reserved": 0,
        "padding": 0,
    }


def test_a_large_problem_fills_the_device_and_no_more() -> None:
    plan = plan_launch(Problem(4096, 4096, 4096), CONFIG, SMS)
    assert (plan.tiles_m, plan.tiles_n, plan.units, plan.grid) == (32, 16, 512, 132)
    assert plan.threads == 384
    assert (plan.workspace_bytes, plan.counter_bytes) == (0, 0)
    assert (plan.a.box_rows, plan.b.box_rows) == (128, 256)
    assert plan.stage_tx_bytes == family.stage_bytes(CONFIG.to_dict(), 2)


def test_fewer_units_than_sms_launch_one_cta_each() -> None:
    assert plan_launch(Problem(256, 512, 64), CONFIG, SMS).grid == 4


def test_an_sm_limit_bounds_the_grid() -> None:
    assert plan_launch(Problem(4096, 4096, 4096), CONFIG, 78).grid == 78


def test_a_box_is_cut_to_the_problem_rounded_up_to_eight() -> None:
    plan = plan_launch(Problem(1, 20, 64), replace(CONFIG, tile_n=24), SMS)
    assert (plan.a.box_rows, plan.b.box_rows) == (8, 24)
    assert plan.stage_tx_bytes == (8 + 24) * 64 * 2


def test_a_slot_of_128_k_counts_both_boxes_of_an_operand() -> None:
    plan = plan_launch(Problem(512, 512, 512), replace(CONFIG, tile_k=128, stages=2), SMS)
    assert plan.a.box_columns == 64
    assert plan.stage_tx_bytes == (128 + 256) * 128 * 2


def test_split_k_gets_a_partial_tile_per_unit_and_a_counter_per_tile() -> None:
    plan = plan_launch(Problem(128, 512, 4096), replace(CONFIG, split_k=4), SMS)
    assert plan.units == 8
    assert plan.workspace_bytes == 8 * 128 * 256 * 4
    assert plan.counter_bytes == 2 * 4


@pytest.mark.parametrize(
    ("n", "ldc", "by_tma"), [(64, 64, True), (64, 72, True), (64, 65, False), (63, 64, False)]
)
def test_the_output_leaves_by_tma_only_where_its_rows_allow(n: int, ldc: int, by_tma: bool) -> None:
    assert plan_launch(Problem(64, n, 64), CONFIG, SMS, ldc).c_by_tma is by_tma


@pytest.mark.parametrize(("tile_n", "chunk"), [(256, 64), (96, 32), (48, 16), (24, 8)])
def test_the_store_box_is_a_chunk_swizzled_over_its_own_width(tile_n: int, chunk: int) -> None:
    box = plan_launch(Problem(4096, 4096, 64), replace(CONFIG, tile_n=tile_n), SMS).c
    assert box is not None
    assert (box.box_rows, box.box_columns, box.swizzle_bytes) == (64, chunk, 2 * chunk)


@pytest.mark.parametrize(
    ("change", "field"),
    [({"k": 12}, "k"), ({"ldc": 63}, "ldc"), ({"sms": 0}, "sms"), ({"family": "other"}, "family")],
)
def test_what_cannot_be_launched_names_its_field(change: dict[str, Any], field: str) -> None:
    problem = Problem(64, 64, change.get("k", 64))
    config = replace(CONFIG, family=change.get("family", family.NAME))
    with pytest.raises((InvalidProblem, IllegalConfig)) as raised:
        plan_launch(problem, config, change.get("sms", SMS), change.get("ldc"))
    assert raised.value.field == field


def test_more_units_than_the_kernel_counts_are_refused() -> None:
    config = replace(CONFIG, tile_m=64, tile_n=8, math_warpgroups=1, register_split=0)
    with pytest.raises(InvalidProblem, match="units of work"):
        plan_launch(Problem(2**28, 2**29, 8), config, SMS)


@given(
    m=st.integers(1, 5000),
    n=st.integers(1, 5000),
    k=st.integers(1, 600).map(lambda x: 8 * x),
    shape=st.sampled_from(family.TILE_SHAPES),
    tile_n=st.sampled_from(family.TILE_N),
    tile_k=st.sampled_from(family.TILE_K),
    split_k=st.sampled_from(family.SPLIT_K),
)
def test_every_plan_keeps_the_rules_of_tma(
    m: int, n: int, k: int, shape: tuple[int, int], tile_n: int, tile_k: int, split_k: int
) -> None:
    config = Config(
        family.NAME, shape[0], tile_n, tile_k, 4, math_warpgroups=shape[1], split_k=split_k
    )
    plan = plan_launch(Problem(m, n, k), config, SMS)
    assert 1 <= plan.grid <= min(SMS, plan.units)
    for box in (plan.a, plan.b, *([plan.c] if plan.c else [])):
        assert box.row_bytes % 16 == 0
        assert 1 <= box.box_rows <= 256
        assert box.box_columns * 2 <= box.swizzle_bytes
        assert box.swizzle_bytes in SWIZZLE_BYTES
    for box, rows, tile in ((plan.a, m, config.tile_m), (plan.b, n, tile_n)):
        assert box.box_rows % 8 == 0
        assert min(rows, tile) <= box.box_rows <= tile
    assert plan.stage_tx_bytes <= family.stage_bytes(config.to_dict(), 2)
