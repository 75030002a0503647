"""The kernels of the Hopper GEMM family: which there are and what a CTA of each takes.

The CUDA source is ``kernels/cuda/sm90_gemm.cuh``; ``sm90_gemm_operands`` says how operands come
to a kernel, ``sm90_gemm_registers`` what the compiler made of each, ``sm90_gemm_legality`` what
is legal, ``sm90_gemm_cost`` what it costs. What is stated here is arithmetic over
configuration fields, for a single configuration and for whole columns of them alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.config import Config
from solver.occupancy import BLOCK_SMEM_BYTES

NAME = "sm90_gemm"

WARP = 32
WARPGROUP = 128
MMA_M = 64  # rows of one wgmma
SWIZZLE_K = 64  # 16-bit elements of k in one 128-byte swizzled row
ACCUMULATORS_MAX = 208  # per thread; ptxas spills or refuses beyond, whatever the block
UNITS_MAX = 2**31 - 1  # units of work a launch counts
SM_SMEM_BYTES = 228 * 1024  # of compute capability 9.0
COORDINATES_END = 2**31  # where TMA's signed 32 bits end, along an axis
BOX_STEP = 8  # rows: the 128-byte swizzle's period
STAGED_BYTES = 2  # of an element that a staging buffer is sized for
STAGING_BUFFERS = 2  # pieces of C that a MATH warpgroup has on their way to memory
BARRIER_BYTES = 8
FLAG_BYTES = 16  # split-K: one word that tells the CTA whether it is the last
ROLE_REGISTERS = {2: (40, 232), 3: (40, 152)}  # math_warpgroups: (DMA, MATH) by setmaxnreg

TILE_SHAPES = (
    (64, 1),
    (128, 1),
    (192, 1),
    (128, 2),
    (256, 2),
    (192, 3),
)  # (tile_m, math_warpgroups)
TILE_N = (*range(8, 128, 8), *range(128, 257, 16))
PIECES_N = (8, 16, 24, 32, 40, 56, 64, 72, 88, 104)  # columns of a piece of 16-bit output
TILE_K = (64, 128)
STAGES = tuple(range(2, 13))
MMA_IN_FLIGHT = (0, 1)
DMA_WARPS = (1, 2)
REGISTER_SPLIT = (0, 1)
SPLIT_K = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32)
RASTER_GROUP = (1, 2, 4, 8, 16)
CLUSTERS = ((1, 1), (2, 1), (1, 2))  # (cluster_m, cluster_n)
TRANSPOSED_STEP_N = 16  # columns: wgmma transposes B from rows of at least 32 bytes
WIDE_STEP_N = 16  # columns: a piece of fp32, half a swizzled row, is a whole 8×8 block


@dataclass(frozen=True, slots=True, order=True)
class CompileKey:
    """What a kernel is compiled for; everything else is a launch argument."""

    dtype: str
    layout: str
    tile_m: int
    tile_n: int
    tile_k: int
    math_warpgroups: int
    register_split: int
    mma_in_flight: int

    @property
    def name(self) -> str:
        """A readable, unique name."""
        return f"{self.dtype}_{self.form}"

    @property
    def form(self) -> str:
        """The name without the operands' type, on which registers don't depend."""
        return (
            f"{self.layout}_{self.tile_m}x{self.tile_n}x{self.tile_k}"
            f"_w{self.math_warpgroups}_r{self.register_split}_f{self.mma_in_flight}"
        )

    @property
    def max_threads(self) -> int:
        """Threads the kernel is compiled for (``__launch_bounds__``)."""
        dma = WARPGROUP if self.register_split else 2 * WARP
        return WARPGROUP * self.math_warpgroups + dma


def compile_key(config: Config, dtype: str, layout: str) -> CompileKey:
    """The compile key of a configuration."""
    return CompileKey(
        dtype,
        layout,
        config.tile_m,
        config.tile_n,
        config.tile_k,
        config.math_warpgroups,
        config.register_split,
        config.mma_in_flight,
    )


def accumulators(tile_m: Any, tile_n: Any, math_warpgroups: Any) -> Any:
    """fp32 accumulators a MATH thread holds."""
    return tile_m // (MMA_M * math_warpgroups) * tile_n // 2


def usable_slots(columns: Mapping[str, Any]) -> Any:
    """Ring slots loads can run ahead through: a wgmma group in flight holds one."""
    return columns["stages"] - columns["mma_in_flight"]


def swizzle_n(tile_n: Any) -> Any:
    """Columns of the widest swizzled row, of 64, 32, 16 or 8, that divides tile_n: how wide rows of
    B are where it is contiguous in n."""
    return np.gcd(tile_n, 64)


def piece_n(tile_n: Any, out_bytes: int) -> Any:
    """Columns of a piece of C, elements of ``out_bytes``, on its way through a staging buffer.

    In 16 bits the most of PIECES_N that divide tile_n: rows that eight threads store to without
    meeting a bank twice, an odd number of 16 bytes or swizzled. In 32 bits half a swizzled row.
    """
    if out_bytes > STAGED_BYTES:
        return swizzle_n(tile_n) // 2
    columns = np.full(np.shape(tile_n), PIECES_N[0])
    for width in PIECES_N[1:]:
        columns = np.where(tile_n % width == 0, width, columns)
    return columns


def threads(columns: Mapping[str, Any]) -> Any:
    """Threads of a CTA: MATH warpgroups, then the DMA warps, padded where registers split."""
    dma = np.where(columns["register_split"], WARPGROUP, WARP * columns["dma_warps"])
    return WARPGROUP * columns["math_warpgroups"] + dma


def allocated_registers(block_threads: Any, registers: Any) -> Any:
    """Registers a block holds: ptxas counts whole warpgroups of threads."""
    return -(-block_threads // WARPGROUP) * WARPGROUP * registers


def stage_bytes(columns: Mapping[str, Any], element_bytes: int) -> Any:
    """Shared memory of one slot: an A tile and a B tile."""
    return (columns["tile_m"] + columns["tile_n"]) * columns["tile_k"] * element_bytes


def smem_bytes(columns: Mapping[str, Any], element_bytes: int) -> Any:
    """Dynamic shared memory of a CTA: ring, epilogue staging, barriers, split-K flag.

    Layout in this order; every part but the last two starts on 1,024 bytes.
    """
    staging = (
        columns["math_warpgroups"]
        * STAGING_BUFFERS
        * MMA_M
        * piece_n(columns["tile_n"], STAGED_BYTES)
        * STAGED_BYTES
    )
    ring = columns["stages"] * stage_bytes(columns, element_bytes)
    return ring + staging + 2 * BARRIER_BYTES * columns["stages"] + FLAG_BYTES


def holds_sm(smem_bytes: Any) -> Any:
    """Whether a CTA of so much dynamic shared memory leaves an SM no room for another such one; a
    launch of CTAs that may share SMs does not overlap with the launch before it."""
    return 2 * (smem_bytes + BLOCK_SMEM_BYTES) > SM_SMEM_BYTES
