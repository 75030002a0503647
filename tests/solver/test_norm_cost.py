"""Each term of norm_activation's cost does what its equation says, alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from solver.device import load_profile
from solver.errors import InvalidProblem, Unsupported
from solver.families import norm_activation as family
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_columns import norm_rows
from solver.families.norm_activation_cost import CONSTANTS, LOTS, constants, tabulate
from solver.families.norm_activation_geometry import geometry
from solver.pick import price
from solver.units import TICKS_PER_US
from tests.norm_profiles import INVENTED, invented
from tests.solver.norm_costs import (
    BULK,
    DEVICE,
    POLY,
    RING,
    ROLES,
    SMS,
    STRONG,
    WAITS,
    cost,
    steady,
    time_us,
    total_us,
)


def test_without_constants_a_device_is_refused_with_what_measures_them() -> None:
    with pytest.raises(Unsupported, match=r"bench\.norm_fit --write") as caught:
        tabulate(POLY, load_profile("a100"))
    assert caught.value.field == "device"
    assert "kernels.norm.bench" in caught.value.message
    with pytest.raises(Unsupported, match="runs no norm_activation kernel"):
        constants(load_profile("mi300x"))


def test_no_rows_are_refused() -> None:
    with pytest.raises(InvalidProblem, match="rows"):
        tabulate(NormProblem(0, 1024), DEVICE)


def test_constants_have_units_and_the_invented_ones_are_all() -> None:
    assert set(CONSTANTS) == set(INVENTED) == set(constants(DEVICE))


def test_memory_bounds_a_polynomial_of_degree_0_and_arithmetic_one_of_512() -> None:
    bytes_moved = 2 * POLY.rows * POLY.row_bytes
    light = dataclasses.replace(POLY, degree=0)
    floor_us = bytes_moved / INVENTED["hbm_bytes_per_us"]
    assert floor_us < time_us(light, STRONG, resident=6) < 1.1 * floor_us
    heavy = dataclasses.replace(POLY, degree=512)
    elements = POLY.rows * POLY.width
    issue_us = elements * 512 / (128 * SMS * INVENTED["clock_ghz"] * 1e3)
    assert 1.0 < time_us(heavy, STRONG, resident=6) / issue_us < 1.4


def test_a_degree_costs_its_instructions_of_the_schedulers() -> None:
    """Whole, where a warp waits for nothing: what it issues itself, and what the others do."""
    device = steady(turn_cycles=1e-9, l1_passing_weight=1e-9)
    low, high = (
        cost(dataclasses.replace(POLY, degree=d), STRONG, device, resident=8) for d in (256, 512)
    )
    elements = POLY.rows / SMS * POLY.width
    added = 256 * INVENTED["degree_instructions"] * elements / 128
    found = total_us(high, "math") - total_us(low, "math")
    assert found == pytest.approx(added / (INVENTED["clock_ghz"] * 1e3), rel=2e-3)


@pytest.mark.parametrize(
    ("consumers", "slower"), [(12, 1.0), (13, 16 / 13), (14, 16 / 14), (16, 1.0)]
)
def test_warps_are_dealt_to_four_schedulers_and_the_fullest_decides(
    consumers: int, slower: float
) -> None:
    """By issue alone: warps that wait for nothing, in groups of one."""
    nothing = dict.fromkeys(WAITS, 1e-9)
    device = steady(**nothing)
    rows = 132 * 12 * 13 * 14 * 4
    problem = NormProblem(rows, 1024, "fp32", "layer", "poly", 512)
    config = dataclasses.replace(
        BULK, consumers=consumers, groups=consumers, team=1, chunk_bytes=4096
    )
    g = geometry(problem, norm_rows(problem, [config], device, [1]), SMS)
    per_row = total_us(cost(problem, config, device), "math") / float(g.rows[0])
    even = dataclasses.replace(config, consumers=16, groups=16)
    even_rows = geometry(problem, norm_rows(problem, [even], device, [1]), SMS).rows[0]
    even_row = total_us(cost(problem, even, device), "math") / float(even_rows)
    assert per_row / even_row == pytest.approx(slower, rel=5e-3)


def test_one_block_of_a_double_buffered_ring_is_the_two_buffer_recurrence() -> None:
    """T_load and T_comp a chunk, and no more: max of both in the steady state."""
    table = cost(POLY, ROLES, steady(load_jitter_us=1e-9))
    w = table.works
    assert int(table.kernels.slots[0]) == 2
    chunks = -(-POLY.rows // SMS)
    assert int(w.iterations[0]) == chunks
    lot = max(int(w.load[0]), int(w.math[0])) / TICKS_PER_US
    assert time_us(POLY, ROLES, steady(load_jitter_us=1e-9)) == pytest.approx(
        lot * chunks, rel=0.02
    )
    # A producer that loads for itself bears the latency in every chunk.
    assert int(w.load[0]) / TICKS_PER_US > INVENTED["memory_latency_us"]
    assert int(cost(POLY, BULK).works.load[0]) < int(w.load[0])


def test_few_slots_bound_the_bandwidth_by_what_is_in_flight() -> None:
    light = dataclasses.replace(POLY, degree=0)
    narrow = dataclasses.replace(light, width=1024)
    one = dataclasses.replace(RING, consumers=1, team=1, chunk_bytes=4096)
    quick = invented(**dict.fromkeys(WAITS, 1e-9))
    times = [time_us(narrow, dataclasses.replace(one, depth=d), quick) for d in (2, 3, 4, 6)]
    assert times == sorted(times, reverse=True)
    assert times[0] > 1.3 * times[-1]
    by_warps = [time_us(light, STRONG, resident=n) for n in (1, 2, 4, 8)]
    assert by_warps == sorted(by_warps, reverse=True)
    assert by_warps[0] > 1.25 * by_warps[-1]


def test_two_blocks_do_not_halve_what_both_share() -> None:
    one, two = time_us(POLY, BULK, resident=1), time_us(POLY, BULK, resident=2)
    assert 0.5 * one < 0.6 * one < two < one


def test_what_is_in_flight_is_moved_in_at_most_so_many_lots() -> None:
    table = cost(POLY, STRONG, resident=8)
    assert int(table.kernels.slots[0]) == LOTS
    whole = geometry(POLY, norm_rows(POLY, [STRONG], DEVICE, [8]), SMS)
    assert float(whole.workers[0]) == 16
    assert int(table.works.iterations[0]) == -(-int(whole.items[0]) * LOTS // 16)


@pytest.mark.parametrize(
    ("constant", "config", "problem"),
    [
        ("launch_us", STRONG, POLY),
        ("block_start_us", STRONG, POLY),
        ("last_store_us", STRONG, POLY),
        ("memory_latency_us", ROLES, POLY),
        ("static_imbalance", BULK, dataclasses.replace(POLY, degree=0)),
        ("named_cycles", ROLES, POLY),
        ("mbarrier_cycles", BULK, POLY),
        (
            "bulk_issue_cycles",
            dataclasses.replace(BULK, groups=12, team=1, chunk_bytes=2048),
            NormProblem(132 * 4096, 512, "fp32", "layer", "poly"),
        ),
        ("element_instructions_fp32", STRONG, POLY),
        ("element_instructions_half", STRONG, dataclasses.replace(POLY, dtype="fp16")),
        ("layer_instructions", STRONG, POLY),
        ("gelu_instructions", STRONG, NormProblem(67584, 4096, "bf16")),
        ("silu_instructions", STRONG, NormProblem(67584, 4096, "bf16", "rms", "silu")),
        ("gelu_tanh_instructions", STRONG, NormProblem(67584, 4096, "bf16", "rms", "gelu_tanh")),
        ("refill_cycles", RING, POLY),
        ("vector_instructions", RING, POLY),
        ("stream_instructions", dataclasses.replace(RING, hold="shared"), POLY),
        ("row_instructions", STRONG, POLY),
        ("row_cycles", BULK, POLY),
        ("team_cycles", BULK, POLY),
        ("l2_latency_us", NormConfig("plain", 8, hold="reload"), POLY),
        ("l1_latency_us", NormConfig("plain", 8, hold="reload"), POLY),
        ("batch_cycles", STRONG, POLY),
        ("batch_streamed_cycles", dataclasses.replace(RING, hold="shared"), POLY),
        ("degree_streamed_instructions", dataclasses.replace(RING, hold="shared"), POLY),
        ("turn_cycles", STRONG, POLY),
        ("l1_passing_weight", STRONG, POLY),
        ("team_bulk_cycles", dataclasses.replace(RING, hold="shared", stores="bulk"), POLY),
        ("turn_streamed_share", dataclasses.replace(RING, hold="shared"), POLY),
    ],
)
def test_more_of_a_cost_never_takes_less_and_takes_more_where_it_counts(
    constant: str, config: NormConfig, problem: NormProblem
) -> None:
    before, after = (
        time_us(problem, config, invented(**{constant: INVENTED[constant] * x})) for x in (1, 4)
    )
    assert after > before


@pytest.mark.parametrize("constant", ["hbm_bytes_per_us", "l2_bytes_per_us", "clock_ghz"])
def test_more_of_a_rate_takes_less(constant: str) -> None:
    problem = dataclasses.replace(POLY, degree=48)
    before, after = (
        time_us(problem, BULK, invented(**{constant: INVENTED[constant] * x})) for x in (0.5, 1)
    )
    assert after < before


def test_rows_in_the_l2_are_loaded_faster_where_they_fit() -> None:
    small = NormProblem(1024, 4096)
    assert time_us(small, STRONG, cold=False) < time_us(small, STRONG)
    light = dataclasses.replace(POLY, degree=0)
    assert time_us(light, STRONG, cold=False) == time_us(light, STRONG)


def test_a_last_wave_of_few_blocks_costs_arithmetic_a_whole_one() -> None:
    heavy = dataclasses.replace(POLY, degree=512, rows=SMS * 4)
    config = NormConfig("strong", 8, team=8)
    even = time_us(heavy, config)
    one_more = time_us(dataclasses.replace(heavy, rows=SMS * 4 + 1), config)
    assert one_more / even == pytest.approx(5 / 4, rel=0.08)


@pytest.mark.parametrize("config", [STRONG, RING])
def test_loads_and_math_that_meet_take_longer_than_the_longer(config: NormConfig) -> None:
    problem = dataclasses.replace(POLY, degree=48)
    apart = cost(problem, config, steady(), resident=4)
    load_us, math_us = total_us(apart, "load"), total_us(apart, "math")
    assert 0.5 < load_us / math_us < 2
    met = cost(problem, config, steady(overlap_norm=2.0), resident=4)
    longer = max(total_us(met, "load"), total_us(met, "math"))
    assert longer == pytest.approx(np.hypot(load_us, math_us), rel=2e-3)
    assert min(total_us(met, "load"), total_us(met, "math")) == pytest.approx(
        min(load_us, math_us), rel=2e-3
    )


@pytest.mark.parametrize(
    "problem",
    [
        NormProblem(1, 1),
        NormProblem(7, 65536, "bf16", "rms", "silu"),
        NormProblem(family.MAX_ROWS, 8, "fp16", "rms", "silu"),
        NormProblem(100_000, 1000, "bf16"),
        NormProblem(133, 12288, "fp32", "layer", "poly", 1024),
        POLY,
    ],
    ids=str,
)
def test_the_whole_space_is_priced_in_the_recurrences_range(problem: NormProblem) -> None:
    table = tabulate(problem, DEVICE)
    w, k = table.works, table.kernels
    assert table.size > 0
    assert (w.iterations >= 1).all()
    assert (k.slots >= 1).all()
    assert (k.slots <= LOTS).all()
    assert (w.early >= 0).all()
    assert (w.early <= w.math).all()
    assert (w.load >= 0).all()
    assert (w.latency >= 0).all()
    assert (w.clock_mhz > 0).all()
    every = np.arange(table.size)
    time, wait = price(table, every, every)
    assert (time > 0).all()
    assert (wait >= 0).all()
    assert (time >= wait).all()


def test_a_configuration_comes_back_from_its_columns_in_field_order() -> None:
    table = tabulate(POLY, DEVICE)
    configs = [table.config(i, i) for i in range(0, table.size, 7)]
    assert all(NormConfig.from_columns(config.to_columns()) == config for config in configs)
    by_code: list[Any] = sorted(configs, key=lambda config: config.code)
    assert by_code == sorted(configs)
    assert len({c.code for c in configs}) == len(configs)
