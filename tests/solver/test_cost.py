"""Each cost term does what its equation says, alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.device import load_profile
from solver.families import sm90_gemm as family
from solver.families.sm90_gemm_cost import work_cost
from solver.problem import Problem
from solver.space import tabulate
from solver.table import Works
from solver.units import TICKS_PER_US

H200 = load_profile("h200")
K = {name: constant.value for name, constant in H200.model("sm90_gemm").items()}
TICKS_PER_CYCLE_AT_1GHZ = 10  # a tick is 100 ps


def cost(problem: Problem, cold: bool = True, **change: int) -> Works:
    row: dict[str, Any] = {
        "tile_m": 128,
        "tile_n": 128,
        "tile_k": 64,
        "mma_in_flight": 0,
        "math_warpgroups": 2,
        "cluster_m": 1,
        "cluster_n": 1,
        "split_k": 1,
        "raster_group": 1,
    } | change
    return work_cost(
        problem, H200, {name: np.array([value]) for name, value in row.items()}, cold=cold
    )


def cycles(ticks: Any, works: Works) -> float:
    """Ticks as SM cycles at the clock the works were priced at."""
    return float(ticks[0]) / TICKS_PER_CYCLE_AT_1GHZ * float(works.clock_mhz[0]) / 1e3


def test_math_is_the_tensor_cores_rate_shared_by_the_warpgroups() -> None:
    works = cost(Problem(4096, 4096, 4096))
    ideal = 128 * 128 * 64 / K["mma_macs_per_cycle"] * K["mma_overhead"]
    alone = ideal / 2 + K["mma_issue_cycles"] + K["mma_drain_cycles"]
    assert cycles(works.math, works) == pytest.approx(max(ideal, alone), rel=2e-3)


def test_a_group_in_flight_hides_the_drain_and_gives_its_slot_back_within_an_iteration() -> None:
    drained = cost(Problem(4096, 4096, 4096), math_warpgroups=1)
    flying = cost(Problem(4096, 4096, 4096), math_warpgroups=1, mma_in_flight=1)
    saved = cycles(drained.math, drained) - cycles(flying.math, flying)
    assert saved == pytest.approx(K["mma_drain_cycles"], rel=0.03)
    assert drained.early[0] == 0
    one = 128 * 128 * 64 / K["mma_macs_per_cycle"] * K["mma_overhead"]
    assert cycles(flying.math, flying) == pytest.approx(one + K["mma_issue_cycles"], rel=2e-3)
    early = (1 - K["release_lag_fraction"]) * one
    assert cycles(flying.early, flying) == pytest.approx(early, rel=0.01)


def test_an_iteration_takes_the_loads_some_time_however_little_it_loads() -> None:
    works = cost(Problem(1, 1056, 65536), cold=False, tile_m=64, tile_n=8, math_warpgroups=1)
    assert 0.99 < cycles(works.load, works) / K["load_floor_cycles"] < 1.1


def test_an_odd_pitch_costs_loads_and_nothing_else() -> None:
    even, odd = cost(Problem(512, 512, 1024)), cost(Problem(512, 512, 1032))
    assert odd.load[0] > 1.2 * even.load[0]
    assert cycles(odd.store, odd) == pytest.approx(cycles(even.store, even), rel=0.01)
    one, other = (cost(Problem(512, 512, 1024, **{ld: 1032})) for ld in ("lda", "ldb"))
    assert even.load[0] < one.load[0] < odd.load[0]
    assert one.load[0] == pytest.approx(other.load[0], abs=1)
    gap = cost(Problem(512, 512, 1024, lda=1088, ldb=1088, ldc=520))
    assert gap.load[0] == even.load[0]


def test_rows_of_c_that_tma_cannot_store_cost_the_store_and_nothing_else() -> None:
    whole = cost(Problem(512, 512, 1024))
    for ragged in (
        cost(Problem(512, 511, 1024)),
        cost(Problem(512, 512, 1024, ldc=513)),
        cost(Problem(512, 512, 1024, c_offset=1)),
    ):
        extra = cycles(ragged.store, ragged) - cycles(whole.store, whole)
        assert extra == pytest.approx(K["epilogue_unaligned_cycles"] * 128 / 64, rel=0.01)
        assert ragged.load[0] == pytest.approx(whole.load[0], rel=0.01)


def test_a_wide_output_is_stored_in_twice_the_pieces() -> None:
    narrow, wide = (cost(Problem(512, 512, 1024, out_dtype=each)) for each in ("fp16", "fp32"))
    pieces = 2  # chunks of 64 columns of one row block
    extra = pieces * K["epilogue_chunk_cycles"]
    found = cycles(wide.store, wide) - cycles(narrow.store, narrow)
    assert found == pytest.approx(extra, rel=0.02)


def test_a_copy_precedes_the_kernel_and_leaves_no_odd_pitch() -> None:
    taken, copied = cost(Problem(512, 512, 1024)), cost(Problem(512, 512, 1024, lda=1025))
    moved = 2 * 2 * 512 * 1024
    copy_us = K["copy_launch_us"] + moved / K["copy_bytes_per_us"]
    assert copied.fixed[0] - taken.fixed[0] == pytest.approx(copy_us * TICKS_PER_US, abs=1)
    assert copied.load[0] <= taken.load[0]
    both = cost(Problem(512, 512, 1024, a_offset=1, b_offset=1))
    copy_us = K["copy_launch_us"] + 2 * moved / K["copy_bytes_per_us"]
    assert both.fixed[0] - taken.fixed[0] == pytest.approx(copy_us * TICKS_PER_US, abs=1)


def test_a_cluster_asks_the_l2_once_and_pays_for_its_steps() -> None:
    problem = Problem(8192, 8192, 1024)
    alone = cost(problem)
    for change in ({"cluster_m": 2}, {"cluster_n": 2}):
        together = cost(problem, **change)
        assert together.active[0] == alone.active[0] == H200.limit("sms")
        launch = K["launch_cluster_us"] * TICKS_PER_US
        assert together.fixed[0] - alone.fixed[0] == pytest.approx(launch, abs=1)
    odd = cost(Problem(384, 128, 1024), cluster_m=1)
    assert odd.active[0] == 3


def test_b_that_is_not_contiguous_in_k_costs_more_in_narrow_tiles() -> None:
    def slower(tile_n: int) -> float:
        along, across = (
            cost(Problem(512, 512, 1024, layout=layout), tile_n=tile_n) for layout in ("tn", "tt")
        )
        return float(across.load[0] / along.load[0])

    assert slower(128) == 1
    if K["load_narrow_penalty"]:
        assert slower(32) > 1


def test_warm_inputs_cost_no_memory_and_less_latency() -> None:
    cold, warm = (
        cost(Problem(64, 8192, 8192), cold=c, tile_m=64, math_warpgroups=1) for c in (1, 0)
    )
    assert warm.load[0] < cold.load[0]
    assert cycles(cold.latency, cold) - cycles(warm.latency, warm) == pytest.approx(
        K["miss_latency_cycles"], rel=0.02
    )


def test_what_the_l2_keeps_is_not_missed_again() -> None:
    few, many = (
        cost(Problem(8192, n, 2048), raster_group=2) for n in (2048, 65536)
    )  # B: 8 MiB, and 256 MiB that each group of rows reads anew
    missed = [
        (cycles(works.latency, works) - K["load_latency_cycles"]) / K["miss_latency_cycles"]
        for works in (few, many)
    ]
    assert missed[0] < 0.7
    assert missed[1] > 0.9


def test_a_partial_wave_leaves_the_others_its_share_of_the_l2() -> None:
    tile = {"tile_m": 256, "tile_n": 32, "math_warpgroups": 2}
    full, partial = (
        cost(Problem(256 * rows, 32 * 12, 16384), cold=False, **tile) for rows in (22, 12)
    )
    assert (full.units[0], partial.units[0]) == (2, 2)
    assert full.load_path[0] == 1
    assert partial.load[0] < 0.8 * full.load[0]


def test_like_requests_are_answered_together() -> None:
    tile = {"tile_m": 256, "tile_n": 16, "math_warpgroups": 2}
    shared, apart = (
        cost(Problem(256 * 132, 16 * 132, 4096), cold=False, raster_group=group, **tile)
        for group in (1, 16)
    )
    assert shared.load_path[0] == apart.load_path[0] == 1
    assert shared.load[0] < 0.9 * apart.load[0]


def test_the_clock_falls_where_much_power_is_drawn_for_long() -> None:
    short, long = (cost(Problem(m, 4096, 4096)) for m in (1024, 65536))
    assert long.clock_mhz[0] < short.clock_mhz[0] <= K["clock_ghz"] * 1e3


def test_memory_bounds_the_loads_of_a_product_with_few_rows() -> None:
    problem = Problem(16, 16384, 8192)
    works = cost(problem, tile_m=64, math_warpgroups=1)
    loaded_us = float(works.load[0] * works.iterations[0] * works.units[0]) / 10_000
    unique_bytes = 2 * (problem.m + problem.n) * problem.k
    assert loaded_us >= unique_bytes / K["hbm_bytes_per_us"]


def test_fewer_sms_draw_less_of_the_memorys_rate_but_more_than_their_part() -> None:
    half, all_sms = (
        cost(Problem(16, n, 16384), tile_m=64, tile_n=64, math_warpgroups=1)
        for n in (64 * 66, 64 * 132)
    )
    assert (half.active[0], all_sms.active[0]) == (66, 132)
    ratio = float(half.load[0] / all_sms.load[0])
    assert ratio == pytest.approx(0.5 ** (1 - K["hbm_sms_exponent"]), rel=0.1)
    assert ratio > 0.55


def test_a_launch_takes_longer_from_where_both_sms_of_a_tpc_have_work() -> None:
    few, half, more, most = (
        cost(Problem(64, 64 * tiles, 128), tile_m=64, tile_n=64, math_warpgroups=1).fixed[0]
        for tiles in (1, 66, 99, 132)
    )
    assert few == half
    assert more - half == pytest.approx(K["launch_pair_us"] / 2 * TICKS_PER_US, abs=1)
    assert most - half == pytest.approx(K["launch_pair_us"] * TICKS_PER_US, abs=1)


def test_a_launch_whose_ctas_could_share_an_sm_waits_for_the_one_before() -> None:
    table = tabulate(Problem(512, 512, 4096), H200, "calibrated")
    k = table.kernels
    serial_us = np.where(family.holds_sm(k.smem_bytes), 0, K["launch_serial_us"])
    setup_us = K["launch_warpgroup_us"] * k.threads / 128 + serial_us
    assert np.abs(k.setup - setup_us * TICKS_PER_US).max() <= 0.5
    assert 0 < np.count_nonzero(serial_us) < len(serial_us)


@pytest.mark.parametrize("name", ["h100_sxm", "h20", "h200", "h200_datasheet"])
def test_the_familys_shared_memory_of_an_sm_is_every_hopper_profiles(name: str) -> None:
    assert load_profile(name).limit("smem_per_sm_bytes") == family.SM_SMEM_BYTES


def test_splitting_k_shortens_the_loop_and_pays_for_the_reduction() -> None:
    whole, split = (cost(Problem(128, 1024, 16384), split_k=s) for s in (1, 4))
    assert split.iterations[0] * 4 == whole.iterations[0]
    assert split.store[0] > 2 * whole.store[0]
    assert split.epilogue[0] == pytest.approx(K["split_inner_factor"] * split.store[0], rel=1e-3)


def test_sums_of_many_splits_and_of_wide_tiles_take_longer() -> None:
    two, four, eight = (
        cycles(works.store, works)
        for works in (cost(Problem(128, 1024, 16384), split_k=s) for s in (2, 4, 8))
    )
    assert eight - four == pytest.approx(2 * (four - two), rel=0.02)
    rows = {"tile_m": 256, "math_warpgroups": 2, "split_k": 4}
    narrow, wide = (cost(Problem(256, 1024, 16384), tile_n=n, **rows).store[0] for n in (96, 192))
    assert wide > 2.2 * narrow


def test_more_work_on_the_tensor_cores_lowers_the_clock() -> None:
    busy, idle = cost(Problem(8192, 8192, 8192)), cost(Problem(128, 128, 8192))
    assert busy.clock_mhz[0] < idle.clock_mhz[0] <= K["clock_ghz"] * 1e3


def test_units_are_tiles_times_splits_over_the_devices_sms() -> None:
    works = cost(Problem(4096, 4096, 4096))
    assert works.units[0] == -(-32 * 32 // H200.limit("sms"))
