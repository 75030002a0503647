"""The kernel that ships follows the barrier program that is proved; planted errors do not."""

from __future__ import annotations

import random

import pytest

from kernels.ring_check import check_kernel, ring_of, small_launches
from kernels.sources import headers
from solver.families import sm90_gemm as family
from solver.ring.explore import Fault, explore_ring
from solver.z3_ring import prove_ring

KEYS = [
    key for key in family.candidate_keys("bf16") if key.name in family.register_table().registers
]
SAMPLE = random.Random(7).sample(KEYS, 10)
PLAIN = family.CompileKey("bf16", 64, 16, 64, 1, 0, 0)
IN_FLIGHT = family.CompileKey("bf16", 64, 16, 64, 1, 0, 1)


@pytest.mark.parametrize("key", SAMPLE, ids=lambda key: key.name)
def test_a_kernels_own_program_is_the_one_that_is_proved(key: family.CompileKey) -> None:
    checked = 0
    for plan, mismatch in check_kernel(key):
        assert mismatch is None, str(mismatch)
        prove_ring(ring_of(plan))
        checked += 1
    assert checked >= 2


@pytest.mark.parametrize("key", [PLAIN, IN_FLIGHT], ids=lambda key: key.name)
def test_every_order_of_the_launches_that_are_compared_is_safe(key: family.CompileKey) -> None:
    plan = next(iter(small_launches(key)))
    assert not isinstance(explore_ring(ring_of(plan), [5, 5]), Fault)


PLANTS = {
    "a wrong count": (
        "ptx::barrier_init(memory.empty(lane), Shape::kMathWarps);",
        "ptx::barrier_init(memory.empty(lane), Shape::kMathWarps + 1);",
        "deadlock",
    ),
    "a whole-block barrier in one branch": (
        "    const Unit unit = schedule.unit(index);\n    u32 held = 0;",
        "    __syncthreads();\n    const Unit unit = schedule.unit(index);\n    u32 held = 0;",
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
    "a missing arrive": (
        "if (releases) ptx::barrier_arrive(memory.empty(cursor.slot));",
        "",
        "deadlock",
    ),
    "an arrive too early": (
        "      wgmma::wait<Shape::kMmaInFlight ? 1 : 0>();",
        "      if (releases) ptx::barrier_arrive(memory.empty(cursor.slot));\n"
        "      wgmma::wait<0>();\n      cursor.advance(memory.stages);\n      continue;",
        "overwritten while read",
    ),
    "an arrive by the whole warp": (
        "if (releases) ptx::barrier_arrive(memory.empty(cursor.slot));",
        "ptx::barrier_arrive(memory.empty(cursor.slot));",
        "too many arrivals",
    ),
    "bytes that nobody delivers": (
        "ptx::barrier_arrive_expect(full, tx_bytes);",
        "ptx::barrier_arrive_expect(full, tx_bytes + 16);",
        "deadlock",
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_an_error_planted_in_the_cuda_is_refuted_with_a_trace(name: str) -> None:
    old, new, kind = PLANTS[name]
    text = dict(headers())
    assert sum(old in source for source in text.values()) == 1, "the source has moved on"
    planted = {file: source.replace(old, new) for file, source in text.items()}
    _, mismatch = next(iter(check_kernel(PLAIN, planted)))
    assert mismatch is not None
    assert mismatch.consequence.startswith(f"{kind}: "), str(mismatch)
    assert "\n  1. " in mismatch.consequence
    assert mismatch.where in str(mismatch)
