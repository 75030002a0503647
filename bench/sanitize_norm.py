"""What of norm_activation is launched under compute-sanitizer: faults planted for each of its tools
in the kernels of each scope (``bench.norm_branches``), and clean launches.

    python -m bench.sanitize_norm NAME                    # one plant
    python -m bench.sanitize_norm clean SCOPE PART PARTS  # a part of a scope's clean launches

in this process: what ``bench.gpu_sanitize`` runs under a tool.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bench.cover import tally
from bench.norm_branches import SCOPES, branches_of, clean_plans, scope_of
from bench.patch import Patch
from bench.sanitize_suite import Suite, address, allocated, announce
from kernels.norm.bench import compile_into_cache
from kernels.norm.compile import ENTRY, NormKey, compile_key, headers, source_hash
from kernels.norm.plan import NormPlan
from kernels.norm.ring_launches import small_plan
from kernels.sources import ARCH
from solver.families.norm_activation import NAME, VECTOR_BYTES, NormConfig, NormProblem
from solver.problem import Matrix

PROBLEM = NormProblem(64, 1024, "fp32", "layer", "silu")
RING = NormConfig(
    "specialised", 4, 4, team=2, copies="vector", depth=2, chunk_bytes=8192, hold="shared", rounds=0
)
"""Two rows in a slot, a team for each, sixteen slots' worth for each of two blocks."""
CONFIGS = {
    "rows": NormConfig("strong", 8, team=2),
    "bulk": replace(RING, copies="bulk", producers=1),
    "async": replace(RING, copies="async"),
    "vector": RING,
    "named": replace(RING, barrier="named"),
}
BULK_STORES = replace(CONFIGS["bulk"], stores="bulk")
PLAIN = NormConfig("plain", 4, hold="reload")
ONCE = replace(PROBLEM, rows=8)  # each slot is filled once: who doesn't wait can't come to hang


@dataclass(frozen=True)
class Plant:
    """A fault planted for one tool in one launch.

    ``short`` arrays (of x, scale, shift, y) have half of their memory, ``unwritten`` ones were
    never written.
    """

    tool: str
    what: str
    config: NormConfig
    problem: NormProblem = PROBLEM
    short: str = ""
    unwritten: str = ""
    patch: Patch | None = None
    kernel: str = ENTRY

    @property
    def scope(self) -> str:
        """The clean launches that it says something about."""
        return scope_of(self.config)

    @property
    def plan(self) -> NormPlan:
        """Its launch."""
        return small_plan(self.problem, self.config)


_MATH, _ROWS, _RING, _STREAM = "norm_math.cuh", "norm_rows.cuh", "norm_ring.cuh", "norm_stream.cuh"
_SUMS = "      if (lane == 0) parts[warp] = x;\n      sync();\n"
_TEAM_SYNC = "if constexpr (kWarps > 1) sync_one_of<kTeams>(barrier, kLanes);"
_WAIT_FULL = "wait(full(group, at), at.parity());"
_SYNC_FULL = "named_sync(full(group, at), kThreads);"
_GIVE_BACK = "    __syncwarp();\n    if constexpr (kBarriers == kMbarrier) {\n      if (threadIdx.x"
_INITIALISE = "ptx::barrier_init(barriers + 16 * i, kLoads);"
_RUN = "  Kernel::run(args, smem);\n"
_STORE = "        team.sync();\n        if (team.index() == 0) bulk_store("
_READ = """\
      for (u32 mine = number; mine < rows; mine += kTeams) {
        const u32 slot = ring.slot(group, at) + mine * row_bytes;
        Running<kNorm> running;
        add(running, slot, vectors);
        write(running.of_row(team, args.width, args.eps), slot, 0, vectors, output(row + mine));
      }
"""

_NO_SUM_SYNC = Patch(_MATH, _SUMS, _SUMS.replace("sync();", "__syncwarp();"))
_EARLY = Patch(
    _STREAM,
    f"{_READ}      give_back();\n",
    "      ring.give_back(group, at, read + args.depth < total);\n"
    f"{_READ}      ++read;\n      at.advance(args.depth);\n",
)
_UNAWAITED = Patch(_RING, _WAIT_FULL, f"if (threadIdx.x / kWarp % 2 == 0) {_WAIT_FULL}")
_UNAWAITED_NAMED = Patch(_RING, _SYNC_FULL, _SYNC_FULL.replace("sync", "arrive"))
_NO_STORE_SYNC = Patch(_STREAM, _STORE, "        if (team.index() == 0) bulk_store(")
_FEW_LANES = Patch(_RING, _GIVE_BACK, _GIVE_BACK.replace("__syncwarp()", "__syncwarp(0xffff)"))
_FEW_LANES_OF_TEAM = Patch(
    _MATH, f"__syncwarp();\n    {_TEAM_SYNC}", f"__syncwarp(0xffff);\n    {_TEAM_SYNC}"
)
_UNINITIALISED = Patch(_RING, _INITIALISE, f"if (i != 1) {_INITIALISE}")
_LANES_APART = Patch(
    _ROWS,
    _RUN,
    f"{_RUN}  if (threadIdx.x % kWarp < kWarp / 2) __syncthreads();\n  __syncthreads();\n",
)


def _in_each_scope() -> Iterator[tuple[str, Plant]]:
    """Faults that every scope has, or every one with a ring."""
    for scope, config in CONFIGS.items():
        named, ring = scope == "named", config.has_ring
        few_lanes = _FEW_LANES if ring else _FEW_LANES_OF_TEAM
        yield (
            f"{scope}_few_lanes",
            Plant("synccheck", "a warp's barrier for half of its lanes", config, patch=few_lanes),
        )
        yield (
            f"{scope}_lanes_apart",
            Plant(
                "synccheck",
                "the block's barrier once more, for half of each warp",
                config,
                patch=_LANES_APART,
            ),
        )
        if ring and not named:
            yield (
                f"{scope}_uninitialised",
                Plant(
                    "synccheck",
                    "a slot's full mbarrier that was never initialised",
                    config,
                    patch=_UNINITIALISED,
                ),
            )
        if ring:
            unawaited = _UNAWAITED_NAMED if named else _UNAWAITED
            yield (
                f"{scope}_unawaited",
                Plant(
                    "racecheck",
                    "a slot read without waiting for it to be full",
                    config,
                    ONCE,
                    patch=unawaited,
                ),
            )
            yield (
                f"{scope}_early",
                Plant("racecheck", "a slot given back before it is read", config, patch=_EARLY),
            )
        yield (
            f"{scope}_sums",
            Plant(
                "racecheck",
                "a team's sums read without the barrier after they were written",
                config,
                patch=_NO_SUM_SYNC,
            ),
        )
        yield (
            f"{scope}_unwritten",
            Plant("initcheck", "x read although never written", config, unwritten="x"),
        )
        yield f"{scope}_read", Plant("memcheck", "x read past its end", config, short="x")
        yield f"{scope}_store", Plant("memcheck", "y stored past its end", config, short="y")


PLANTS = {
    "team_count": Plant(
        "synccheck",
        "a team's barrier that expects half of it",
        CONFIGS["rows"],
        patch=Patch(_MATH, _TEAM_SYNC, _TEAM_SYNC.replace("kLanes", "kLanes / 2")),
    ),
    "team_lanes": Plant(
        "synccheck",
        "a team's barrier that expects no whole number of warps",
        CONFIGS["rows"],
        patch=Patch(_MATH, _TEAM_SYNC, _TEAM_SYNC.replace("kLanes", "kLanes - 8")),
    ),
    "named_count": Plant(
        "synccheck",
        "a slot's barrier that consumers take to have a warp less",
        CONFIGS["named"],
        ONCE,
        patch=Patch(_RING, _SYNC_FULL, _SYNC_FULL.replace("kThreads", "kThreads - kWarp")),
    ),
    **dict(_in_each_scope()),
    "stored_in_bulk_race": Plant(
        "racecheck",
        "a row stored in bulk without the barrier after its team wrote it",
        BULK_STORES,
        patch=_NO_STORE_SYNC,
    ),
    "plain_unwritten": Plant(
        "initcheck", "x read by the plain kernel although never written", PLAIN, unwritten="x"
    ),
    "scale_unwritten": Plant(
        "initcheck", "scale read although never written", CONFIGS["rows"], unwritten="scale"
    ),
    "plain_read": Plant("memcheck", "x read past its end by the plain kernel", PLAIN, short="x"),
    "scale_read": Plant("memcheck", "scale read past its end", CONFIGS["rows"], short="scale"),
    "stored_in_bulk": Plant("memcheck", "y stored in bulk past its end", BULK_STORES, short="y"),
}


def launch_clean(scope: str, part: int, parts: int) -> None:
    """Launch one of so many parts of a scope's clean launches."""
    from kernels.norm.launch import loaded

    for plan in clean_plans(scope)[part::parts]:
        _, function = loaded(compile_key(plan.problem, plan.config), ARCH)
        announce(plan)
        launch(plan, function)


def launch_plant(name: str) -> None:
    """Launch one planted fault."""
    from kernels.launch import load_function
    from kernels.norm.compile import build_norm, compile_norm

    plant = PLANTS[name]
    key = compile_key(plant.problem, plant.config)
    if plant.patch is not None:
        compiled = build_norm(key, ARCH, patched=plant.patch.applied(headers()))
    else:
        compiled = compile_norm(key, ARCH)
    launch(plant.plan, load_function(compiled, ENTRY), plant.short, plant.unwritten)


def launch(plan: NormPlan, function: Any, short: str = "", unwritten: str = "") -> None:
    """One launch on memory of exactly its arrays, each behind 16 bytes that are never written; see
    ``Plant``."""
    import cupy as cp

    from kernels.norm.launch import NormLaunch

    problem = plan.problem
    stream = cp.cuda.get_current_stream()
    matrices = {
        name: _matrix(problem, problem.rows if name in ("x", "y") else 1)
        for name in ("x", "scale", "shift", "y")
    }
    memory = allocated(
        (_half(matrix) if name == short else matrix, name not in (unwritten, "y"))
        for name, matrix in matrices.items()
    )
    NormLaunch(plan, function, *map(address, memory, matrices.values())).launch(stream)
    stream.synchronize()


def _matrix(problem: NormProblem, rows: int) -> Matrix:
    size = problem.element_bytes
    return Matrix(rows, problem.width, problem.width, VECTOR_BYTES // size, size)


def _half(matrix: Matrix) -> Matrix:
    if matrix.lines > 1:
        return replace(matrix, lines=matrix.lines // 2)
    return replace(matrix, length=matrix.length // 2, pitch=matrix.length // 2)


def _keys() -> list[NormKey]:
    plans = [plan for scope in SCOPES for plan in clean_plans(scope)]
    plans += [plant.plan for plant in PLANTS.values() if plant.patch is None]
    return list({compile_key(plan.problem, plan.config): None for plan in plans})


def _taken() -> tuple[int, dict[str, int]]:
    plans = [plan for scope in SCOPES for plan in clean_plans(scope)]
    return len(plans), tally(map(branches_of, plans))


SUITE = Suite(
    family=NAME,
    kernels=(ENTRY,),
    module="bench.sanitize_norm",
    plants=PLANTS,
    plant_timeout_s=40,
    parts=dict.fromkeys(SCOPES, 1) | {"bulk": 2},
    hashes=lambda: {"source_hash": source_hash(ARCH)},
    keys=_keys,
    build=partial(compile_into_cache, arch=ARCH),
    taken=_taken,
)

if __name__ == "__main__":
    if sys.argv[1] == "clean":
        launch_clean(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        launch_plant(sys.argv[1])
