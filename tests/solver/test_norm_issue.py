"""What warps of norm_activation kernels issue, wait for and read again, term by term."""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import pytest

from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_columns import norm_rows
from solver.families.norm_activation_cost import constants
from solver.families.norm_activation_geometry import geometry
from solver.families.norm_activation_issue import issue
from tests.solver.norm_costs import (
    BULK,
    DEVICE,
    POLY,
    RING,
    SMS,
    STRONG,
    WAITS,
    cost,
    steady,
    time_us,
    total_us,
)


def added_by(constant: str, **given: float) -> list[float]:
    """Microseconds of math that a wait adds with 2, 4 and 8 warps on a scheduler."""
    heavy = dataclasses.replace(POLY, degree=512)
    none = dict.fromkeys(("memory_latency_us", "block_start_us", "l2_latency_us"), 1e-9)
    device, without = steady(**none, **given), steady(**none, **given, **{constant: 1e-9})
    return [
        total_us(cost(heavy, STRONG, device, resident=n), "math")
        - total_us(cost(heavy, STRONG, without, resident=n), "math")
        for n in (1, 2, 4)
    ]


def test_what_a_warp_waits_for_is_shared_out_among_the_warps_beside_it() -> None:
    """Not hidden by them: their own issue comes on top, as measured."""
    two, four, eight = added_by("batch_cycles")
    assert two == pytest.approx(2 * four, rel=0.02)
    assert four == pytest.approx(2 * eight, rel=0.02)


def test_a_turn_is_waited_for_where_all_warps_of_a_scheduler_wait_at_once() -> None:
    """Each further one leaves a fraction of it."""
    two, four, eight = added_by("turn_cycles", turn_shared_fraction=0.7)
    assert four / two == pytest.approx(0.7**2, rel=0.02)
    assert eight / four == pytest.approx(0.7**4, rel=0.02)


def test_vectors_that_are_stored_throw_coefficients_out_of_a_small_l1() -> None:
    heavy = dataclasses.replace(POLY, degree=512, width=1024)
    shared = dataclasses.replace(RING, hold="shared", chunk_bytes=4096, team=1, groups=8)
    waits = {}
    for stores, reserved in product(("vector", "bulk"), (0, 180_000)):
        config = dataclasses.replace(shared, stores=stores)
        rows = norm_rows(heavy, [config], DEVICE, [1], [reserved])
        found = issue(heavy, rows, geometry(heavy, rows, SMS), constants(DEVICE), DEVICE)
        waits[stores, reserved] = float(found.row[0])
    assert waits["vector", 180_000] > 1.2 * waits["vector", 0]
    assert waits["bulk", 180_000] < 1.05 * waits["bulk", 0]


def test_a_ring_that_ends_with_its_block_is_filled_anew() -> None:
    """With one block on an SM nobody works meanwhile."""
    heavy = dataclasses.replace(POLY, degree=512)
    ending = dataclasses.replace(BULK, rounds=8)
    slow, fast = (steady(block_start_us=each) for each in (2.0, 1e-9))
    blocks = 67584 // 8 // SMS
    more, less = (total_us(cost(heavy, ending, device), "math") for device in (slow, fast))
    assert more - less == pytest.approx(2.0 * blocks, rel=0.05)
    assert time_us(heavy, BULK, slow) == pytest.approx(time_us(heavy, BULK, fast), rel=1e-2)


def test_batches_that_a_warps_share_does_not_reach_are_not_issued() -> None:
    """A row of 9 warps' vectors in a team of 8: one of its warps has a second batch (bf16)."""
    rows = 132 * 64
    nine, sixteen = (NormProblem(rows, n * 256, "bf16", "layer", "poly", 512) for n in (9, 16))
    team = NormConfig("strong", 8, team=8)
    device = steady(**dict.fromkeys((*WAITS, "memory_latency_us"), 1e-9))
    less, more = (total_us(cost(p, team, device, resident=4), "math") for p in (nine, sixteen))
    share = (9 / 16 * 7 + 1) / 8  # what others issue, and the warp with two batches itself
    assert less / more == pytest.approx(share, rel=0.02)


def test_scale_and_shift_that_the_l1_has_no_room_for_come_from_the_l2() -> None:
    wide = NormProblem(132 * 64, 8192, "fp32", "layer", "poly", 0)
    config = NormConfig("strong", 8, team=8)
    rows = norm_rows(wide, [config], DEVICE, [1]), norm_rows(wide, [config], DEVICE, [1], [200_000])
    free, full = (issue(wide, r, geometry(wide, r, SMS), constants(DEVICE), DEVICE) for r in rows)
    assert free.missed[0] < 0.5 * full.missed[0]
    assert full.missed[0] == pytest.approx(np.exp(-0.3 * 28 / 64))
    assert full.row[0] > free.row[0]
    assert full.scheduler[0] == free.scheduler[0]


def test_bulk_stores_leave_the_l1_to_what_is_read_again() -> None:
    bulk = dataclasses.replace(RING, hold="shared", stores="bulk", depth=6)
    for config, kept in ((bulk, 0.7), (dataclasses.replace(bulk, stores="vector"), 0.3)):
        r = norm_rows(POLY, [config], DEVICE, [1], [120_000])
        found = issue(POLY, r, geometry(POLY, r, SMS), constants(DEVICE), DEVICE)
        assert found.missed[0] == pytest.approx(np.exp(-kept * 28 / 32))


def test_plain_rows_are_read_again_from_the_l1_where_they_fit() -> None:
    plain = NormConfig("plain", 8, hold="reload")
    narrow, wide = NormProblem(132 * 64, 256), NormProblem(132 * 64, 32768)
    middle = NormProblem(132 * 64, 2560)
    some = np.exp(-0.3 * 248 / (10 * 10))
    for problem, missed in ((narrow, 0.0), (middle, some), (wide, 0.9435)):
        r = norm_rows(problem, [plain], DEVICE, [1])
        found = issue(problem, r, geometry(problem, r, SMS), constants(DEVICE), DEVICE)
        assert found.rows_missed[0] == pytest.approx(missed, abs=1e-3)
