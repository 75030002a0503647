"""The Hopper family's prices: the recurrence's parameters from the profile's constants.

The equations are those of ``docs/model.md``, section "Parameters of the Hopper family"; in SM
cycles until they are rounded, half to even, to ticks of 100 ps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from solver.recheck.hopper_power import Activity, sustained_power
from solver.recheck.problem import Operand
from solver.recheck.question import Question
from solver.recheck.shipped import Profile
from solver.recheck.space import TICKS_PER_US, Work, largest_grid

PIECES_N = (8, 16, 24, 32, 40, 56, 64, 72, 88, 104)  # columns of 16 bits stored at a time
LINE_BYTES = 128  # of the L2, and of a row that TMA writes at a time
TMA_PIECE_BYTES = 16
COPY_STEP = 64  # elements: an aligned copy has lines of whole rows, or of a part that divides one
COPY_LEAST = 8
SUM_REGISTERS = {1: 255, 2: 232, 3: 152}  # the most of a thread that sums, by MATH warpgroups
SUM_BASE_REGISTERS = 32
SUM_ON_WAY_MIN = 8
Constants = Mapping[str, float]


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """What of a kernel decides the time of a k-iteration; ordered by these fields."""

    tile_m: int
    tile_n: int
    tile_k: int
    mma_in_flight: int
    math_warpgroups: int
    cluster_m: int
    cluster_n: int

    @property
    def cluster(self) -> int:
        """CTAs of a cluster: ``cluster_m`` of them share B, ``cluster_n`` share A."""
        return self.cluster_m * self.cluster_n

    @property
    def swizzle_n(self) -> int:
        """Columns of a row of B in shared memory where B does not run along k."""
        return math.gcd(self.tile_n, 64)

    def piece_n(self, out_bytes: int) -> int:
        """Columns that an epilogue stores at a time."""
        if out_bytes == 4:
            return self.swizzle_n // 2
        return max(width for width in PIECES_N if self.tile_n % width == 0)

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
    loads = _loads(profile, question, shape, launch)
    at_full_clock = _joined(constant, loads, 1.0)
    clock_ghz = _clock(constant, shape, launch, loads, max(math_cycles, at_full_clock))
    slowdown = clock_ghz / constant["clock_ghz"]
    epilogue, store = _stores(constant, question, shape, split_k)
    latency = constant["load_latency_cycles"] + loads.missed * constant["miss_latency_cycles"]
    issued = max(loads.own, loads.broken, constant["load_floor_cycles"])
    paths = (issued, loads.l2, loads.memory * slowdown)

    def ticks(cycles: float) -> int:
        return round(cycles * (TICKS_PER_US / 1e3) / clock_ghz)

    fixed_us = _launch_us(profile, question, shape, launch.active)
    cycles_per_us = constant["clock_ghz"] * 1e3
    of_sm = launch.work_units * launch.iterations / profile.limits["sms"] / cycles_per_us

    def steady_us(ghz: float) -> float:
        b = _joined(constant, loads, ghz / constant["clock_ghz"])
        paced = max(math_cycles, b) * launch.iterations * launch.units
        between = (launch.units - 1) * epilogue
        return (paced + between + latency + min(math_cycles, b)) / (ghz * 1e3)

    early = shape.mma_in_flight * (1 - constant["release_lag_fraction"]) * alone
    used = shape.tile_n / max(shape.tile_n, constant["mma_min_n"])
    return Work(
        load=ticks(_joined(constant, loads, slowdown)),
        jitter=ticks(constant["load_jitter_cycles"]),
        latency=ticks(latency),
        math=ticks(math_cycles),
        early=min(ticks(early), ticks(math_cycles)),
        epilogue=ticks(epilogue),
        iterations=launch.iterations,
        units=launch.units,
        waves=1,
        fixed=round(fixed_us * TICKS_PER_US),
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
            "cluster_m": shape.cluster_m,
            "cluster_n": shape.cluster_n,
            "split_k": split_k,
            "raster_group": group,
        },
        power=sustained_power(
            profile,
            Activity(
                rated_ghz=constant["clock_ghz"],
                clock_ghz=clock_ghz,
                active=launch.active,
                tensor=shape.math_warpgroups * alone * of_sm * used,
                load=loads.own * of_sm,
                l2=loads.l2 * launch.iterations * launch.units / cycles_per_us,
                memory=loads.memory_us,
                copied_us=_copy_us(constant, question),
                steady_us=steady_us,
                other_us=fixed_us + store / (clock_ghz * 1e3),
            ),
        ),
    )


def _launch(
    question: Question, profile: Profile, shape: Shape, split_k: int, group: int
) -> _Launch:
    tiles_m = -(-question.m // shape.tile_m)
    tiles_n = -(-question.n // shape.tile_n)
    work_units = tiles_m * tiles_n * split_k
    active = largest_grid(work_units, profile.limits["sms"], question.bounds, shape.cluster)
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


def _launch_us(profile: Profile, question: Question, shape: Shape, active: int) -> float:
    """What precedes the kernel's set-up: launch, and aligned copies of A and B where needed."""
    constant = profile.models["sm90_gemm"]
    paired = max(0.0, 2 * active / profile.limits["sms"] - 1)  # of the TPCs, both SMs at work
    launch_us = (
        constant["launch_us"]
        + (shape.cluster > 1) * constant["launch_cluster_us"]
        + paired * constant["launch_pair_us"]
    )
    return launch_us + _copy_us(constant, question)


def _copy_us(constant: Constants, question: Question) -> float:
    """What aligned copies of A and B take, where any is needed."""
    copied = _copied(question)
    if not copied:
        return 0.0
    moved = sum(x.lines * x.length * x.element_bytes + _copy_bytes(x) for x in copied)
    return constant["copy_launch_us"] + moved / constant["copy_bytes_per_us"]


def _copied(question: Question) -> list[Operand]:
    """Operands that TMA can't read as they lie."""
    return [each for each in (question.a, question.b) if not each.is_aligned]


def _copy_bytes(operand: Operand) -> int:
    """Bytes of an operand's aligned copy."""
    step = COPY_LEAST
    while step < operand.length and step < COPY_STEP:
        step *= 2
    pitch = -(-operand.length // step) * step
    return operand.lines * pitch * operand.element_bytes


def _astride(operand: Operand) -> float:
    """The part of the lines that TMA reads which begin within a line of the L2; a copy has none."""
    if not operand.is_aligned or operand.lines == 1:
        return 0.0
    return 1 - math.gcd(operand.pitch * operand.element_bytes, LINE_BYTES) / LINE_BYTES


def _math(constant: Constants, shape: Shape) -> tuple[float, float]:
    """(X, C): one warpgroup's iteration alone, and of all that share the tensor cores."""
    columns = max(shape.tile_n, constant["mma_min_n"])
    wgmma = 64 * columns * 16 / constant["mma_macs_per_cycle"]
    alone = shape.row_blocks * (shape.tile_k // 16) * wgmma * constant["mma_overhead"]
    between = constant["mma_issue_cycles"]
    if not shape.mma_in_flight:
        between += constant["mma_drain_cycles"]
    return alone, max(shape.math_warpgroups * alone, alone + between)


@dataclass(frozen=True, slots=True)
class _Loads:
    """Load occupancy in cycles: of the SM's own path, of what broken lines ask
    for more often, of its share of L2, of its share of memory;
    the part of a wave's distinct bytes that memory gives; and the µs that all of a launch's bytes
    take memory at its full rate."""

    own: float
    broken: float
    l2: float
    memory: float
    missed: float
    memory_us: float


def _loads(profile: Profile, question: Question, shape: Shape, launch: _Launch) -> _Loads:
    """What loads of one shape wait for."""
    constant = profile.models["sm90_gemm"]
    size, active = question.element_bytes, launch.active
    row_bytes = shape.tile_k * size
    asked_m, asked_n = _asked_rows(question, shape)
    a_bytes, b_bytes = asked_m * row_bytes, asked_n * row_bytes
    a_astride, b_astride = _astride(question.a), _astride(question.b)
    # Where B does not run along k its rows are a swizzle wide, and short ones are slower.
    narrow = 0.0 if question.b_runs_along_k else LINE_BYTES / (shape.swizzle_n * size) - 1
    own = (a_bytes + b_bytes) / constant["load_bytes_per_cycle"]
    broken = (
        a_bytes / shape.cluster_n * a_astride
        + b_bytes / shape.cluster_m * (b_astride + narrow * constant["load_narrow_penalty"])
    ) / constant["load_broken_bytes_per_cycle"]

    cycles_per_us = constant["clock_ghz"] * 1e3
    resident = max(active / launch.split_k, 1.0)
    together = max(float(launch.group * shape.cluster_m), resident / launch.tiles_n)
    together = max(min(together, launch.tiles_m, resident), 1.0)
    sharers_a = max(min(resident / together, float(launch.tiles_n)), 1.0)
    sharers_b = together
    outside_rows = (asked_m * launch.tiles_m - question.m) / launch.tiles_m / shape.cluster_n + (
        asked_n * launch.tiles_n - question.n
    ) / launch.tiles_n / shape.cluster_m
    # The CTAs of a cluster that share a tile ask for it once; requests for one tile are merged.
    penalty = constant["l2_odd_pitch_penalty"]
    # CTAs that start together do so less and less the longer they run.
    steps = constant["l2_step_iterations"]
    in_step = steps / (steps + launch.units * launch.iterations)
    exponent = constant["l2_share_exponent"] + constant["l2_step_exponent"] * in_step
    a_asked = a_bytes * _merged(exponent, sharers_a, shape.cluster_n)
    b_asked = b_bytes * constant["l2_b_weight"] * _merged(exponent, sharers_b, shape.cluster_m)
    asked = (
        a_asked * (1 + a_astride * penalty)
        + b_asked * (1 + b_astride * penalty + narrow * constant["l2_narrow_penalty"])
        + constant["l2_outside_weight"] * (outside_rows * row_bytes)
    )
    at_work = launch.work_units / launch.units  # CTAs, in the mean of waves
    l2 = asked * at_work / constant["l2_bytes_per_us"] * cycles_per_us

    k_bytes = size * question.k
    apart = constant["hbm_apart_fraction"]
    once_a = question.m * _fetched(apart, sharers_a / shape.cluster_n)
    once_b = question.n * _fetched(apart, sharers_b / (launch.group * shape.cluster_m))
    unique = (once_a + once_b) * k_bytes
    rows_a = min(together * shape.tile_m, question.m)
    rows_b = min(sharers_a * shape.tile_n, float(question.n))
    kept = constant["l2_kept_fraction"] * profile.limits["l2_bytes"]
    groups = launch.tiles_m / together
    waves_of_group = max(1.0, launch.tiles_n * together / resident)
    b_again = question.n * k_bytes * (groups - 1) * _lost(kept, (question.n + rows_a) * k_bytes)
    a_again = question.m * k_bytes * (waves_of_group - 1) * _lost(kept, (rows_a + rows_b) * k_bytes)
    # What a copy has just written is in the L2 where it fits.
    copied = _copied(question)
    fits = sum(map(_copy_bytes, copied)) <= profile.limits["l2_bytes"]
    warm = sum(x.lines * x.length * x.element_bytes for x in copied) if fits else 0
    read = question.cold * (unique - warm) + constant["hbm_refetch_fraction"] * (b_again + a_again)
    partials = shape.tile_m * shape.tile_n * 4 * launch.work_units if launch.split_k > 1 else 0
    memory_bytes = (
        read
        + constant["hbm_write_fraction"] * question.c.element_bytes * question.m * question.n
        + constant["hbm_split_fraction"] * partials
    )
    iterations = launch.units * launch.iterations  # of the critical CTA
    drawn = (active / profile.limits["sms"]) ** constant["hbm_sms_exponent"]
    memory = memory_bytes / (constant["hbm_bytes_per_us"] * drawn) * cycles_per_us / iterations
    wave = (rows_a + rows_b) * k_bytes * min(1.0, active / launch.split_k)
    distinct = launch.work_units / active * wave
    return _Loads(
        own,
        broken,
        l2,
        memory,
        missed=min(1.0, read / distinct),
        memory_us=memory_bytes / constant["hbm_bytes_per_us"],
    )


def _merged(exponent: float, sharers: float, cluster: int) -> float:
    """The part of a tile's bytes that one of its sharers draws of the L2."""
    part: float = max(sharers / cluster, 1.0) ** -exponent / cluster
    return part


def _fetched(apart_fraction: float, neighbourhoods: float) -> float:
    """Reads of memory for each byte that is shared: by one neighbourhood once, by two and more in
    part once more."""
    return 1 + apart_fraction * min(1.0, max(neighbourhoods, 1.0) - 1)


def _lost(kept_bytes: float, between: float) -> float:
    """The part of what is read again, after so many bytes, that the L2 no longer has."""
    return max(0.0, 1 - kept_bytes / between)


def _asked_rows(question: Question, shape: Shape) -> tuple[int, int]:
    """Rows of A and columns of B that are asked for a tile: those that exist, in whole steps.

    Where CTAs each load a part a step is a swizzle's 8 rows for each; where an operand does not
    run along k, the width of its rows in shared memory.
    """
    part_m = 8 * shape.cluster_n if shape.cluster_n > 1 else 1
    part_n = 8 * shape.cluster_m if shape.cluster_m > 1 else 1
    step_m = part_m if question.a_runs_along_k else 64
    step_n = part_n if question.b_runs_along_k else shape.swizzle_n
    return (
        min(shape.tile_m, -(-question.m // step_m) * step_m),
        min(shape.tile_n, -(-question.n // step_n) * step_n),
    )


def _joined(constant: Constants, loads: _Loads, slowdown: float) -> float:
    """The load paths as one; only memory does not follow the SM's clock."""
    order = constant["load_norm"]
    floor = constant["load_floor_cycles"]
    paths = (loads.own, loads.broken, floor, loads.l2, loads.memory * slowdown)
    joined: float = sum(path**order for path in paths) ** (1 / order)
    return joined


def _clock(constant: Constants, shape: Shape, launch: _Launch, loads: _Loads, pace: float) -> float:
    """SM clock in GHz where an SM does one k-iteration every ``pace`` cycles."""
    macs = shape.tile_m * shape.tile_n * shape.tile_k
    cycles_per_us = constant["clock_ghz"] * 1e3
    power_tflops = (
        2 * macs * launch.active / pace * cycles_per_us / 1e6
        + constant["clock_memory_tflops"] * min(1.0, loads.memory / pace)
        + constant["clock_l2_tflops"] * min(1.0, loads.l2 / pace)
    )
    busy_us = pace * launch.iterations * launch.units / cycles_per_us
    lasting = busy_us / (busy_us + constant["clock_settle_us"])
    exponent = constant["clock_burst_exponent"] + constant["clock_power_exponent"] * lasting
    slower: float = (constant["clock_power_tflops"] / power_tflops) ** exponent
    return constant["clock_ghz"] * min(1.0, slower)


def _stores(
    constant: Constants, question: Question, shape: Shape, split_k: int
) -> tuple[float, float]:
    """(epilogue between two units, what follows the last MATH)."""
    blocks, tile_n = shape.row_blocks, shape.tile_n
    c = question.c
    pieces = blocks * (tile_n // shape.piece_n(c.element_bytes))
    by_tma = c.is_aligned and question.n * c.element_bytes % TMA_PIECE_BYTES == 0
    by_element = 0 if by_tma else constant["epilogue_unaligned_cycles"]
    store = (
        constant["epilogue_cycles"]
        + constant["epilogue_chunk_cycles"] * pieces
        + by_element * blocks * tile_n / 64
    )
    if split_k == 1:
        return store, store
    tile_bytes = shape.tile_m * tile_n * 4  # fp32 partials
    spill = constant["split_epilogue_cycles"] + tile_bytes / constant["split_tile_bytes_per_cycle"]
    accumulators = blocks * tile_n // 2
    on_way = max(
        SUM_REGISTERS[shape.math_warpgroups] - SUM_BASE_REGISTERS - accumulators, SUM_ON_WAY_MIN
    )
    reduce = split_k * (
        constant["split_reduce_latency_cycles"] * max(1.0, accumulators / on_way)
        + tile_bytes / constant["split_reduce_bytes_per_cycle"]
    )
    last = spill + reduce + store
    return constant["split_inner_factor"] * last, last
