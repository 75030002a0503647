"""Each term of norm_activation's cost does what its equation says, alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from solver.device import DeviceProfile, load_profile
from solver.errors import InvalidProblem, Unsupported
from solver.families import norm_activation as family
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_columns import norm_rows
from solver.families.norm_activation_cost import CONSTANTS, LOTS, constants, priced, tabulate
from solver.families.norm_activation_geometry import geometry
from solver.pick import price
from solver.table import Table
from solver.units import TICKS_PER_US
from tests.norm_profiles import INVENTED, invented

DEVICE = invented()
SMS = DEVICE.limit("sms")
POLY = NormProblem(132 * 512, 4096, "fp32", "layer", "poly", 64)
STRONG = NormConfig("strong", 8, team=4)
ROLES = NormConfig(
    "specialised",
    12,
    4,
    team=12,
    copies="vector",
    barrier="named",
    depth=2,
    chunk_bytes=16384,
    rounds=0,
)
BULK = dataclasses.replace(ROLES, producers=1, copies="bulk", barrier="mbarrier")
RING = NormConfig("ring", 8, team=8, depth=4, chunk_bytes=16384, rounds=0)


def cost(
    problem: NormProblem,
    config: NormConfig,
    device: DeviceProfile = DEVICE,
    resident: int = 1,
    cold: bool = True,
) -> Table:
    return priced(problem, device, norm_rows(problem, [config], device, [resident]), cold)


def time_us(
    problem: NormProblem,
    config: NormConfig,
    device: DeviceProfile = DEVICE,
    resident: int = 1,
    cold: bool = True,
) -> float:
    table = cost(problem, config, device, resident, cold)
    return float(price(table, [0], [0])[0][0]) / TICKS_PER_US


def total_us(table: Table, part: str) -> float:
    """A work's load or math of all iterations."""
    w = table.works
    return float(getattr(w, part)[0] * w.iterations[0]) / TICKS_PER_US


def steady(**changed: float) -> DeviceProfile:
    """A device whose clock never falls, and on which loads and math don't meet."""
    alone = {"clock_power_exponent": 1e-9, "overlap_norm": 400.0, "ring_overlap_norm": 400.0}
    return invented(**alone | changed)


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
    device = steady(issue_norm=400.0)
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
    """By issue alone: warps that could fill their schedulers, in groups of one."""
    device = steady(issue_norm=400.0, warp_issue_per_cycle=50.0, row_cycles=1e-9)
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
    quick = invented(warp_issue_per_cycle=50.0, row_cycles=1e-9, mbarrier_cycles=1e-9)
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
        (
            "slot_read_share",
            dataclasses.replace(RING, consumers=1, team=1, depth=2, chunk_bytes=4096),
            NormProblem(132 * 512, 1024, "fp32", "layer", "poly"),
        ),
        ("l2_latency_us", NormConfig("plain", 8, hold="reload"), POLY),
        ("clock_memory_power", STRONG, POLY),
    ],
)
def test_more_of_a_cost_never_takes_less_and_takes_more_where_it_counts(
    constant: str, config: NormConfig, problem: NormProblem
) -> None:
    before, after = (
        time_us(problem, config, invented(**{constant: INVENTED[constant] * x})) for x in (1, 4)
    )
    assert after > before


@pytest.mark.parametrize(
    "constant", ["hbm_bytes_per_us", "warp_issue_per_cycle", "clock_power_limit", "clock_ghz"]
)
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


@pytest.mark.parametrize(
    ("config", "norm"), [(STRONG, "overlap_norm"), (RING, "ring_overlap_norm")]
)
def test_loads_and_math_that_meet_take_longer_than_the_longer(
    config: NormConfig, norm: str
) -> None:
    problem = dataclasses.replace(POLY, degree=48)
    apart = cost(problem, config, steady(), resident=4)
    load_us, math_us = total_us(apart, "load"), total_us(apart, "math")
    assert 0.5 < load_us / math_us < 2
    met = cost(problem, config, steady(**{norm: 2.0}), resident=4)
    longer = max(total_us(met, "load"), total_us(met, "math"))
    assert longer == pytest.approx(np.hypot(load_us, math_us), rel=2e-3)
    assert min(total_us(met, "load"), total_us(met, "math")) == pytest.approx(
        min(load_us, math_us), rel=2e-3
    )


def test_the_clock_falls_under_power() -> None:
    light, heavy = (
        cost(dataclasses.replace(POLY, degree=d), STRONG, resident=8).works.clock_mhz[0]
        for d in (0, 64)
    )
    assert heavy < light <= INVENTED["clock_ghz"] * 1e3


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
