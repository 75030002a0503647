"""Kernels in an SM that something else takes up: which fit, with how many blocks."""

from __future__ import annotations

import pytest

from solver.device import load_profile
from solver.families import norm_activation_block as block
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_columns import legal_rows
from solver.families.norm_activation_crowding import (
    reserved_smem_bytes,
    rows_on_sm,
    working_warps,
)
from solver.occupancy import BLOCK_SMEM_BYTES, SMEM_UNIT, l1_bytes, sm_limits, whole

H200 = load_profile("h200")
PROBLEM = NormProblem(65536, 1024)
COPIER = NormConfig("specialised", 8, 1, depth=2, chunk_bytes=16384, rounds=0)


def test_the_warp_of_which_one_thread_copies_is_not_counted() -> None:
    assert working_warps(COPIER) == 8
    assert working_warps(NormConfig("specialised", 8, 4, copies="async")) == 12
    assert working_warps(NormConfig("strong", 8)) == 8


@pytest.mark.parametrize("warps", [8, 16, 24])
def test_so_many_warps_fit_with_what_is_reserved_and_no_more(warps: int) -> None:
    reserved = reserved_smem_bytes(PROBLEM, COPIER, warps, H200)
    assert reserved is not None
    taken = block.smem_bytes(PROBLEM, COPIER) + reserved + BLOCK_SMEM_BYTES
    blocks = H200.limit("smem_per_sm_bytes") // whole(taken, SMEM_UNIT)
    assert blocks == warps // 8
    assert reserved_smem_bytes(PROBLEM, COPIER, None, H200) == 0


def test_larger_blocks_and_larger_rings_do_not_fit() -> None:
    assert reserved_smem_bytes(PROBLEM, COPIER, 4, H200) is None
    deep = NormConfig("specialised", 4, 1, depth=6, chunk_bytes=32768, rounds=0)
    assert reserved_smem_bytes(PROBLEM, deep, 4, H200) is not None
    assert reserved_smem_bytes(PROBLEM, deep, 8, H200) is None


def test_rows_on_sm_are_the_legal_ones_that_fit() -> None:
    every, four = legal_rows(PROBLEM, H200), rows_on_sm(PROBLEM, H200, 4)
    assert 0 < len(four.resident) < len(every.resident)
    assert set(four.resident.tolist()) == {1}
    assert four.config["consumers"].max() == 4
    eight = rows_on_sm(PROBLEM, H200, 8)
    assert set(eight.resident.tolist()) == {1, 2}
    assert (eight.reserved_smem_bytes > 0).all()


def test_the_l1_is_what_shared_memory_leaves_in_steps() -> None:
    sm = sm_limits(H200)
    kib = [int(n) // 1024 for n in l1_bytes([0, 1, 100 * 1024, 100 * 1024 + 1, 228 * 1024], sm)]
    assert kib == [256, 248, 156, 124, 28]
    assert int(l1_bytes(90 * 1024, sm_limits(load_profile("rtx4090")))) == 28 * 1024
