"""Faults planted in norm_activation's kernels for compute-sanitizer, for each of its tools and each
way of handing chunks over (``bench.norm_branches``), and what its clean launches are made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from bench.norm_branches import clean_plans, scope_of
from bench.patch import Patch
from bench.sanitize_races import NO_PAIR, SLOT_READ, STORED, SUMS, TOOL, Pair
from kernels.norm.compile import ENTRY, headers
from kernels.norm.plan import NormPlan
from kernels.norm.ring_launches import small_plan
from solver.families.norm_activation import NormConfig, NormProblem

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


EACH_LANE = ", each lane arrives"
EACH_ARRIVES = (
    Patch(
        "norm_ring.cuh",
        "ptx::barrier_init(barriers + 16 * i + 8, kConsumingWarps);",
        "ptx::barrier_init(barriers + 16 * i + 8, kConsumingWarps * kWarp);",
    ),
    Patch("norm_ring.cuh", ": kLoadingWarps;\n      for", ": kLoadingWarps * kWarp;\n      for"),
    Patch(
        "norm_ring.cuh",
        "if (threadIdx.x % kWarp == 0) arrive(empty(group, at));",
        "arrive(empty(group, at));",
    ),
    Patch("norm_ring.cuh", "if (threadIdx.x % kWarp == 0) arrive(barrier);", "arrive(barrier);"),
)
"""Every lane arrives at the mbarriers of a ring, not one for its warp: the same hand-over without
the one step that racecheck can't follow, so that what it reports of the rest counts."""
MBARRIERS = ("bulk", "async", "vector")


def each_arrives(text: Mapping[str, str]) -> Mapping[str, str]:
    """Headers with EACH_ARRIVES."""
    return reduce(lambda before, patch: patch.applied(before), EACH_ARRIVES, text)


@dataclass(frozen=True)
class Plant:
    """A fault planted for one tool in one launch.

    ``short`` arrays (of x, scale, shift, y) have half of their memory, ``unwritten`` ones were
    never written. ``pair`` is what a race is between, and with ``each_lane`` it is planted in a
    kernel in which EACH_ARRIVES.
    """

    tool: str
    what: str
    config: NormConfig
    problem: NormProblem = PROBLEM
    short: str = ""
    unwritten: str = ""
    patch: Patch | None = None
    kernel: str = ENTRY
    pair: Pair = NO_PAIR
    each_lane: bool = False

    @property
    def scope(self) -> str:
        """The clean launches that it says something about."""
        return f"{scope_of(self.config)}{EACH_LANE if self.each_lane else ''}"

    @property
    def headers(self) -> Mapping[str, str]:
        """What its kernel is made from."""
        planted = headers() if self.patch is None else self.patch.applied(headers())
        return each_arrives(planted) if self.each_lane else planted

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
                    pair=SLOT_READ,
                ),
            )
            yield (
                f"{scope}_early",
                Plant(
                    "racecheck",
                    "a slot given back before it is read",
                    config,
                    patch=_EARLY,
                    pair=SLOT_READ,
                ),
            )
        yield (
            f"{scope}_sums",
            Plant(
                "racecheck",
                "a team's sums read without the barrier after they were written",
                config,
                patch=_NO_SUM_SYNC,
                pair=SUMS,
            ),
        )
        yield (
            f"{scope}_unwritten",
            Plant("initcheck", "x read although never written", config, unwritten="x"),
        )
        yield f"{scope}_read", Plant("memcheck", "x read past its end", config, short="x")
        yield f"{scope}_store", Plant("memcheck", "y stored past its end", config, short="y")


_PLANTS = {
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
        pair=STORED,
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


PLANTS = _PLANTS | {
    f"{name}_each_lane": replace(plant, each_lane=True)
    for name, plant in _PLANTS.items()
    if plant.tool == TOOL and plant.scope in MBARRIERS
}


def plans_of(scope: str) -> tuple[NormPlan, ...]:
    """A scope's clean launches."""
    return clean_plans(scope.removesuffix(EACH_LANE))


def headers_of(scope: str) -> Mapping[str, str]:
    """What the kernels of a scope's clean launches are made from."""
    return each_arrives(headers()) if scope.endswith(EACH_LANE) else headers()
