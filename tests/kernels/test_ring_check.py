"""The kernel that ships follows the barrier program that is proved; planted errors do not."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from kernels import ring_check
from kernels.barrier_program import BarrierProgram, barrier_program, kernel_ptx
from kernels.barrier_steps import LoadElements
from kernels.launch_plan import CachePolicy
from kernels.ptx_parser import PtxError
from kernels.ring_check import (
    Launch,
    Mismatch,
    check_kernel,
    check_launch,
    cta_of,
    small_launches,
    units_of,
    without_type,
)
from kernels.sources import headers
from kernels.table import candidate_keys
from solver.families import sm90_gemm as family
from solver.problem import LAYOUTS
from solver.ring.explore import explore_cta
from solver.ring.state import Fault
from solver.ring.steps import Step, WaitForLaunchBefore
from solver.z3_ring import prove_ring

SAMPLE = random.Random(7).sample(
    [key for key in candidate_keys("bf16") if list(small_launches(key))], 5
)
PLAIN = family.CompileKey("bf16", "tn", 64, 48, 64, 1, 0, 0)
IN_FLIGHT = family.CompileKey("bf16", "tt", 64, 16, 64, 1, 0, 1)


@pytest.mark.parametrize("key", SAMPLE, ids=lambda key: key.name)
def test_a_kernels_own_program_is_the_one_that_is_proved(key: family.CompileKey) -> None:
    for launch, mismatch in check_kernel(key):
        assert mismatch is None, str(mismatch)
        prove_ring(cta_of(launch).ring)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_launches_cover_clusters_splits_types_and_ways_to_store(layout: str) -> None:
    launches = list(small_launches(replace(PLAIN, layout=layout)))
    plans = [launch.plan for launch in launches]
    configs = [plan.config for plan in plans]
    assert {(c.cluster_m, c.cluster_n) for c in configs} == set(family.CLUSTERS)
    assert {c.dma_warps for c in configs} == {1, 2}
    assert len({c.stages for c in configs}) == 2
    assert {(c.split_k > 1, launch.last) for c, launch in zip(configs, launches, strict=True)} == {
        (False, True),
        (True, True),
        (True, False),
    }
    stores = {(each.plan.c_by_tma, each.plan.problem.out, each.beta) for each in launches}
    assert {(by_tma, beta != 0) for by_tma, _, beta in stores} == {
        (by_tma, adds) for by_tma in (True, False) for adds in (True, False)
    }
    assert {out for _, out, _ in stores} == {"bf16", "fp16", "fp32"}
    for policies in ({plan.a.policy for plan in plans}, {plan.b.policy for plan in plans}):
        assert policies == set(CachePolicy)
    assert all(plan.units == 2 * plan.grid for plan in plans)
    # One tile has warpgroups with nothing of it to store.
    assert any(0 in unit.pieces for each in three_warpgroups() for unit in units_of(each, 0))


def three_warpgroups() -> Iterator[Launch]:
    return small_launches(family.CompileKey("bf16", "tn", 192, 16, 64, 3, 0, 0))


def test_every_order_of_the_launches_that_are_compared_is_safe() -> None:
    for launch in small_launches(PLAIN):
        first, second = units_of(launch, 0)
        units = [replace(first, iterations=3), replace(second, iterations=1)]
        assert not isinstance(explore_cta(cta_of(launch), units), Fault)


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
        "read before written",
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


@cache
def planted(name: str) -> Mapping[str, str]:
    old, new, _ = PLANTS[name]
    text = dict(headers())
    assert sum(source.count(old) for source in text.values()) == 1, "the source has moved on"
    return {file: source.replace(old, new) for file, source in text.items()}


@pytest.mark.parametrize("name", PLANTS)
def test_an_error_planted_in_the_cuda_is_refuted_with_a_trace(name: str) -> None:
    mismatch = first_mismatch(planted(name))
    assert mismatch.consequence.startswith(PLANTS[name][2]), str(mismatch)
    assert "\n  1. " in mismatch.consequence
    assert mismatch.where in str(mismatch)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "first_b, k, unit.column, policy_b);",
            "first_b, k, unit.column, policy_a);",
            "operand b does not have the launch's cache policy",
        ),
        (
            "kSwizzled = kQuads == 8 || kQuads == 4 || kQuads == 2;",
            "kSwizzled = kQuads > 1;",
            "is not in its warp's own rows",
        ),
        (
            "for (u32 quad = 0; quad + 1 < Piece::kQuads; quad += 2) {",
            "for (u32 quad = 0; quad < Piece::kQuads; quad += 2) {",
            "is not in its warp's own rows",
        ),
    ],
)
def test_an_error_that_no_step_shows_is_refused_where_it_happens(
    old: str, new: str, words: str
) -> None:
    text = {file: source.replace(old, new) for file, source in headers().items()}
    assert text != headers()
    with pytest.raises(PtxError, match=words):
        list(check_kernel(PLAIN, text))


def test_elements_of_c_that_are_read_too_early_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no step of the description: the compiler, say, could have moved it up."""
    ptx = kernel_ptx(PLAIN)
    launch = next(x for x in small_launches(PLAIN) if x.beta and not x.plan.c_by_tma and x.last)

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
    assert mismatch.where.startswith("math0, step ")
    assert mismatch.expected.startswith("WaitForLaunchBefore()")
    assert mismatch.consequence.startswith("touched too early: math0 touches memory before")
    assert mismatch.consequence.endswith("; touch elements of C")


def first_mismatch(text: Mapping[str, str]) -> Mismatch:
    found = (mismatch for _, mismatch in check_kernel(PLAIN, text) if mismatch is not None)
    return next(found)
