"""The Hopper family's prices: the recurrence's parameters from the profile's constants.

The equations are those of ``docs/model.md``, section "Parameters of the Hopper family"; in SM
cycles until they are rounded, half to even, to ticks of 100 ps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from solver.recheck.question import Question
from solver.recheck.shipped import Profile
from solver.recheck.space import TICKS_PER_US, Work, largest_grid

L2_LINE_BYTES = 128
TMA_ROW_BYTES = 16
Constants = Mapping[str, float]


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """What of a kernel decides the time of a k-iteration; ordered by these fields."""

    tile_m: int
    tile_n: int
    tile_k: int
    mma_in_flight: int
    math_warpgroups: int

    @property
    def row_blocks(self) -> int:
        """Blocks of 64 rows that a MATH warpgroup multiplies."""
        return self.tile_m // (64 * self.math_warpgroups)


@dataclass(frozen=True, slots=True)
class _Launch:
    """How a problem's tiles are spread over the SMs."""

    tiles_m: int
    tiles_n: int
    split_k: int
    group: int
    work_units: int
    active: int
    units: int
    iterations: int


def price_work(
    question: Question, profile: Profile, shape: Shape, split_k: int, group: int
) -> Work:
    """The parameters of one shape launched with so many splits of k and rows walked together."""
    constant = profile.models["sm90_gemm"]
    launch = _launch(question, profile, shape, split_k, group)
    alone, math_cycles = _math(constant, shape)
    own, l2, memory = _loads(constant, question, shape, launch)
    at_full_clock = _joined(constant, own, l2, memory, 1.0)
    clock_ghz = _clock(constant, shape, launch, max(math_cycles, at_full_clock))
    slowdown = clock_ghz / constant["clock_ghz"]
    epilogue, store = _stores(constant, question, shape, split_k)
    latency = (
        constant["load_latency_cycles"]
        + (constant["cold_latency_cycles"] if question.cold else 0)
        + constant["queue_latency_fraction"] * max(0.0, l2 - own)
    )
    paths = (own, l2 * slowdown, memory * slowdown)

    def ticks(cycles: float) -> int:
        return round(cycles * (TICKS_PER_US / 1e3) / clock_ghz)

    early = shape.mma_in_flight * (1 - constant["release_lag_fraction"]) * alone
    return Work(
        load=ticks(_joined(constant, own, l2, memory, slowdown)),
        latency=ticks(latency),
        math=ticks(math_cycles),
        early=min(ticks(early), ticks(math_cycles)),
        epilogue=ticks(epilogue),
        iterations=launch.iterations,
        units=launch.units,
        waves=1,
        fixed=round(constant["launch_us"] * TICKS_PER_US),
        store=ticks(store),
        active=launch.active,
        load_path=paths.index(max(paths)),
        clock_mhz=round(clock_ghz * 1e3),
        config={
            "tile_m": shape.tile_m,
            "tile_n": shape.tile_n,
            "tile_k": shape.tile_k,
            "mma_in_flight": shape.mma_in_flight,
            "math_warpgroups": shape.math_warpgroups,
            "split_k": split_k,
            "raster_group": group,
        },
    )


def _launch(
    question: Question, profile: Profile, shape: Shape, split_k: int, group: int
) -> _Launch:
    tiles_m = -(-question.m // shape.tile_m)
    tiles_n = -(-question.n // shape.tile_n)
    work_units = tiles_m * tiles_n * split_k
    active = largest_grid(work_units, profile.limits["sms"], question.bounds)
    k_iterations = -(-question.k // shape.tile_k)
    return _Launch(
        tiles_m=tiles_m,
        tiles_n=tiles_n,
        split_k=split_k,
        group=group,
        work_units=work_units,
        active=active,
        units=-(-work_units // active),
        iterations=-(-k_iterations // split_k),
    )


def _math(constant: Constants, shape: Shape) -> tuple[float, float]:
    """(X, C): one warpgroup's iteration alone, and of all that share the tensor cores."""
    columns = max(shape.tile_n, constant["mma_min_n"])
    wgmma = 64 * columns * 16 / constant["mma_macs_per_cycle"]
    alone = shape.row_blocks * (shape.tile_k // 16) * wgmma * constant["mma_overhead"]
    drain = 0 if shape.mma_in_flight else constant["mma_drain_cycles"]
    return alone, max(shape.math_warpgroups * alone, alone + drain)


def _loads(
    constant: Constants, question: Question, shape: Shape, launch: _Launch
) -> tuple[float, float, float]:
    """Load occupancy of the SM's own path, of its share of L2, of its share of memory."""
    size, active = question.element_bytes, launch.active
    row_bytes = shape.tile_k * size
    box_m = min(shape.tile_m, -(-question.m // 8) * 8)
    box_n = min(shape.tile_n, -(-question.n // 8) * 8)
    a_bytes, b_bytes = box_m * row_bytes, box_n * row_bytes
    odd = question.k * size % L2_LINE_BYTES != 0
    own = (
        (a_bytes + b_bytes)
        * (1 + odd * constant["load_odd_pitch_penalty"])
        / constant["load_bytes_per_cycle"]
        + constant["load_issue_cycles"]
        + constant["load_warpgroup_cycles"] * shape.math_warpgroups
    )

    cycles_per_us = constant["clock_ghz"] * 1e3
    rows_together = min(launch.group, launch.tiles_m)
    resident = max(active / launch.split_k, 1.0)
    sharers_a = max(min(resident / rows_together, float(launch.tiles_n)), 1.0)
    sharers_b = max(min(float(rows_together), resident), 1.0)
    outside_rows = (box_m * launch.tiles_m - question.m) / launch.tiles_m + (
        box_n * launch.tiles_n - question.n
    ) / launch.tiles_n
    share = constant["l2_share_exponent"]
    asked = (
        a_bytes / sharers_a**share
        + b_bytes / sharers_b**share
        + constant["l2_outside_weight"] * (outside_rows * row_bytes)
    )
    l2 = (
        asked
        * (1 + odd * constant["l2_odd_pitch_penalty"])
        * active
        / constant["l2_bytes_per_us"]
        * cycles_per_us
    )

    unique = float(size * (question.m + question.n) * question.k)
    rows_a = min(rows_together * shape.tile_m, question.m)
    rows_b = min(sharers_a * shape.tile_n, float(question.n))
    k_bytes = size * question.k / launch.split_k * min(launch.split_k, active)
    fetched = max(launch.work_units / active * ((rows_a + rows_b) * k_bytes), unique)
    memory_bytes = question.cold * unique + constant["hbm_refetch_fraction"] * (fetched - unique)
    iterations = launch.units * launch.iterations  # of the critical CTA
    memory = memory_bytes / constant["hbm_bytes_per_us"] * cycles_per_us / iterations
    return own, l2, memory


def _joined(constant: Constants, own: float, l2: float, memory: float, slowdown: float) -> float:
    """The three load paths as one; only the SM's own follows the SM's clock."""
    order = constant["load_norm"]
    shared = (l2 * slowdown) ** order + (memory * slowdown) ** order
    joined: float = (own**order + shared) ** (1 / order)
    return joined


def _clock(constant: Constants, shape: Shape, launch: _Launch, pace: float) -> float:
    """SM clock in GHz where the tensor cores do one k-iteration every ``pace`` cycles."""
    macs = shape.tile_m * shape.tile_n * shape.tile_k
    per_us = 2 * macs * launch.active / pace * (constant["clock_ghz"] * 1e3)
    tflops = per_us / 1e6 * (1 + constant["clock_narrow_penalty"] * 64 / shape.tile_n)
    slower: float = (constant["clock_power_tflops"] / tflops) ** constant["clock_power_exponent"]
    return constant["clock_ghz"] * min(1.0, slower)


def _stores(
    constant: Constants, question: Question, shape: Shape, split_k: int
) -> tuple[float, float]:
    """(epilogue between two units, what follows the last MATH)."""
    blocks, tile_n = shape.row_blocks, shape.tile_n
    chunks = blocks * (tile_n // math.gcd(tile_n, 64))
    unaligned = question.n * question.element_bytes % TMA_ROW_BYTES != 0
    column = constant["epilogue_column_cycles"] + unaligned * constant["epilogue_unaligned_cycles"]
    store = (
        constant["epilogue_cycles"]
        + constant["epilogue_chunk_cycles"] * chunks
        + column * blocks * tile_n / 64
    )
    if split_k == 1:
        return store, store
    tile_bytes = shape.tile_m * tile_n * 4  # fp32 partials
    spill = constant["split_epilogue_cycles"] + tile_bytes / constant["split_tile_bytes_per_cycle"]
    accumulators = blocks * tile_n // 2
    wide = constant["split_wide_factor"] if accumulators > 128 else 1
    reduce = (split_k - 1) * (
        constant["split_reduce_latency_fraction"] * constant["load_latency_cycles"]
        + tile_bytes / constant["split_reduce_bytes_per_cycle"] * wide
    )
    return spill, spill + reduce + store
