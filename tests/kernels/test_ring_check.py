"""The kernel that ships follows the barrier program that is proved; planted errors do not."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from kernels import ring_check
from kernels.barrier_program import BarrierProgram, barrier_program, kernel_ptx
from kernels.barrier_steps import LoadElements
from kernels.launch_plan import CachePolicy
from kernels.launch_units import work_of
from kernels.ptx_parser import PtxError
from kernels.ring_check import (
    ELSEWHERE,
    Mismatch,
    check_kernel,
    check_launch,
    cta_of,
    without_type,
)
from kernels.ring_launches import Launch, small_launches, units_of
from kernels.sources import headers
from kernels.table import candidate_keys
from solver.device import load_profile
from solver.families import sm90_gemm as family
from solver.problem import LAYOUTS
from solver.ring.explore import explore_cta
from solver.ring.state import Fault
from solver.ring.steps import Step, WaitForLaunchBefore
from solver.z3_ring import prove_ring

SAMPLE = random.Random(7).sample(
    [key for key in candidate_keys("bf16") if any(True for _ in small_launches(key))], 5
)
PLAIN = family.CompileKey("bf16", "tn", 64, 48, 64, 1, 0, 0)
IN_FLIGHT = family.CompileKey("bf16", "tt", 64, 16, 64, 1, 0, 1)


@pytest.mark.parametrize("key", SAMPLE, ids=lambda key: key.name)
def test_a_kernels_own_program_is_the_one_that_is_proved(key: family.CompileKey) -> None:
    rings = set()
    for launch, mismatch in check_kernel(key):
        assert mismatch is None, str(mismatch)
        rings.add(replace(cta_of(launch).ring, slots=4))  # what is proved is proved for any depth
    for ring in rings:
        prove_ring(ring)


# ---- the launches that are read


def features(launch: Launch) -> dict[str, object]:
    """What a launch can differ in; of the ring's depth: the least, one more, or more than that."""
    plan, config = launch.plan, launch.plan.config
    return {
        "cluster": (config.cluster_m, config.cluster_n),
        "splits": config.split_k > 1,
        "dma_warps": config.dma_warps,
        "depth": min(config.stages - config.mma_in_flight, 4),
        "by_tma": plan.c_by_tma,
        "adds": launch.beta != 0,
        "out": plan.problem.out,
        "told": plan.a.policy is not CachePolicy.NONE,
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_two_of_what_launches_differ_in_meet_in_one_of_them(layout: str) -> None:
    launches = [features(launch) for launch in small_launches(replace(PLAIN, layout=layout))]
    assert len(launches) == 9
    values = {name: {launch[name] for launch in launches} for name in launches[0]}
    assert values["cluster"] == set(family.CLUSTERS)
    assert [len(values[name]) for name in values] == [3, 2, 2, 3, 2, 2, 3, 2]
    for one, two in combinations(values, 2):
        met = {(launch[one], launch[two]) for launch in launches}
        assert met == set(product(values[one], values[two])), (one, two)
    stores = {(x["out"] == "fp32", x["by_tma"], x["adds"]) for x in launches}
    assert len(stores) == 7


@pytest.mark.parametrize("key", [PLAIN, IN_FLIGHT, *SAMPLE], ids=lambda key: key.name)
def test_rings_are_as_deep_as_fits_and_gone_round_by_one_unit(key: family.CompileKey) -> None:
    plans = [launch.plan for launch in small_launches(key)]
    most = max(plan.config.stages for plan in plans)
    room = load_profile("h200").limit("smem_per_block_bytes")
    assert all(plan.smem_bytes <= room for plan in plans)
    deeper = replace(plans[0].config, stages=most + 1)
    fits = int(family.smem_bytes(deeper.to_dict(), 2)) <= room
    assert most == max(family.STAGES) or not fits
    deepest = [launch for launch in small_launches(key) if launch.plan.config.stages == most]
    units = [unit.iterations for x in deepest for cta in x.ctas for unit in units_of(x, cta)]
    assert max(units) > most
    for launch in small_launches(key):
        for cta in launch.ctas:
            of_cta = [unit.iterations for unit in units_of(launch, cta)]
            assert len(of_cta) > 1
            assert sum(of_cta) > launch.plan.config.stages


def test_splits_of_two_and_five_are_not_all_as_long_and_a_cta_has_several() -> None:
    split = [x for x in small_launches(PLAIN) if x.plan.config.split_k > 1]
    assert {launch.plan.config.split_k for launch in split} == {2, 5}
    for launch in split:
        plan = launch.plan
        every = [unit for cta in range(plan.grid) for unit in work_of(plan, cta)]
        assert len({len(unit.iterations) for unit in every}) == 2
        for cta in launch.ctas:
            work = work_of(plan, cta)
            assert len({unit.split for unit in work}) > 1
            assert len({unit.tile for unit in work}) > 1
            assert {unit.last for unit in units_of(launch, cta)} == {True, False}


def test_rasters_end_in_a_cut_group_that_is_read() -> None:
    rasters = [x.plan for x in small_launches(PLAIN) if x.plan.config.raster_group > 1]
    assert {plan.config.stages for plan in rasters} > {3}
    for plan in rasters:
        rows = plan.tiles_m // plan.config.cluster_m
        assert rows % plan.config.raster_group
        last = work_of(plan, plan.grid - 1)[-1]
        assert last.row == (plan.tiles_m - 1) * plan.config.tile_m


def test_both_ends_of_a_grid_are_read_and_tiles_are_cut_in_both_axes() -> None:
    launches = list(small_launches(PLAIN))
    assert all(x.plan.grid > x.plan.cluster for x in launches)
    ends = {launch.cta == 0 for launch in launches}
    assert ends == {True, False}
    assert all(launch.ctas[-1] == launch.plan.grid - 1 for launch in launches if launch.cta)
    problems = [launch.plan.problem for launch in launches]
    assert any(problem.m < PLAIN.tile_m for problem in problems)
    assert any(problem.n < PLAIN.tile_n for problem in problems)
    assert any(problem.c.pitch > problem.n for problem in problems)


@pytest.mark.parametrize("key", [PLAIN, IN_FLIGHT, *SAMPLE], ids=lambda key: key.name)
def test_policies_exact_rows_and_cut_pieces_are_among_what_is_read(key: family.CompileKey) -> None:
    plans = [launch.plan for launch in small_launches(key)]
    policies = {(plan.a.policy, plan.b.policy) for plan in plans}
    first, last = CachePolicy.EVICT_FIRST, CachePolicy.EVICT_LAST
    assert policies == {(CachePolicy.NONE,) * 2, (first, last), (last, first)}
    for is_k_major, loads in (
        (plans[0].problem.a_is_k_major, [plan.a for plan in plans]),
        (plans[0].problem.b_is_k_major, [plan.b for plan in plans]),
    ):
        assert any(load.box.box_rows % 8 for load in loads) == is_k_major
    for plan in plans:
        if plan.c is not None and plan is not plans[0] and plan.c.box_columns > 8:
            assert plan.problem.n % plan.config.tile_n % plan.c.box_columns


def test_warpgroups_with_nothing_of_a_tile_to_store_are_among_what_is_read() -> None:
    three = small_launches(family.CompileKey("bf16", "tn", 192, 16, 64, 3, 0, 0))
    assert any(0 in unit.pieces for x in three for cta in x.ctas for unit in units_of(x, cta))


def test_every_order_of_the_launches_that_are_compared_is_safe() -> None:
    """At the least depth: that deeper rings are as safe is proved by induction."""
    for launch in small_launches(PLAIN):
        first, second = units_of(launch, launch.cta)[:2]
        units = [replace(first, iterations=3), replace(second, iterations=1)]
        cta = cta_of(launch)
        least = replace(cta, ring=replace(cta.ring, slots=2 + cta.ring.lag))
        assert not isinstance(explore_cta(least, units), Fault)


def test_kernels_that_differ_in_the_operands_type_are_alike() -> None:
    other = replace(PLAIN, dtype="fp16")
    one, two = (without_type(kernel_ptx(key), key) for key in (PLAIN, other))
    assert one == two
    assert without_type(kernel_ptx(PLAIN), other) != one
    assert without_type(kernel_ptx(IN_FLIGHT), IN_FLIGHT) != one


EMPTY_COUNT = "memory.empty(lane), Shape::kMathWarps * args.cluster_m * args.cluster_n);"
RELEASE = "if (lane == 0) ptx::barrier_arrive(empty);"
REMOTE_RELEASE = (
    "if (is_clustered(args) && lane == 1) ptx::barrier_arrive_remote(empty, blockIdx.x % 2 ^ 1);"
)
UNIT = "    const Unit unit = schedule.unit(index);\n    progress.unit(index);\n    u32 held = 0;"
STORE_BARRIER = """  __syncwarp();
  ptx::named_barrier(barrier, kWarpgroupThreads);
  if (thread == 0) {
    ptx::tma_store("""
FILL_BARRIER = """      __syncwarp();
      ptx::named_barrier(barrier, kWarpgroupThreads);
      stage<true>"""
ELEMENTS_BARRIER = """    } else {
      ptx::named_barrier(barrier, kWarpgroupThreads);
"""
COUNT = """  ptx::named_barrier(kReduceBarrier, Shape::kMathThreads);
  if (warpgroup == 0 && thread == 0) {"""
SECOND_REDUCE = """  __syncwarp();
  ptx::named_barrier(kReduceBarrier, Shape::kMathThreads);
  if (!ptx"""
WAIT = "  ptx::wait_for_launch_before();\n"
DMA_WAIT, MATH_WAIT = f"  RingCursor cursor;\n{WAIT}", f"  int buffer = 0;\n{WAIT}"
PLANTS = {
    "a wrong count": (EMPTY_COUNT, EMPTY_COUNT.replace("Warps *", "Warps + 1 + 0 *"), "deadlock"),
    "a whole-block barrier in one branch": (
        UNIT,
        f"    __syncthreads();\n{UNIT}",
        "deadlock",
    ),
    "a DMA phase off by one": (
        "ptx::barrier_wait(memory.empty(cursor.slot), cursor.phase ^ 1);",
        "ptx::barrier_wait(memory.empty(cursor.slot), cursor.phase);",
        "deadlock",
    ),
    "a MATH phase off by one": (
        "ptx::barrier_wait(memory.full(cursor.slot), cursor.phase);",
        "ptx::barrier_wait(memory.full(cursor.slot), cursor.phase ^ 1);",
        "read before written",
    ),
    "a missing arrive": (RELEASE, "", "deadlock"),
    "an arrive too early": (
        "      wgmma::wait<Shape::kMmaInFlight ? 1 : 0>();",
        "      release(args, memory.empty(cursor.slot));\n"
        "      wgmma::wait<0>();\n      cursor.advance(memory.stages);\n      continue;",
        "overwritten while read",
    ),
    "an arrive by the whole warp": (
        RELEASE,
        "ptx::barrier_arrive(empty);",
        "too many arrivals",
    ),
    "bytes that nobody delivers": (
        "ptx::barrier_arrive_expect(full, tx_bytes);",
        "ptx::barrier_arrive_expect(full, tx_bytes + 16);",
        "deadlock",
    ),
    "a cluster's CTA that leaves early": (
        "if (is_clustered(args)) ptx::cluster_barrier();",
        "",
        "left too early",
    ),
    "an empty barrier without the peer's MATH warps": (
        EMPTY_COUNT,
        "memory.empty(lane), Shape::kMathWarps);",
        "too many arrivals",
    ),
    "a slot that is not given back to the peer": (REMOTE_RELEASE, "", "deadlock"),
    "a slot that is given back to oneself instead of the peer": (
        REMOTE_RELEASE,
        REMOTE_RELEASE.replace("% 2 ^ 1", "% 2"),
        "overwritten",
    ),
    "a multicast's own bytes alone expected": (
        "(loads_a ? args.a_tx_bytes : 0)",
        "(loads_a ? args.a_tx_bytes / (kSharedA ? 2 : 1) : 0)",
        "read before written",
    ),
    "a cluster that starts CTA by CTA": (
        "    ptx::cluster_barrier();\n  } else {",
        "    __syncthreads();\n  } else {",
        "used before it is initialised",
    ),
    "barriers that are initialised without a fence": (
        "      ptx::fence_barrier_init();\n",
        "",
        "initialised without a fence",
    ),
    "a store without the warpgroup's barrier": (
        STORE_BARRIER,
        STORE_BARRIER.replace("  ptx::named_barrier(barrier, kWarpgroupThreads);\n", ""),
        "read before written",
    ),
    "a store of what TMA can't see yet": (
        "  ptx::fence_async_proxy();\n  if (thread == 0)",
        "  if (thread == 0)",
        "read before written",
    ),
    "a store that is not waited for": (
        "  if (thread == 0) ptx::tma_store_wait_read();\n  __syncwarp();",
        "  __syncwarp();",
        "overwritten while read",
    ),
    "elements stored without the warpgroup's barrier": (
        ELEMENTS_BARRIER,
        "    } else {\n",
        "read before written",
    ),
    "C added without the warpgroup's barrier": (
        FILL_BARRIER,
        "      __syncwarp();\n      stage<true>",
        "read before written",
    ),
    "a split counted before all of it is stored": (
        COUNT,
        "  if (warpgroup == 0 && thread == 0) {",
        "overwritten before read: the flag",
    ),
    "a flag read without a barrier": (
        SECOND_REDUCE,
        "  __syncwarp();\n  if (!ptx",
        "read before written",
    ),
    "a split that is counted but not published": (
        "    ptx::fence_gpu();\n    const u32 last",
        "    const u32 last",
        "read before written",
    ),
    "the last split that does not look": (
        "    ptx::fence_gpu();\n    ptx::store_shared(memory.flag()",
        "    ptx::store_shared(memory.flag()",
        "read before written",
    ),
    "a unit's first products added to the sums before": (
        "cursor.slot, warpgroup, !first);",
        "cursor.slot, warpgroup, 1);",
        "wrong sum: slot 0, by math0, is added to another unit's sums",
    ),
    "a split without the k-iterations that are left over": (
        "split * share + split * remainder / args.split_k",
        "split * share",
        "wrong sum: CTA 0 math0 has summed 4 slots, not 5",
    ),
    "a whole-block barrier for the MATH warps'": (
        COUNT,
        COUNT.replace("ptx::named_barrier(kReduceBarrier, Shape::kMathThreads)", "__syncthreads()"),
        "deadlock",
    ),
    "loads that do not wait for the launch before": (
        DMA_WAIT,
        "  RingCursor cursor;\n",
        "touched too early: dma0 touches memory before the launch before this one has ended",
    ),
    "stores that do not wait for the launch before": (
        MATH_WAIT,
        "  int buffer = 0;\n",
        "touched too early: math0 touches memory before the launch before this one has ended",
    ),
    "loads that one DMA warp waits for and the other starts": (
        DMA_WAIT,
        f"  RingCursor cursor;\n  if (loads_a){WAIT}",
        "touched too early: CTA 0 dma1 touches memory",
    ),
    "sums that are stored before the launch before has ended": (
        MATH_WAIT,
        f"  int buffer = 0;\n  if (args.split_k == 1){WAIT}",
        "touched too early: math0 touches memory",
    ),
}  # fmt: skip


def planted(old: str, new: str) -> Mapping[str, str]:
    text = dict(headers())
    assert sum(source.count(old) for source in text.values()) == 1, "the source has moved on"
    return {file: source.replace(old, new) for file, source in text.items()}


@pytest.mark.parametrize("name", PLANTS)
def test_an_error_planted_in_the_cuda_is_refuted_with_a_trace(name: str) -> None:
    old, new, consequence = PLANTS[name]
    mismatch = first_mismatch(planted(old, new))
    assert mismatch.consequence.startswith(consequence), str(mismatch)
    assert "\n  1. " in mismatch.consequence
    assert mismatch.where in str(mismatch)


def test_a_named_barrier_of_two_warpgroups_is_refuted_with_a_trace() -> None:
    old = "unit.column + column_offset, 1 + warpgroup, thread);"
    text = planted(old, old.replace("1 + warpgroup", "1"))
    mismatch = first_mismatch(text, replace(IN_FLIGHT, tile_m=128, math_warpgroups=2))
    assert mismatch.expected == "Sync(id=2, warps=4) by the warp"
    assert mismatch.consequence.startswith("read before written: buffer 0")
    assert "math0, 3 warps from math5 on: leave barrier 1" in mismatch.consequence


STORE = "ptx::tma_store(map_c, staging, column, row);"
ITERATION = "const int k = iteration * Shape::kTileK;"
INSIDE = "if (r < rows && at < columns) {"
PLACE_PLANTS = {
    "every split the first's part of k": (
        ITERATION,
        ITERATION.replace("iteration *", "(iteration - unit.k_begin) *"),
        r"row=256, column=128\) by lane 0, found .* row=256, column=0\) by lane 0\n" + ELSEWHERE,
    ),
    "A of the first tile": ("first_a, k, unit.row, ", "first_a, k, 0, ", ELSEWHERE),
    "B of the next tile": (
        "first_b, k, unit.column, ",
        "first_b, k, unit.column + Shape::kTileN, ",
        ELSEWHERE,
    ),
    "a box of C at the next columns": (STORE, STORE.replace("column,", "column + 8,"), ELSEWHERE),
    "the first tile's counter": ("args.counters + unit.tile", "args.counters", ELSEWHERE),
    "the first units for every CTA": (
        "return blockIdx.x >> is_clustered(args);",
        "return 0;",
        ELSEWHERE,
    ),
    "the next CTA's units": (
        "return gridDim.x >> is_clustered(args);",
        "return 1;",
        "wrong sum: math0 has summed 15 slots, not 10",
    ),
    "rows of a whole group in the last": (
        "first_row + within % rows",
        "first_row + within % group",
        r"expected Stage\(.*\nsearched: more than",
    ),
    "barriers of four slots": (
        "if (lane < args.stages) {",
        "if (lane < smaller(args.stages, 4)) {",
        "used before it is initialised: empty",
    ),
    "a ring of four slots": (
        "if (++slot == stages) {",
        "if (++slot == smaller(stages, 4)) {",
        r"expected Wait\(barrier='full\[4\]'",
    ),
    "a last split that counts two": (
        "static_cast<u32>(args.split_k - 1);",
        "1;",
        r"expected CountAt\(last=4, tile=0\).*\nread before written: the partial sums",
    ),
}


@pytest.mark.parametrize("name", PLACE_PLANTS)
def test_an_error_of_place_planted_in_the_cuda_is_refuted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("solver.ring.explore.STATES_MAX", 20_000)
    old, new, words = PLACE_PLANTS[name]
    mismatch = str(first_mismatch(planted(old, new)))
    assert re.search(words, mismatch), mismatch


SET_FLAG = "ptx::store_shared(memory.flag(), static_cast<u32>(is_last));"
REFUSED_PLANTS = {
    "every split's sums in one place": (
        "float* own = first + unit.split * kTileFloats;",
        "float* own = first;",
        "is not where this partial sum belongs",
    ),
    "every tile's sums in one place": (
        "static_cast<i64>(unit.tile) * args.split_k * kTileFloats",
        "0 * kTileFloats",
        "is not where this partial sum belongs",
    ),
    "the first split's sums read for all": (
        "++split, first += kTileFloats",
        "++split",
        "is not the next of its tile's partial sums",
    ),
    "sums in the order of their coming": (
        "++split, first += kTileFloats",
        "++split, first += (split + unit.split) % args.split_k * kTileFloats",
        "is not the next of its tile's partial sums",
    ),
    "the last split's sums left out": (
        "for (int split = 0; split < args.split_k; ++split",
        "for (int split = 1; split < args.split_k; ++split",
        "partial sums are left unfinished",
    ),
    "every CTA told that it is the last": (
        "static_cast<u32>(is_last)",
        "1u",
        "the flag does not say what the counter does",
    ),
    "the last CTA told that it is not": (
        "static_cast<u32>(is_last)",
        "static_cast<u32>(!is_last)",
        "the flag does not say what the counter does",
    ),
    "a flag that the last CTA alone sets": (
        SET_FLAG,
        f"if (is_last) {{ {SET_FLAG} }}",
        "the flag does not say what the counter does",
    ),
    "the first CTA taken for the last": (
        "atomicInc(args.counters + unit.tile, last) == last;",
        "atomicInc(args.counters + unit.tile, last) == 0;",
        "the flag does not say what the counter does",
    ),
    "two CTAs of a cluster at each other's tiles": (
        "* args.cluster_m + rank_m())",
        "* args.cluster_m + (args.cluster_m - 1 - rank_m()))",
        "is not an element of the piece that is in the buffer",
    ),
    "rows of C without the gap after them": (
        "Element* element = c + r * args.ldc + at;",
        "Element* element = c + r * i64{smaller(args.n, static_cast<int>(args.ldc))} + at;",
        "is not an element of the piece that is in the buffer",
    ),
    "a last column left out": (
        INSIDE,
        INSIDE.replace("columns)", "columns - 1)"),
        r"Elements: C's element \d+, 23 0 times, not 1",
    ),
    "elements of a row stored at the next": (
        "static_cast<i64>(row) * args.ldc",
        "static_cast<i64>(row + 1) * args.ldc",
        "where the element that was taken belongs|the piece that is in the buffer",
    ),
    "a piece without its swizzle": (
        "const u32 quad = (column / kPerQuad) ^ swizzle(row);",
        "const u32 quad = column / kPerQuad;",
        "is not where its row of 32 bytes goes on",
    ),
    "a piece with a swizzle that TMA does not have": (
        "kSwizzled = kQuads == 8 || kQuads == 4 || kQuads == 2;",
        "kSwizzled = kQuads > 1;",
        "is not in its warp's own rows",
    ),
    "a piece staged beyond its width": (
        "for (u32 quad = 0; quad + 1 < Piece::kQuads; quad += 2) {",
        "for (u32 quad = 0; quad < Piece::kQuads; quad += 2) {",
        "is not in its warp's own rows",
    ),
    "B's lines as the L2 is told of A's": (
        "first_b, k, unit.column, policy_b);",
        "first_b, k, unit.column, policy_a);",
        "operand b does not have the launch's cache policy",
    ),
}


def test_the_docs_count_the_errors_that_are_planted() -> None:
    count = len(PLANTS) + len(PLACE_PLANTS) + len(REFUSED_PLANTS) + 1  # of two warpgroups
    text = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text("utf-8")
    assert f" {count} errors planted in the CUDA" in text


@pytest.mark.parametrize("name", REFUSED_PLANTS)
def test_an_error_that_no_step_shows_is_refused_where_it_happens(name: str) -> None:
    old, new, words = REFUSED_PLANTS[name]
    with pytest.raises(PtxError, match=words):
        list(check_kernel(PLAIN, planted(old, new)))


def test_elements_of_c_that_are_read_too_early_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no step of the description: the compiler, say, could have moved it up."""
    ptx = kernel_ptx(PLAIN)
    launch = next(x for x in small_launches(PLAIN) if x.beta and not x.plan.c_by_tma)

    def hoisted(*arguments: Any, **more: Any) -> BarrierProgram:
        program = barrier_program(*arguments, **more)
        math0 = program.warps[0]
        steps = list(math0.steps)
        loads = next(step for step in steps if step.op == LoadElements())
        steps.remove(loads)
        steps.insert(steps.index(Step(WaitForLaunchBefore())), loads)
        return replace(program, warps=(replace(math0, steps=tuple(steps)), *program.warps[1:]))

    assert check_launch(ptx, launch) is None
    monkeypatch.setattr(ring_check, "barrier_program", hoisted)
    mismatch = check_launch(ptx, launch)
    assert mismatch is not None
    assert mismatch.where.startswith("CTA 1 math0, step ")
    assert mismatch.expected.startswith("WaitForLaunchBefore()")
    assert mismatch.consequence.startswith("touched too early: math0 touches memory before")
    assert mismatch.consequence.endswith("; touch elements of C")


def first_mismatch(text: Mapping[str, str], key: family.CompileKey = PLAIN) -> Mismatch:
    found = (mismatch for _, mismatch in check_kernel(key, text) if mismatch is not None)
    return next(found)
