"""What of the GEMM is launched under compute-sanitizer: the plants of ``bench.gemm_plants``, clean
pairs, and pairs whose flag tells whether it was read in order.

    python -m bench.sanitize_gemm NAME                    # one plant, or one probe
    python -m bench.sanitize_gemm clean SCOPE PART PARTS  # a part of the clean pairs

in this process: what ``bench.gpu_sanitize`` runs under a tool.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from bench import sanitize_races as races
from bench.branch_pairs import counted, covering, pairs
from bench.branches import Pair
from bench.gemm_plants import COPY, GEMM, PLANTS, SMS_MAX, flag_tells
from bench.sanitize_probes import Probe
from bench.sanitize_suite import ALL, Suite, address, allocated, announce, ended
from kernels.bench import compile_shipped
from kernels.sources import copy_hash, headers, instantiation, kernel_id, source_hash
from solver.device import load_profile
from solver.families.sm90_gemm import NAME, CompileKey

DRAWN, COVERS, FLOPS_MAX = 3000, 3, 1 << 28
TOLD_TIMES = 10
PROBES = {
    "flag_tells": Probe(
        "split-K's flag, which names its unit and is looked at by who reads it", GEMM
    )
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


def launch_probe() -> None:
    """Launch the clean pairs that split k in several warpgroups, TOLD_TIMES each, with a flag that
    tells. Raises LaunchFailed where it was not read in order."""
    from kernels.compile import build_kernel
    from kernels.launch import LoadedKernel

    for pair in split_pairs():
        kernel = LoadedKernel.load(build_kernel(pair.key, patched=flag_tells()))
        announce(pair)
        for _ in range(TOLD_TIMES):
            launch(pair, kernel)


def split_pairs() -> list[Pair]:
    """Clean pairs in which several warpgroups read split-K's flag."""
    return [
        pair
        for pair in clean_pairs()
        if pair.config.split_k > 1 and pair.config.math_warpgroups > 1
    ]


def launch_plant(name: str) -> None:
    """Launch one planted fault."""
    from kernels.compile import build_kernel, compile_kernel
    from kernels.launch import LoadedKernel

    plant = PLANTS[name]
    if plant.patch is not None:
        compiled = build_kernel(plant.pair.key, patched=plant.headers)
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


def judge(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose reported pairs are told and weighed (``bench.sanitize_races``).

    Raises SystemExit for one whose kernels can't be made here: of other sources, or another NVRTC.
    """
    return races.judged_here(record, source_hash(), _Kernels())


class _Kernels:
    """What plants and clean launches are made from."""

    def of_plant(self, name: str) -> races.Unit:
        plant = PLANTS[name]
        return _unit(plant.pair, plant.headers)

    def of_launch(self, scope: str, announced: str) -> races.Unit:
        return _unit(next(pair for pair in clean_pairs() if str(pair) == announced), headers())

    def pair_of(self, plant: str) -> races.Pair:
        return PLANTS[plant].raced


def _unit(pair: Pair, text: Mapping[str, str]) -> races.Unit:
    return kernel_id(pair.key), instantiation(pair.key), text


def _keys() -> list[CompileKey]:
    return sorted({pair.key for pair in [*clean_pairs(), *(p.pair for p in PLANTS.values())]})


def _taken() -> tuple[int, dict[str, int]]:
    return 2 * len(clean_pairs()), counted(clean_pairs())


SUITE = Suite(
    family=NAME,
    kernels=(GEMM, COPY),
    module="bench.sanitize_gemm",
    plants=PLANTS,
    plant_timeout_s=60,
    parts={ALL: 4},
    hashes=lambda: {"source_hash": source_hash(), "copy_hash": copy_hash()},
    keys=_keys,
    build=compile_shipped,
    taken=_taken,
    probes=PROBES,
    judge=judge,
)

if __name__ == "__main__":
    if sys.argv[1] == "clean":
        launch_clean(*map(int, sys.argv[3:]))
    elif sys.argv[1] in PROBES:
        launch_probe()
    else:
        launch_plant(sys.argv[1])
    ended()
