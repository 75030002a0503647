"""What a configuration of the Hopper GEMM family costs: parameters of the recurrence.

Physical terms, each with its constant in the profile (``models.sm90_gemm``; ``docs/model.md``
has the equations, units and sources). Everything is tabulated in floating point once per
problem and rounded to integer ticks, so that pick, proof and simulator share one table.

Two levels keep it fast: a *work row* fixes what decides time per iteration (tile, wgmma in
flight, cluster, split, raster) but for what late loads add, a *row* adds stages and threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np

from solver.device import DeviceProfile
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.families.sm90_gemm_operands import (
    copied_bytes,
    copied_operands,
    copy_bytes,
    requested_m,
    requested_n,
    stores_by_tma,
)
from solver.families.sm90_gemm_power import Activity, power_columns
from solver.families.sm90_gemm_registers import register_table
from solver.occupancy import REGISTERS_MAX
from solver.problem import ELEMENT_BYTES, Matrix, Problem
from solver.recurrence import Ticks
from solver.table import Kernels, Table, Works, largest_grid
from solver.units import TICKS_PER_US

KERNEL_FIELDS = (
    "tile_m",
    "tile_n",
    "tile_k",
    "stages",
    "mma_in_flight",
    "dma_warps",
    "math_warpgroups",
    "register_split",
    "cluster_m",
    "cluster_n",
)
WORK_FIELDS = (
    "tile_m",
    "tile_n",
    "tile_k",
    "mma_in_flight",
    "math_warpgroups",
    "cluster_m",
    "cluster_n",
)
LAUNCH_FIELDS = ("split_k", "raster_group")

LINE_BYTES = 128  # of the L2, and the widest swizzled row that TMA writes at a time
# Registers of a thread that sums partial tiles: the most it may have, by MATH warpgroups; what it
# needs besides accumulators and partials on their way; and how many partials are, at the least.
SUM_REGISTERS = {1: REGISTERS_MAX, **{w: x[1] for w, x in family.ROLE_REGISTERS.items()}}
SUM_BASE_REGISTERS = 32
SUM_ON_WAY_MIN = 8

Columns = Mapping[str, Ticks]


@dataclass(frozen=True, slots=True)
class KernelSpace:
    """Every legal kernel of the family on one device, whatever the problem.

    ``kernels`` have no set-up time yet. ``works`` has one entry per distinct combination of
    WORK_FIELDS; the kernels of work w are the slice ``first[w] : first[w] + count[w]``.
    """

    kernels: Kernels
    works: Columns
    first: Ticks
    count: Ticks
    slots_max: Ticks


@lru_cache(maxsize=4)
def _candidates(layout: str, element_bytes: int) -> tuple[Columns, Ticks]:
    """Every kernel of the family by KERNEL_FIELDS, and the registers of its threads, before any
    limit of a block is asked."""
    table = register_table()
    dtype = next(name for name, size in ELEMENT_BYTES.items() if size == element_bytes)
    grid = [
        (
            key.tile_m,
            key.tile_n,
            key.tile_k,
            stages,
            key.mma_in_flight,
            dma_warps,
            key.math_warpgroups,
            key.register_split,
            cluster_m,
            cluster_n,
            table.of(key),
        )
        for key in legality.candidate_keys(dtype, layout)
        if table.of(key)
        for stages in family.STAGES
        for dma_warps in family.DMA_WARPS
        for cluster_m, cluster_n in family.CLUSTERS
    ]
    values = np.array(grid, dtype=np.int64).reshape(-1, len(KERNEL_FIELDS) + 1)
    return {name: values[:, i] for i, name in enumerate(KERNEL_FIELDS)}, values[:, -1]


@lru_cache(maxsize=16)
def kernel_space(block: legality.BlockLimits, layout: str, element_bytes: int) -> KernelSpace:
    """The legal kernels, sorted by work; built once for a block's limits and a layout.

    Operand types of one size have the same (``RegisterTable``).
    """
    columns, registers = _candidates(layout, element_bytes)
    legal = np.ones(len(registers), dtype=bool)
    for limit in (
        *legality.cluster_limits(columns),
        *legality.kernel_limits(columns, element_bytes, block, registers),
    ):
        legal &= limit.holds
    columns = {name: column[legal] for name, column in columns.items()}
    work_key = np.stack([columns[name] for name in WORK_FIELDS], axis=1)
    works, inverse = np.unique(work_key, axis=0, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    threads = family.threads(columns)
    kernels = Kernels(
        slots=family.usable_slots(columns),
        setup=np.zeros_like(threads),
        smem_bytes=family.smem_bytes(columns, element_bytes),
        registers=registers[legal][order],
        threads=threads,
        config={name: columns[name] for name in KERNEL_FIELDS if name not in WORK_FIELDS},
    )
    count = np.bincount(inverse, minlength=len(works)).astype(np.int64)
    first = np.cumsum(count) - count
    return KernelSpace(
        kernels=kernels,
        works={name: works[:, i] for i, name in enumerate(WORK_FIELDS)},
        first=first,
        count=count,
        slots_max=np.maximum.reduceat(kernels.slots, first),
    )


def setup_ticks(threads: Any, smem_bytes: Any, warpgroup_us: float, serial_us: float) -> Ticks:
    """What a kernel of so many threads and so much shared memory takes before its first load."""
    overlaps = family.holds_sm(smem_bytes)
    setup_us = warpgroup_us * threads / family.WARPGROUP + np.where(overlaps, 0.0, serial_us)
    ticks: Ticks = np.rint(setup_us * TICKS_PER_US).astype(np.int64)
    return ticks


@lru_cache(maxsize=16)
def _set_up(
    block: legality.BlockLimits,
    layout: str,
    element_bytes: int,
    warpgroup_us: float,
    serial_us: float,
) -> tuple[KernelSpace, Ticks]:
    """The legal kernels with their set-up time, and the least of each work's; problems of one
    device share them."""
    space = kernel_space(block, layout, element_bytes)
    setup = setup_ticks(space.kernels.threads, space.kernels.smem_bytes, warpgroup_us, serial_us)
    return (
        replace(space, kernels=replace(space.kernels, setup=setup)),
        np.minimum.reduceat(setup, space.first),
    )


@lru_cache(maxsize=1)
def work_rows(problem: Problem, block: legality.BlockLimits, sms: int) -> tuple[Columns, Ticks]:
    """Work rows legal for the problem on so many SMs, and the index of each one's entry in the
    ``works`` of the block's ``kernel_space``. Kept for questions that differ in constants alone."""
    space = kernel_space(block, problem.kernel_layout, problem.element_bytes)
    index = np.arange(len(space.first), dtype=np.int64)
    launch = {name: np.ones_like(index) for name in LAUNCH_FIELDS}
    # Field by field, so that what is illegal already is not multiplied by what follows: a rule
    # that names neither field holds or fails whatever they are, and 1 is legal where any is.
    for field, values in (
        ("", (1,)),
        ("split_k", family.SPLIT_K),
        ("raster_group", family.RASTER_GROUP),
    ):
        index = np.repeat(index, len(values))
        launch = {name: np.repeat(column, len(values)) for name, column in launch.items()}
        if field:
            launch[field] = np.tile(np.array(values, dtype=np.int64), len(index) // len(values))
        columns = {name: column[index] for name, column in space.works.items()} | launch
        legal = np.ones(len(index), dtype=bool)
        for limit in legality.launch_limits(columns, problem, sms):
            legal &= limit.holds
        index = index[legal]
        launch = {name: column[legal] for name, column in launch.items()}
    rows = {name: column[legal] for name, column in columns.items()}
    for kept in (index, *rows.values()):
        kept.flags.writeable = False
    return rows, index


def work_cost(
    problem: Problem,
    device: DeviceProfile,
    rows: Mapping[str, Any],
    *,
    cold: bool = True,
    grids: Ticks | None = None,
) -> Works:
    """Price work rows (integer arrays under WORK_FIELDS and LAUNCH_FIELDS).

    ``cold``: A and B come from device memory; otherwise the L2 holds them already. ``grids``
    are the counts of CTAs a launch may have (``solver.table.largest_grid``); all without.
    """
    k = {name: constant.value for name, constant in device.model(family.NAME).items()}
    sms = device.limit("sms")
    bm, bn, bk = rows["tile_m"], rows["tile_n"], rows["tile_k"]
    warpgroups, in_flight = rows["math_warpgroups"], rows["mma_in_flight"]
    split, group = rows["split_k"], rows["raster_group"]
    cluster_m, cluster_n = rows["cluster_m"], rows["cluster_n"]
    cluster = cluster_m * cluster_n
    size = problem.element_bytes
    copied = copied_operands(problem)

    tiles_m, tiles_n = -(-problem.m // bm), -(-problem.n // bn)
    tiles = tiles_m * tiles_n
    k_iterations = -(-problem.k // bk)
    iterations = -(-k_iterations // split)
    work_units = tiles * split
    active = largest_grid(work_units, sms, grids, cluster)
    units = -(-work_units // active)

    # MATH: one k-iteration of one warpgroup, then of all that share the tensor cores.
    blocks = bm // (family.MMA_M * warpgroups)
    mma = family.MMA_M * np.maximum(bn, k["mma_min_n"]) * 16 / k["mma_macs_per_cycle"]
    one = blocks * (bk // 16) * mma * k["mma_overhead"]
    math = np.maximum(
        warpgroups * one, one + k["mma_issue_cycles"] + (1 - in_flight) * k["mma_drain_cycles"]
    )
    early = in_flight * (1 - k["release_lag_fraction"]) * one

    # Loads: the SM's own path, its share of L2, its share of memory.
    asked_m, asked_n = requested_m(rows, problem), requested_n(rows, problem)
    a_bytes, b_bytes = asked_m * bk * size, asked_n * bk * size
    a_astride, b_astride = (
        0.0 if name in copied else _astride(matrix)
        for name, matrix in (("a", problem.a), ("b", problem.b))
    )
    # B not contiguous in k comes in rows of swizzle_n columns; short ones take longer per byte.
    b_row_bytes = LINE_BYTES if problem.b_is_k_major else size * family.swizzle_n(bn)
    b_narrow = LINE_BYTES / b_row_bytes - 1
    own = (a_bytes + b_bytes) / k["load_bytes_per_cycle"]
    # What the SM asks for itself (a cluster's CTAs their part each) in rows that lie in two lines
    # of the L2, or are shorter than one: these take a second access.
    broken = (
        a_bytes / cluster_n * a_astride
        + b_bytes / cluster_m * (b_astride + b_narrow * k["load_narrow_penalty"])
    ) / k["load_broken_bytes_per_cycle"]
    # Tiles at work at once: a raster group's rows by what that leaves of columns; where the group
    # has fewer tiles, the next groups' rows as well.
    resident = np.maximum(active / split, 1)
    rows_together = np.maximum(group * cluster_m, resident / tiles_n)
    rows_together = np.maximum(np.minimum(rows_together, np.minimum(tiles_m, resident)), 1)
    sharers_of_a = np.maximum(np.minimum(resident / rows_together, tiles_n), 1)
    sharers_of_b = rows_together
    outside = (
        (asked_m * tiles_m - problem.m) / tiles_m / cluster_n
        + (asked_n * tiles_n - problem.n) / tiles_n / cluster_m
    ) * (bk * size)
    cycles_per_us = k["clock_ghz"] * 1e3

    # CTAs start in step and drift apart: like requests come together less and less.
    in_step = k["l2_step_iterations"] / (k["l2_step_iterations"] + units * iterations)
    together_exponent = k["l2_share_exponent"] + k["l2_step_exponent"] * in_step

    def merged(sharers: Any, cluster: Any) -> Any:
        """The part of a tile's bytes that one CTA draws of the L2: a cluster asks once for what its
        CTAs share, and like requests of several are answered together."""
        return np.maximum(sharers / cluster, 1) ** -together_exponent / cluster

    # In a last, partial wave the others leave the critical CTA their share: of memory too.
    l2 = (
        (
            a_bytes * merged(sharers_of_a, cluster_n) * (1 + a_astride * k["l2_odd_pitch_penalty"])
            + b_bytes
            * k["l2_b_weight"]
            * merged(sharers_of_b, cluster_m)
            * (1 + b_astride * k["l2_odd_pitch_penalty"] + b_narrow * k["l2_narrow_penalty"])
            + k["l2_outside_weight"] * outside
        )
        * (work_units / units)
        / k["l2_bytes_per_us"]
        * cycles_per_us
    )

    # Memory: A and B once, what the L2 has lost by the time it is asked for again, C, partials.
    # The rows of a raster group are walked along all of n, then the next group's.
    k_bytes = size * problem.k

    def fetched(sharers: Any, neighbours: Any) -> Any:
        """How often memory gives what so many share, of whom so many are neighbours: once, and in
        part again for those that are farther away."""
        apart = np.maximum(sharers / neighbours, 1) - 1
        return 1 + k["hbm_apart_fraction"] * np.minimum(1, apart)

    # Neighbours of a raster group share B, of a cluster what it shares.
    unique = (
        problem.m * fetched(sharers_of_a, cluster_n)
        + problem.n * fetched(sharers_of_b, group * cluster_m)
    ) * k_bytes
    rows_at_once = np.minimum(rows_together * bm, problem.m)
    columns_at_once = np.minimum(sharers_of_a * bn, problem.n)
    kept_bytes = k["l2_kept_fraction"] * device.limit("l2_bytes")

    def lost(between: Any) -> Any:
        """The part of what is read again that is no longer in the L2, after so many bytes."""
        return np.maximum(0, 1 - kept_bytes / between)

    groups = tiles_m / rows_together
    waves_of_group = np.maximum(1, tiles_n * rows_together / resident)
    refetched = problem.n * k_bytes * (groups - 1) * lost(
        (problem.n + rows_at_once) * k_bytes
    ) + problem.m * k_bytes * (waves_of_group - 1) * lost(
        (rows_at_once + columns_at_once) * k_bytes
    )
    # What an aligned copy has just written is in the L2 where it fits.
    copies_fit = copy_bytes(problem) <= device.limit("l2_bytes")
    read_bytes = (
        cold * (unique - copies_fit * copied_bytes(problem)) + k["hbm_refetch_fraction"] * refetched
    )
    partial_bytes = bm * bn * 4
    memory_bytes = (
        read_bytes
        + k["hbm_write_fraction"] * problem.out_bytes * problem.m * problem.n
        + k["hbm_split_fraction"] * (split > 1) * partial_bytes * work_units
    )
    # Fewer SMs draw less than all, but more than their part.
    hbm_bytes_per_us = k["hbm_bytes_per_us"] * (active / sms) ** k["hbm_sms_exponent"]
    memory = memory_bytes / hbm_bytes_per_us * cycles_per_us / (units * iterations)
    norm = k["load_norm"]

    def load_at(clock_ghz: Any) -> Any:
        """Load occupancy in cycles: memory alone does not follow the SM clock."""
        scale = clock_ghz / k["clock_ghz"]
        issued = own**norm + broken**norm + k["load_floor_cycles"] ** norm
        return (issued + l2**norm + (memory * scale) ** norm) ** (1 / norm)

    # Of the bytes that a wave's CTAs ask for, counted once, the part that memory has to give. Fewer
    # CTAs than splits ask for a part of k.
    wave_bytes = (rows_at_once + columns_at_once) * k_bytes * np.minimum(1, active / split)
    missed = np.minimum(1, read_bytes / (work_units / active * wave_bytes))
    latency = k["load_latency_cycles"] + missed * k["miss_latency_cycles"]

    # Clock: lower where tensor cores, memory and L2 draw more power, and lower still where they do
    # for long. Power is told in tensor cores' rates.
    pace = np.maximum(math, load_at(k["clock_ghz"]))
    power_tflops = (
        2 * bm * bn * bk * active / pace * cycles_per_us / 1e6
        + k["clock_memory_tflops"] * np.minimum(1, memory / pace)
        + k["clock_l2_tflops"] * np.minimum(1, l2 / pace)
    )
    busy_us = pace * iterations * units / cycles_per_us
    exponent = k["clock_burst_exponent"] + k["clock_power_exponent"] * (
        busy_us / (busy_us + k["clock_settle_us"])
    )
    clock_ghz = k["clock_ghz"] * np.minimum(1, (k["clock_power_tflops"] / power_tflops) ** exponent)

    # Epilogue of one unit, and what follows the last.
    pieces = blocks * (bn // family.piece_n(bn, problem.out_bytes))
    by_elements = not stores_by_tma(problem)
    store = (
        k["epilogue_cycles"]
        + k["epilogue_chunk_cycles"] * pieces
        + by_elements * k["epilogue_unaligned_cycles"] * blocks * bn / 64
    )
    # Splits of a tile meet again and again: whoever came last and summed comes last to its next.
    accumulators = family.accumulators(bm, bn, warpgroups)
    most = np.select([warpgroups == count for count in SUM_REGISTERS], list(SUM_REGISTERS.values()))
    on_way = np.maximum(most - SUM_BASE_REGISTERS - accumulators, SUM_ON_WAY_MIN)
    rounds = np.maximum(1, accumulators / on_way)
    spill = k["split_epilogue_cycles"] + partial_bytes / k["split_tile_bytes_per_cycle"]
    reduce = split * (
        k["split_reduce_latency_cycles"] * rounds
        + partial_bytes / k["split_reduce_bytes_per_cycle"]
    )
    last = np.where(split > 1, spill + reduce + store, store)
    epilogue = np.where(split > 1, k["split_inner_factor"] * last, store)

    def ticks(cycles: Any) -> Ticks:
        count: Ticks = np.rint(cycles * (TICKS_PER_US / 1e3) / clock_ghz).astype(np.int64)
        return count

    fixed_us = (
        k["launch_us"]
        + (cluster > 1) * k["launch_cluster_us"]
        + np.maximum(0, 2 * active / sms - 1) * k["launch_pair_us"]
        + copy_us(problem, device)
    )

    def steady_us(clock_ghz: Any) -> Any:
        load = load_at(clock_ghz)
        paced = np.maximum(math, load) * iterations * units + (units - 1) * epilogue
        return (paced + latency + np.minimum(math, load)) / (clock_ghz * 1e3)

    of_sm = work_units * iterations / sms / cycles_per_us
    activity = Activity(
        rated_ghz=k["clock_ghz"],
        clock_ghz=clock_ghz,
        active=active,
        tensor=warpgroups * one * of_sm * bn / np.maximum(bn, k["mma_min_n"]),
        load=own * of_sm,
        l2=l2 * iterations * units / cycles_per_us,
        memory=memory_bytes / k["hbm_bytes_per_us"],
        copied_us=copy_us(problem, device),
        steady_us=steady_us,
        other_us=fixed_us + last / (clock_ghz * 1e3),
    )

    scale = clock_ghz / k["clock_ghz"]
    issued = np.maximum(np.maximum(own, broken), k["load_floor_cycles"])
    load_path = np.argmax(np.broadcast_arrays(issued, l2, memory * scale), axis=0)
    math_ticks = ticks(math)
    return Works(
        load=ticks(load_at(clock_ghz)),
        jitter=ticks(np.full_like(latency, k["load_jitter_cycles"])),
        latency=ticks(latency),
        math=math_ticks,
        early=np.minimum(ticks(early), math_ticks),
        epilogue=ticks(epilogue),
        iterations=np.asarray(iterations, dtype=np.int64),
        units=np.asarray(units, dtype=np.int64),
        waves=np.ones(np.shape(bm), dtype=np.int64),
        fixed=np.rint(fixed_us * TICKS_PER_US).astype(np.int64),
        store=ticks(last),
        active=np.asarray(active, dtype=np.int64),
        load_path=load_path.astype(np.int64),
        clock_mhz=np.rint(clock_ghz * 1e3).astype(np.int64),
        config={name: np.asarray(rows[name]) for name in (*WORK_FIELDS, *LAUNCH_FIELDS)},
        power=power_columns(device, activity),
    )


def _astride(matrix: Matrix) -> float:
    """The part of a matrix's lines that begin within a line of the L2, the first beginning on one:
    each 128 bytes of theirs lie in two."""
    if matrix.lines == 1:
        return 0.0
    return 1 - gcd(matrix.pitch * matrix.element_bytes, LINE_BYTES) / LINE_BYTES


def copy_us(problem: Problem, device: DeviceProfile) -> float:
    """Time of the aligned copies that precede the kernel, both made by one launch."""
    written = copy_bytes(problem)
    if not written:
        return 0.0
    moved = copied_bytes(problem) + written
    rate: float = device.constant(family.NAME, "copy_bytes_per_us")
    return device.constant(family.NAME, "copy_launch_us") + moved / rate


def tabulate(
    problem: Problem, device: DeviceProfile, *, cold: bool = True, grids: Ticks | None = None
) -> Table:
    """The priced legal space of one problem on one device, its inputs cold or in the L2.

    ``grids``: as ``work_cost`` takes them; what is legal does not depend on them.
    """
    block = legality.BlockLimits.of(device)
    space, setup_min = _set_up(
        block,
        problem.kernel_layout,
        problem.element_bytes,
        device.constant(family.NAME, "launch_warpgroup_us"),
        device.constant(family.NAME, "launch_serial_us"),
    )
    rows, index = work_rows(problem, block, device.limit("sms"))
    return Table(
        family=family.NAME,
        works=work_cost(problem, device, rows, cold=cold, grids=grids),
        kernels=space.kernels,
        first=space.first[index],
        count=space.count[index],
        slots_max=space.slots_max[index],
        setup_min=setup_min[index],
        copies=round(copy_us(problem, device) * TICKS_PER_US),
    )
