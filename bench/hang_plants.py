"""Hangs planted in the kernel: the change, the launch that hangs for it, and what must be said.

``bench.gpu_hangs`` runs them on a GPU. Without one the same expectations are held against a launch
that is played step by step (tests/kernels/test_progress.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.patch import Patch
from kernels.hang import Verdict
from kernels.sources import headers
from solver.config import Config
from solver.families import sm90_gemm as family
from solver.problem import Problem

PROBLEM = Problem(128, 128, 1024)  # 4 tiles of 16 k-iterations
CONFIG = Config(family.NAME, 64, 64, 64, 4)
PLACE = ("cta", "barrier", "slot", "unit", "k_iteration")
WARPS = ("waiting", "needs", "culprits")
MATH = ("math0", "math1", "math2", "math3")


@dataclass(frozen=True, slots=True)
class Plant:
    """A change to one header and the report of the launch that hangs for it.

    ``before`` stands in ``header`` exactly once. The rest are the report's fields, a warp as its
    CTA and name.
    """

    header: str
    before: str
    after: str
    barrier: str
    waiting: tuple[tuple[int, str], ...]
    needs: tuple[tuple[int, str], ...]
    cta: int = 0
    culprits: tuple[tuple[int, str], ...] = ()
    slot: int | None = 0
    unit: int | None = 0
    k_iteration: int | None = 1
    problem: Problem = PROBLEM
    config: Config = CONFIG

    def patched(self) -> Mapping[str, str]:
        """The headers with the plant in. Raises LookupError where the source has moved on."""
        return Patch(self.header, self.before, self.after).applied(headers())

    def expected(self) -> dict[str, Any]:
        """The fields of the report."""
        return {
            "verdict": Verdict.STUCK,
            **{name: getattr(self, name) for name in (*PLACE, *WARPS)},
        }


def fields_of(hang: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields of a report, as its ``to_dict`` or a record has it."""
    told = {name: hang[name] for name in ("verdict", *PLACE)}
    for name in WARPS:
        told[name] = tuple((warp["cta"], warp["warp"]) for warp in hang[name])
    return told


def _of(cta: int, *names: str) -> tuple[tuple[int, str], ...]:
    """Warps of a CTA."""
    return tuple((cta, name) for name in names)


KERNEL, EPILOGUE = "sm90_gemm.cuh", "sm90_gemm_epilogue.cuh"

PLANTS = {
    "a missing release": Plant(
        KERNEL,
        "if (lane == 0) ptx::barrier_arrive(empty);",
        "if (lane == 0 && threadIdx.x / kWarpThreads != 1) ptx::barrier_arrive(empty);",
        "empty[0]",
        waiting=_of(0, "dma0"),
        needs=_of(0, *MATH),
        k_iteration=5,
    ),
    "a full count too high": Plant(
        KERNEL,
        "ptx::barrier_init(memory.full(lane), args.dma_warps);",
        "ptx::barrier_init(memory.full(lane), args.dma_warps + 1);",
        "full[0]",
        waiting=_of(0, *MATH),
        needs=_of(0, "dma0"),
    ),
    "a DMA phase off by one": Plant(
        KERNEL,
        "ptx::barrier_wait(memory.empty(cursor.slot), cursor.phase ^ 1);",
        "ptx::barrier_wait(memory.empty(cursor.slot), cursor.phase);",
        "empty[0]",
        waiting=_of(0, "dma0"),
        needs=(),
    ),
    "bytes that nobody delivers": Plant(
        KERNEL,
        "(loads_a ? args.a_tx_bytes : 0) + (loads_b ? args.b_tx_bytes : 0)",
        "(loads_a ? args.a_tx_bytes : 0) + (loads_b ? args.b_tx_bytes : 0) + 16",
        "full[0]",
        waiting=_of(0, *MATH),
        needs=_of(0, "dma0", "dma1"),
        config=Config(family.NAME, 64, 64, 64, 4, dma_warps=2, mma_in_flight=1),
    ),
    "a whole-block barrier in one branch": Plant(
        KERNEL,
        "    progress.unit(index);\n    u32 held = 0;",
        "    __syncthreads();\n    progress.unit(index);\n    u32 held = 0;",
        "block's first barrier",
        waiting=_of(0, *MATH),
        needs=_of(0, *MATH, "dma0"),
        culprits=_of(0, "dma0"),
        slot=None,
        unit=None,
        k_iteration=None,
    ),
    "a missing remote arrive": Plant(
        KERNEL,
        "if (is_clustered(args) && lane == 1) "
        "ptx::barrier_arrive_remote(empty, blockIdx.x % 2 ^ 1);",
        "",
        "empty[0]",
        waiting=_of(0, "dma0"),
        needs=_of(0, *MATH) + _of(1, *MATH),
        k_iteration=5,
        config=Config(family.NAME, 64, 64, 64, 4, cluster_m=2),
    ),
    "a reduction's barrier that counts too many": Plant(
        EPILOGUE,
        "  ptx::named_barrier(kReduceBarrier, Shape::kMathThreads);\n  if (warpgroup == 0",
        "  ptx::named_barrier(kReduceBarrier, Shape::kMathThreads + 32);\n  if (warpgroup == 0",
        "named barrier 15",
        waiting=_of(0, *MATH),
        needs=_of(0, *MATH),
        slot=None,
        k_iteration=8,
        config=Config(family.NAME, 64, 64, 64, 4, split_k=2),
    ),
    "a warp that takes one epilogue barrier less": Plant(
        EPILOGUE,
        "  ptx::named_barrier(barrier, kWarpgroupThreads);\n  if (thread == 0) {",
        "  if (thread / kWarpThreads != 1) ptx::named_barrier(barrier, kWarpgroupThreads);\n"
        "  if (thread == 0) {",
        "named barrier 1",
        waiting=_of(0, "math0", "math2", "math3"),
        needs=_of(0, *MATH),
        culprits=_of(0, "math1"),
        slot=None,
        k_iteration=16,
    ),
    "a warp that never gets on": Plant(
        KERNEL,
        "      progress.at(kMultiplies, cursor.slot);\n",
        "      progress.at(kMultiplies, cursor.slot);\n"
        "      while (blockIdx.x == 1 && threadIdx.x / kWarpThreads == 2 && iteration == 5) {\n"
        "        __nanosleep(1000);\n      }\n",
        "empty[1]",
        cta=1,
        waiting=_of(1, "dma0"),
        needs=_of(1, *MATH),
        # wgmma takes all four warps of a warpgroup: none of them gets on.
        culprits=_of(1, *MATH),
        slot=1,
        unit=1,
        k_iteration=10,
    ),
}
