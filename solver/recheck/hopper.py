"""The Hopper family: which kernels exist, which launches are legal for a problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from solver.recheck.hopper_cost import Shape, price_work
from solver.recheck.question import Question
from solver.recheck.shipped import Profile, read_registers
from solver.recheck.space import TICKS_PER_US, Kernel, Space

NAME = "sm90_gemm"
TILES_M = ((64, 1), (128, 1), (192, 1), (128, 2), (256, 2), (192, 3))  # (rows, MATH warpgroups)
TILES_N = (*range(8, 128, 8), *range(128, 257, 16))
TILES_K = (64, 128)
STAGES = range(2, 13)
SPLITS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32)
GROUPS = (1, 2, 4, 8, 16)
ACCUMULATORS_MAX = 208  # per thread
CLUSTERS = ((1, 1), (2, 1), (1, 2))  # CTAs along m that share B, along n that share A
SPLIT_REGISTERS = {2: 128 * (40 + 2 * 232), 3: 128 * (40 + 3 * 152)}  # asked for by setmaxnreg
UNITS_MAX = 2**31 - 1
COORDINATES_END = 2**31  # a box that starts or goes on beyond has no place in TMA's signed 32 bits
SLOTS_MIN = 2
SHARED_SM = 228 * 1024 // 2 - 1024  # dynamic shared memory of which an SM has twice as much


@dataclass(frozen=True, slots=True)
class Block:
    """What a device grants one block."""

    smem_bytes: int
    registers: int
    threads: int


@dataclass(frozen=True, slots=True)
class Built:
    """A kernel as compiled: its shape, ring, DMA warps, register split; what it takes."""

    shape: Shape
    stages: int
    dma_warps: int
    register_split: int
    smem_bytes: int
    registers: int
    threads: int


def hopper_space(question: Question, profile: Profile) -> Space:
    """Every legal configuration of the family, priced: by shape, split of k, raster group."""
    block = Block(
        profile.limits["smem_per_block_bytes"],
        profile.limits["registers_per_sm"],
        profile.limits["threads_per_block"],
    )
    built = built_kernels(block, question.kernel_layout, question.element_bytes)
    warpgroup_us = profile.models[NAME]["launch_warpgroup_us"]
    serial_us = profile.models[NAME]["launch_serial_us"]
    kernels = tuple(
        Kernel(
            slots=each.stages - each.shape.mma_in_flight,
            setup=round(
                (warpgroup_us * each.threads / 128 + serial_us * (each.smem_bytes <= SHARED_SM))
                * TICKS_PER_US
            ),
            smem_bytes=each.smem_bytes,
            registers=each.registers,
            threads=each.threads,
            config={
                "stages": each.stages,
                "dma_warps": each.dma_warps,
                "register_split": each.register_split,
            },
        )
        for each in built
    )
    works, slices = [], []
    for shape, of_shape in _slices(built).items():
        for split_k, group in launches(question, shape, profile.limits["sms"]):
            works.append(price_work(question, profile, shape, split_k, group))
            slices.append(of_shape)
    return Space(NAME, tuple(works), kernels, tuple(slices))


@lru_cache(maxsize=16)
def built_kernels(block: Block, layout: str, element_bytes: int) -> tuple[Built, ...]:
    """The kernels that a block can hold, sorted by shape; of one shape by register split,
    stages and DMA warps."""
    registers = read_registers().by_kernel
    found: list[Built] = []
    for shape in _shapes(step_n(layout)):
        for register_split in (0, 1):
            name = (
                f"{layout}_{shape.tile_m}x{shape.tile_n}x{shape.tile_k}"
                f"_w{shape.math_warpgroups}_r{register_split}_f{shape.mma_in_flight}"
            )
            if name in registers:
                found += _rings(block, shape, register_split, registers[name], element_bytes)
    return tuple(found)


def _shapes(step: int) -> Iterator[Shape]:
    """Tiles whose accumulators fit, tile_n a multiple of ``step``, in ascending order of their
    fields."""
    shapes = [
        Shape(tile_m, tile_n, tile_k, mma_in_flight, warpgroups, cluster_m, cluster_n)
        for tile_m, warpgroups in TILES_M
        for tile_n in TILES_N
        if tile_n % step == 0
        for tile_k in TILES_K
        for mma_in_flight in (0, 1)
        for cluster_m, cluster_n in CLUSTERS
        # Two CTAs that share B each load half of it, in whole blocks of 8 columns.
        if cluster_m == 1 or tile_n % 16 == 0
    ]
    return (
        shape
        for shape in sorted(shapes)
        if shape.row_blocks * shape.tile_n // 2 <= ACCUMULATORS_MAX
    )


def _rings(
    block: Block, shape: Shape, register_split: int, registers: int, element_bytes: int
) -> Iterator[Built]:
    if register_split and shape.math_warpgroups not in SPLIT_REGISTERS:
        return
    asked = SPLIT_REGISTERS[shape.math_warpgroups] if register_split else 0
    slot_bytes = (shape.tile_m + shape.tile_n) * shape.tile_k * element_bytes
    # Two pieces of the epilogue, of 16-bit elements, are on their way from each MATH warpgroup.
    staging = shape.math_warpgroups * 2 * 64 * shape.piece_n(2) * 2
    for stages in STAGES:
        smem_bytes = stages * slot_bytes + staging + stages * 2 * 8 + 16
        for dma_warps in (1, 2):
            threads = 128 * shape.math_warpgroups + (128 if register_split else 32 * dma_warps)
            held = -(-threads // 128) * 128 * registers
            if (
                stages - shape.mma_in_flight >= SLOTS_MIN
                and smem_bytes <= block.smem_bytes
                and 0 < held <= block.registers
                and asked <= threads * registers
                and threads <= block.threads
            ):
                yield Built(
                    shape, stages, dma_warps, register_split, smem_bytes, registers, threads
                )


def _slices(built: tuple[Built, ...]) -> Mapping[Shape, range]:
    slices: dict[Shape, range] = {}
    for at, each in enumerate(built):
        start = slices[each.shape].start if each.shape in slices else at
        slices[each.shape] = range(start, at + 1)
    return slices


def launches(question: Question, shape: Shape, sms: int) -> Iterator[tuple[int, int]]:
    """(split_k, raster_group) that are legal for the problem, in order."""
    # Half of a swizzled row of fp32 must be a whole block of 8 columns.
    step = 16 if question.out_dtype == "fp32" else step_n(question.kernel_layout)
    tiles_n_allowed = [n for n in TILES_N if n % step == 0]
    widest_m = -(-question.m // 64) * 64
    widest_n = next((n for n in tiles_n_allowed if n >= question.n), tiles_n_allowed[-1])
    if shape.tile_n % step or shape.tile_m > widest_m or shape.tile_n > widest_n:
        return
    tiles_m = -(-question.m // shape.tile_m)
    tiles_n = -(-question.n // shape.tile_n)
    ends = (tiles_m * shape.tile_m, tiles_n * shape.tile_n)
    if max(ends) > COORDINATES_END:
        return
    # No CTA of a cluster may lie wholly outside.
    if tiles_m % shape.cluster_m or tiles_n % shape.cluster_n or shape.cluster > sms:
        return
    tiles = tiles_m * tiles_n
    k_iterations = -(-question.k // shape.tile_k)
    for split_k in SPLITS:
        units = tiles * split_k
        if split_k > k_iterations or units > UNITS_MAX:
            continue
        # A split ends at the first value that gives every SM two units.
        if split_k > 1 and tiles * (split_k - 1) >= 2 * sms:
            continue
        for group in GROUPS:
            if group == 1 or (group <= tiles_m // shape.cluster_m and units > sms):
                yield split_k, group


def step_n(layout: str) -> int:
    """What tile_n is a multiple of: wgmma transposes B from rows of at least 32 bytes."""
    return 8 if layout[1] == "n" else 16
