"""What of the GEMM is launched under compute-sanitizer: faults planted for each of its tools, and
clean pairs.

    python -m bench.sanitize_plants NAME                    # one plant
    python -m bench.sanitize_plants clean SCOPE PART PARTS  # a part of the clean pairs

in this process: what ``bench.gpu_sanitize`` runs under a tool.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from bench.branch_pairs import counted, covering, pairs
from bench.branches import Pair
from bench.patch import Patch
from bench.sanitize_suite import ALL, Suite, address, allocated, announce
from kernels.bench import compile_shipped
from kernels.sources import copy_hash, headers, source_hash
from solver.config import Config
from solver.device import load_profile
from solver.families.sm90_gemm import NAME, CompileKey
from solver.problem import Problem

DRAWN, COVERS, FLOPS_MAX, SMS_MAX = 3000, 3, 1 << 28, 8
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
    a launch with ``short_scratch`` has half of its workspace and copies.
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
    scope: str = ALL

    @property
    def pair(self) -> Pair:
        """Its problem and configuration on a few SMs."""
        return Pair(self.problem, self.config, SMS_MAX)


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
    ),
    "staging_race_fp32": Plant(
        "racecheck",
        "staging read without the barrier after plain stores wrote it",
        replace(RAGGED, out_dtype="fp32"),
        patch=_NO_STORE_BARRIER,
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


@cache
def clean_pairs() -> tuple[Pair, ...]:
    """Small launches that take every branch of the kernel, COVERS times over."""
    left = [
        pair
        for pair in pairs(DRAWN, 1, load_profile("h200"))
        if pair.problem.flops <= FLOPS_MAX and pair.sms <= SMS_MAX
    ]
    chosen: list[Pair] = []
    for _ in range(COVERS):
        chosen += covering(left)
        left = [pair for pair in left if pair not in chosen]
    return tuple(chosen)


def launch_clean(part: int, parts: int) -> None:
    """Launch one of so many parts of the clean pairs, each pair with beta 0 and not."""
    from kernels.compile import compile_kernel
    from kernels.launch import LoadedKernel

    for pair in clean_pairs()[part::parts]:
        kernel = LoadedKernel.load(compile_kernel(pair.key))
        announce(pair)
        launch(pair, kernel)
        launch(pair, kernel, beta=-0.5)


def launch_plant(name: str) -> None:
    """Launch one planted fault."""
    from kernels.compile import build_kernel, compile_kernel
    from kernels.launch import LoadedKernel

    plant = PLANTS[name]
    if plant.patch is not None:
        compiled = build_kernel(plant.pair.key, patched=plant.patch.applied(headers()))
    else:
        compiled = compile_kernel(plant.pair.key)
    launch(
        plant.pair,
        LoadedKernel.load(compiled),
        plant.beta,
        plant.short,
        plant.unwritten,
        plant.short_scratch,
    )


def launch(
    pair: Pair,
    kernel: Any,
    beta: float = 0.0,
    short: str = "",
    unwritten: str = "",
    short_scratch: bool = False,
) -> None:
    """One launch on memory of exactly its operands, without any pool; see ``Plant``."""
    import cupy as cp

    from kernels.launch import GemmLaunch, Workspace
    from kernels.launch_plan import plan_launch

    alpha = 1.0 if beta == 0 else 0.5
    cp.cuda.set_allocator(None)  # of the workspace too
    stream = cp.cuda.get_current_stream()
    problem = pair.problem
    plan = plan_launch(problem, pair.config, pair.sms)
    scratch = plan
    if short_scratch:
        box = plan.b.box
        scratch = replace(
            plan,
            workspace_bytes=plan.workspace_bytes // 2,
            b=replace(plan.b, box=replace(box, rows=box.rows // 2)),
        )
    workspace = Workspace(scratch)
    matrices = {"a": problem.a, "b": problem.b, "c": problem.c}
    memory = allocated(
        (
            replace(matrix, lines=matrix.lines - (64 if name in short else 0)),
            name not in unwritten and (name != "c" or beta != 0),
        )
        for name, matrix in matrices.items()
    )
    a, b, c = map(address, memory, matrices.values())
    GemmLaunch(plan, kernel, a, b, c, workspace, alpha=alpha, beta=beta).launch(stream)
    stream.synchronize()


def _keys() -> list[CompileKey]:
    return sorted({pair.key for pair in [*clean_pairs(), *(p.pair for p in PLANTS.values())]})


def _taken() -> tuple[int, dict[str, int]]:
    return 2 * len(clean_pairs()), counted(clean_pairs())


SUITE = Suite(
    family=NAME,
    kernels=(GEMM, COPY),
    module="bench.sanitize_plants",
    plants=PLANTS,
    plant_timeout_s=60,
    parts={ALL: 4},
    hashes=lambda: {"source_hash": source_hash(), "copy_hash": copy_hash()},
    keys=_keys,
    build=compile_shipped,
    taken=_taken,
)

if __name__ == "__main__":
    if sys.argv[1] == "clean":
        launch_clean(*map(int, sys.argv[3:]))
    else:
        launch_plant(sys.argv[1])
