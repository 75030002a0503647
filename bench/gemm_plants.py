"""Faults planted in the GEMM's kernels for compute-sanitizer, for each of its tools; and a change
that is none, by which split-K's flag tells whether it was read in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bench import sanitize_races as races
from bench.branches import Pair
from bench.patch import Patch
from bench.sanitize_suite import ALL
from kernels.sources import headers
from solver.config import Config
from solver.problem import Problem

SMS_MAX = 8
GEMM, COPY = "sm90_gemm", "copy_operands"

SMALL = Config("sm90_gemm", 64, 64, 64, 3)
PROBLEM = Problem(192, 192, 256)
RAGGED = replace(PROBLEM, n=191, ldc=191)  # C leaves element by element
UNALIGNED = replace(PROBLEM, k=255, lda=255, ldb=255)  # A and B are copied
SPLIT = replace(SMALL, split_k=2)


@dataclass(frozen=True)
class Plant:
    """A fault planted for one tool in one launch, and the kernel it is in.

    ``short`` operands (a, b, c) lack their last 64 lines, ``unwritten`` ones were never written;
    a launch with ``short_scratch`` has half of its workspace and copies. A race is between the
    accesses of ``raced`` (``bench.sanitize_races``).
    """

    tool: str
    what: str
    problem: Problem = PROBLEM
    config: Config = SMALL
    kernel: str = GEMM
    beta: float = 0.0
    short: str = ""
    unwritten: str = ""
    short_scratch: bool = False
    patch: Patch | None = None
    raced: races.Pair = races.NO_PAIR
    scope: str = ALL

    @property
    def pair(self) -> Pair:
        """Its problem and configuration on a few SMs."""
        return Pair(self.problem, self.config, SMS_MAX)

    @property
    def headers(self) -> Mapping[str, str]:
        """What its kernel is made from."""
        return headers() if self.patch is None else self.patch.applied(headers())


_EPILOGUE, _KERNEL = "sm90_gemm_epilogue.cuh", "sm90_gemm.cuh"
_STORES = "ptx::named_barrier(barrier, kWarpgroupThreads);\n      copy_elements<Piece, true>"
_NO_STORE_BARRIER = Patch(_EPILOGUE, _STORES, "copy_elements<Piece, true>")
_ENDS = "  if (is_clustered(args)) ptx::cluster_barrier();\n}"

PLANTS = {
    "element_store": Plant("memcheck", "element-wise store past the end of C", RAGGED, short="c"),
    "tma_store": Plant("memcheck", "TMA store past the end of C", short="c"),
    "tma_load": Plant("memcheck", "TMA load past the end of A", short="a"),
    "workspace": Plant(
        "memcheck",
        "split-K partial tile past the end of the workspace",
        config=SPLIT,
        short_scratch=True,
    ),
    "beta_read": Plant("memcheck", "C read past its end for beta", beta=1.0, short="c"),
    "copy_read": Plant("memcheck", "A copied from past its end", UNALIGNED, kernel=COPY, short="a"),
    "copy_store": Plant(
        "memcheck", "B copied past the copy's end", UNALIGNED, kernel=COPY, short_scratch=True
    ),
    "staging_race": Plant(
        "racecheck",
        "staging read without the barrier after stmatrix wrote it",
        RAGGED,
        patch=_NO_STORE_BARRIER,
        raced=races.COPIED_OUT,
    ),
    "staging_race_fp32": Plant(
        "racecheck",
        "staging read without the barrier after plain stores wrote it",
        replace(RAGGED, out_dtype="fp32"),
        patch=_NO_STORE_BARRIER,
        raced=races.COPIED_OUT,
    ),
    "beta_race": Plant(
        "racecheck",
        "staging read without the barrier after C was brought into it",
        replace(PROBLEM, out_dtype="fp32"),
        beta=1.0,
        patch=Patch(
            _EPILOGUE,
            "      __syncwarp();\n      ptx::named_barrier(barrier, kWarpgroupThreads);\n"
            "      stage<true>",
            "      stage<true>",
        ),
        raced=races.BROUGHT_IN,
    ),
    "flag_race": Plant(
        "racecheck",
        "split-K's flag read without the barrier after it was written",
        config=SPLIT,
        patch=Patch(
            _EPILOGUE,
            "  ptx::named_barrier(kReduceBarrier, Shape::kMathThreads);\n"
            "  if (!ptx::load_shared_u32",
            "  if (!ptx::load_shared_u32",
        ),
        raced=races.FLAG,
    ),
    "plain_race": Plant(
        "racecheck",
        "shared memory written and read by C++ alone, across warps, with no barrier between",
        patch=Patch(
            _KERNEL,
            "  if (warp < Shape::kMathWarps) {\n",
            "  { volatile unsigned char* plain = smem;\n"
            "    plain[threadIdx.x] = 1;\n"
            "    plain[threadIdx.x] = plain[(threadIdx.x + 32) % blockDim.x]; }\n"
            "  if (warp < Shape::kMathWarps) {\n",
        ),
        raced=races.PLAIN,
    ),
    "unwritten_partial": Plant(
        "initcheck",
        "split-K partial tiles read although never written",
        config=SPLIT,
        patch=Patch(
            _EPILOGUE,
            "ptx::store_global(own + (block * kQuads + quad) * kWarpgroupThreads * 4,\n"
            "                        &acc[block][4 * quad]);",
            "(void)own;",
        ),
    ),
    "beta_unwritten": Plant(
        "initcheck", "C read for beta although never written", beta=1.0, unwritten="c"
    ),
    "copy_unwritten": Plant(
        "initcheck", "A copied although never written", UNALIGNED, kernel=COPY, unwritten="a"
    ),
    "warp_gone": Plant(
        "synccheck",
        "the block's barrier after a warp has left",
        patch=Patch(
            _KERNEL,
            _ENDS,
            f"  if (threadIdx.x < kWarpThreads) return;\n  __syncthreads();\n{_ENDS}",
        ),
    ),
    "lanes_gone": Plant(
        "synccheck",
        "the block's barrier after half a warp has left",
        patch=Patch(
            _KERNEL, _ENDS, f"  if (threadIdx.x < 16) return;\n  __syncthreads();\n{_ENDS}"
        ),
    ),
    "half_expected": Plant(
        "synccheck",
        "a warpgroup's barrier that expects half of it",
        RAGGED,
        patch=Patch(_EPILOGUE, _STORES, _STORES.replace("Threads", "Threads / 2")),
    ),
}

_PUT = "    ptx::store_shared(memory.flag(), static_cast<u32>(is_last));\n"
_TAKEN = "  if (!ptx::load_shared_u32(memory.flag())) return false;\n"
_UNIT = "static_cast<u32>(unit.tile) * args.split_k + unit.split"
FLAG_TELLS = (
    Patch(
        _EPILOGUE,
        _PUT,
        f"    ptx::store_shared(memory.flag(), 2 * (1 + {_UNIT}) + static_cast<u32>(is_last));\n",
    ),
    Patch(
        _EPILOGUE,
        _TAKEN,
        "  { const u32 told = ptx::load_shared_u32(memory.flag());\n"
        f"    if (told / 2 != 1 + {_UNIT}) __trap();\n"
        "    if (told % 2 == 0) return false; }\n",
    ),
)
"""Split-K's flag names the unit that it is of, and a launch ends in a trap where a thread reads
another unit's: what it would read were it read before it is written, or after it is again."""


def flag_tells() -> Mapping[str, str]:
    """Headers with FLAG_TELLS."""
    return FLAG_TELLS[1].applied(FLAG_TELLS[0].applied(headers()))
