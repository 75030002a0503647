"""Legality of the Hopper GEMM family: what a configuration needs and what bounds it.

The kernel is ``kernels/cuda/sm90_gemm.cuh``, its cost ``sm90_gemm_cost``. Every rule here
is arithmetic over configuration fields, so that one predicate serves a single
configuration and whole columns of them alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from solver.config import Config
from solver.device import DeviceProfile
from solver.errors import IllegalConfig
from solver.problem import VECTOR_BYTES, Matrix, Problem, is_k_major

NAME = "sm90_gemm"

WARP = 32
WARPGROUP = 128
MMA_M = 64  # rows of one wgmma
SWIZZLE_K = 64  # 16-bit elements of k in one 128-byte swizzled row
ACCUMULATORS_MAX = 208  # per thread; ptxas spills or refuses beyond, whatever the block
UNITS_MAX = 2**31 - 1  # units of work a launch counts
FIELD_MAX = 2**31 - 1  # of a configuration, far beyond every domain: products of two fit 64 bits
BOX_STEP = 8  # rows: the 128-byte swizzle's period
STAGING_BUFFERS = 2  # epilogue chunks a MATH warpgroup has on their way to memory
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
TILE_N = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)
TILE_K = (64, 128)
STAGES = tuple(range(2, 13))
MMA_IN_FLIGHT = (0, 1)
DMA_WARPS = (1, 2)
REGISTER_SPLIT = (0, 1)
SPLIT_K = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32)
SPLIT_WAVES = 2  # waves up to which splitting k can still even out the last one
RASTER_GROUP = (1, 2, 4, 8, 16)
CLUSTERS = ((1, 1), (2, 1), (1, 2))  # (cluster_m, cluster_n)
TRANSPOSED_STEP_N = 16  # columns: wgmma transposes B from rows of at least 32 bytes
WIDE_STEP_N = 16  # columns: half a staged chunk of fp32 is a whole 8×8 block


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


def candidate_keys(dtype: str, layout: str) -> tuple[CompileKey, ...]:
    """Every compile key of the family's domain, before the compiler has spoken."""
    return tuple(
        CompileKey(dtype, layout, tile_m, tile_n, tile_k, warpgroups, split, flight)
        for tile_m, warpgroups in TILE_SHAPES
        for tile_n in TILE_N
        for tile_k in TILE_K
        for split in REGISTER_SPLIT
        for flight in MMA_IN_FLIGHT
        if not (split and warpgroups not in ROLE_REGISTERS)
        and accumulators(tile_m, tile_n, warpgroups) <= ACCUMULATORS_MAX
        and (is_k_major(layout)[1] or tile_n % TRANSPOSED_STEP_N == 0)
    )


def accumulators(tile_m: Any, tile_n: Any, math_warpgroups: Any) -> Any:
    """fp32 accumulators a MATH thread holds."""
    return tile_m // (MMA_M * math_warpgroups) * tile_n // 2


def usable_slots(columns: Mapping[str, Any]) -> Any:
    """Ring slots loads can run ahead through: a wgmma group in flight holds one."""
    return columns["stages"] - columns["mma_in_flight"]


def requested_m(columns: Mapping[str, Any], problem: Problem) -> Any:
    """Rows of A that are asked for a tile: the tile's, cut to those that exist.

    Rounded up to BOX_STEP for each CTA of a cluster that shares the tile, or to the swizzle's
    width where A is contiguous along m.
    """
    step = BOX_STEP * columns["cluster_n"] if problem.a_is_k_major else SWIZZLE_K
    return np.minimum(columns["tile_m"], -(-problem.m // step) * step)


def requested_n(columns: Mapping[str, Any], problem: Problem) -> Any:
    """Columns of B that are asked for a tile, as ``requested_m``; the swizzle is a chunk wide."""
    step = BOX_STEP * columns["cluster_m"] if problem.b_is_k_major else chunk_n(columns["tile_n"])
    return np.minimum(columns["tile_n"], -(-problem.n // step) * step)


def stores_by_tma(problem: Problem) -> bool:
    """Whether TMA can store C: it writes whole pieces of 16 bytes, the last of a row too."""
    return problem.c.aligned and problem.n * problem.out_bytes % VECTOR_BYTES == 0


def copied_operands(problem: Problem) -> tuple[str, ...]:
    """Which of "a" and "b" TMA can't take, so that an aligned copy is made first."""
    return tuple(name for name, x in (("a", problem.a), ("b", problem.b)) if not x.aligned)


def _copied(problem: Problem) -> list[Matrix]:
    matrices = {"a": problem.a, "b": problem.b}
    return [matrices[name] for name in copied_operands(problem)]


def copied_bytes(problem: Problem) -> int:
    """Bytes of the elements of operands that are copied first: what the copies read."""
    return sum(x.lines * x.length * x.element_bytes for x in _copied(problem))


def copy_bytes(problem: Problem) -> int:
    """Bytes of the aligned copies that a launch makes first, padding included."""
    return sum(x.lines * copy_pitch(x.length) * x.element_bytes for x in _copied(problem))


def memory_bytes(problem: Problem) -> int:
    """Device memory that the operands and their aligned copies take."""
    return problem.storage_bytes + copy_bytes(problem)


def copy_pitch(length: int) -> int:
    """Pitch in elements of the aligned copy of an operand that TMA can't take: whole rows of 128
    bytes, or the least power of two that holds a shorter line and starts on 16 bytes."""
    step = min(SWIZZLE_K, max(BOX_STEP, 1 << (length - 1).bit_length()))
    return -(-length // step) * step


def chunk_n(tile_n: Any) -> Any:
    """Columns of one epilogue chunk: the widest of 64, 32, 16, 8 that divides tile_n."""
    return np.gcd(tile_n, 64)


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
        * chunk_n(columns["tile_n"])
        * element_bytes
    )
    ring = columns["stages"] * stage_bytes(columns, element_bytes)
    return ring + staging + 2 * BARRIER_BYTES * columns["stages"] + FLAG_BYTES


@dataclass(frozen=True, slots=True)
class RegisterTable:
    """Launch registers by form of compile key, as one compiler version reported them.

    bf16 and fp16 kernels of one form have the same: ``warpwright bench compile`` compiles
    every key of both and holds it against this.
    """

    nvrtc: str
    source_hash: str
    registers: Mapping[str, int]
    refused: Mapping[str, str]

    def of(self, key: CompileKey) -> int:
        """Launch registers of a key, 0 where the compiler refuses it."""
        return self.registers.get(key.form, 0)


@cache
def register_table() -> RegisterTable:
    """The table that ships: every form of the domain is in it, as legal or as refused."""
    text = resources.files("solver.families").joinpath("sm90_gemm_registers.json").read_text()
    raw = json.loads(text)
    return RegisterTable(raw["nvrtc"], raw["source_hash"], raw["registers"], raw["refused"])


@dataclass(frozen=True, slots=True)
class Limit:
    """One rule: the field it is about, whether it holds (element-wise), and its words.

    ``got`` is what it bounds, where that is not the field itself.
    """

    field: str
    holds: Any
    rule: str
    got: Any = None


def step_n(problem: Problem) -> int:
    """What tile_n must be a multiple of."""
    steps = [BOX_STEP]
    if not problem.b_is_k_major:
        steps.append(TRANSPOSED_STEP_N)
    if problem.out == "fp32":
        steps.append(WIDE_STEP_N)
    return max(steps)


def cluster_limits(columns: Mapping[str, Any]) -> tuple[Limit, ...]:
    """Which clusters there are, whatever the problem."""
    return (
        Limit(
            "cluster_m",
            np.logical_or.reduce(
                [(columns["cluster_m"] == m) & (columns["cluster_n"] == n) for m, n in CLUSTERS]
            ),
            "(cluster_m, cluster_n) must be one of "
            + ", ".join(f"({m}, {n})" for m, n in CLUSTERS),
        ),
        Limit(
            "cluster_m",
            (columns["cluster_m"] == 1) | (columns["tile_n"] % (BOX_STEP * 2) == 0),
            f"must be 1 unless tile_n is a multiple of {BOX_STEP * 2} (each CTA loads half of B)",
        ),
    )


def domain_limits(columns: Mapping[str, Any]) -> tuple[Limit, ...]:
    """What the family is built for: the values each variable may take, element-wise."""
    warpgroups = columns["math_warpgroups"]
    shapes = [m * WARPGROUP + w for m, w in TILE_SHAPES]
    allowed = {
        "tile_n": TILE_N,
        "tile_k": TILE_K,
        "stages": STAGES,
        "mma_in_flight": MMA_IN_FLIGHT,
        "dma_warps": DMA_WARPS,
        "register_split": REGISTER_SPLIT,
        "split_k": SPLIT_K,
        "raster_group": RASTER_GROUP,
    }
    tiles = sorted({m for m, _ in TILE_SHAPES})
    return (
        Limit(
            "tile_m",
            np.isin(columns["tile_m"], tiles),
            f"must be one of {', '.join(map(str, tiles))}",
        ),
        Limit(
            "math_warpgroups",
            np.isin(columns["tile_m"] * WARPGROUP + warpgroups, shapes)
            & (columns["tile_m"] > 0)
            & (warpgroups < WARPGROUP),
            "(tile_m, math_warpgroups) must be one of "
            + ", ".join(f"({m}, {w})" for m, w in TILE_SHAPES),
        ),
        *(
            Limit(
                name,
                np.isin(columns[name], values),
                f"must be one of {', '.join(map(str, values))}",
            )
            for name, values in allowed.items()
        ),
        *cluster_limits(columns),
        Limit(
            "tile_n",
            accumulators(columns["tile_m"], columns["tile_n"], np.maximum(warpgroups, 1))
            <= ACCUMULATORS_MAX,
            f"accumulators a thread, tile_m/(64 math_warpgroups)*tile_n/2, must be at most "
            f"{ACCUMULATORS_MAX}",
        ),
        Limit(
            "register_split",
            (columns["register_split"] == 0) | np.isin(warpgroups, list(ROLE_REGISTERS)),
            f"must be 0 unless math_warpgroups is one of {', '.join(map(str, ROLE_REGISTERS))}",
        ),
    )


@dataclass(frozen=True, slots=True)
class BlockLimits:
    """What a device lets one block have."""

    smem_bytes: int
    registers: int
    threads: int

    @classmethod
    def of(cls, device: DeviceProfile) -> BlockLimits:
        """The device's own."""
        return cls(
            smem_bytes=device.limit("smem_per_block_bytes"),
            registers=device.limit("registers_per_sm"),
            threads=device.limit("threads_per_block"),
        )


def kernel_limits(
    columns: Mapping[str, Any], element_bytes: int, block: BlockLimits, registers: Any
) -> tuple[Limit, ...]:
    """What holds or fails on a device whatever the problem, element-wise over columns.

    ``registers`` is the launch count per thread that the compiler reports, 0 where it
    refused the kernel.
    """
    warpgroups = columns["math_warpgroups"]
    block_threads = threads(columns)
    allocated = allocated_registers(block_threads, registers)
    is_split = [(columns["register_split"] == 1) & (warpgroups == w) for w in ROLE_REGISTERS]
    roles = np.select(
        is_split,
        [WARPGROUP * (dma + w * math) for w, (dma, math) in ROLE_REGISTERS.items()],
        0,
    )
    return (
        Limit(
            "stages",
            usable_slots(columns) >= 2,
            "must leave 2 usable slots (a wgmma group in flight holds one)",
        ),
        Limit(
            "stages",
            smem_bytes(columns, element_bytes) <= block.smem_bytes,
            f"shared memory must be at most {block.smem_bytes} bytes per block",
            smem_bytes(columns, element_bytes),
        ),
        Limit("tile_n", registers > 0, "the accumulators must fit: the compiler refuses this tile"),
        Limit(
            "math_warpgroups",
            allocated <= block.registers,
            f"threads x registers must be at most {block.registers} per SM",
            allocated,
        ),
        Limit(
            "register_split",
            roles <= block_threads * registers,
            "the roles may not ask for more registers than the launch has, or the kernel waits "
            "for ever",
        ),
        Limit(
            "math_warpgroups",
            block_threads <= block.threads,
            f"threads must be at most {block.threads} per block",
            block_threads,
        ),
    )


def launch_limits(columns: Mapping[str, Any], problem: Problem, sms: int) -> tuple[Limit, ...]:
    """The rules that tie a configuration to the problem, element-wise over columns.

    They keep one of several launches that would do the same work the same way, so that
    configurations are distinct: no tile beyond the problem, no empty split, no raster group
    that orders nothing.
    """
    tile_m, tile_n = columns["tile_m"], columns["tile_n"]
    split, group = columns["split_k"], columns["raster_group"]
    tiles_m = -(-problem.m // tile_m)
    tiles = tiles_m * -(-problem.n // tile_n)
    k_iterations = -(-problem.k // columns["tile_k"])
    widest_m = max(MMA_M, -(-problem.m // MMA_M) * MMA_M)
    step = step_n(problem)
    allowed_n = [n for n in TILE_N if n % step == 0]
    next_n = next((n for n in allowed_n if n >= problem.n), allowed_n[-1])
    cluster_m, cluster_n = columns["cluster_m"], columns["cluster_n"]
    clusters_m = tiles_m // cluster_m
    ctas = cluster_m * cluster_n
    return (
        Limit(
            "tile_n",
            tile_n % step == 0,
            f"must be a multiple of {step} for layout {problem.layout} and C in {problem.out}",
        ),
        Limit("tile_m", tile_m <= widest_m, f"must be at most {widest_m}, m rounded up to {MMA_M}"),
        Limit("tile_n", tile_n <= next_n, f"must be at most {next_n}, the first that covers n"),
        Limit("split_k", split <= k_iterations, "must be at most ceil(k / tile_k)"),
        Limit(
            "tile_n",
            tiles * split <= UNITS_MAX,
            f"units of work, tiles times split_k, must be at most {UNITS_MAX}",
        ),
        Limit(
            "split_k",
            (split == 1) | (tiles * (split - 1) < SPLIT_WAVES * sms),
            f"must be 1 or end at the first value that gives the device's {sms} SMs "
            f"{SPLIT_WAVES} waves",
        ),
        Limit(
            "raster_group",
            (group == 1) | ((group <= clusters_m) & (tiles * split > sms)),
            "must be 1 where one wave holds every tile, and at most ceil(m / tile_m) / cluster_m",
        ),
        Limit(
            "cluster_m",
            (tiles_m % cluster_m == 0) & (ctas <= sms),
            "must divide ceil(m / tile_m): no CTA of a cluster may lie wholly outside",
        ),
        Limit(
            "cluster_n",
            (-(-problem.n // tile_n) % cluster_n == 0) & (ctas <= sms),
            "must divide ceil(n / tile_n): no CTA of a cluster may lie wholly outside",
        ),
    )


def check(config: Config, problem: Problem, device: DeviceProfile) -> None:
    """Raise IllegalConfig with the first rule that ``config`` breaks for this problem."""
    if config.family != NAME:
        raise IllegalConfig("family", f"must be {NAME}, got {config.family!r}")
    key = compile_key(config, problem.dtype, problem.kernel_layout)
    registers = register_table().of(key)
    columns = config.to_dict()
    for name, value in columns.items():
        if name != "family" and abs(value) > FIELD_MAX:
            raise IllegalConfig(name, f"must be between 0 and {FIELD_MAX} (2^31 - 1), got {value}")
    refuse_broken(domain_limits(columns), columns)
    refuse_broken(launch_limits(columns, problem, device.limit("sms")), columns)
    refuse_broken(
        kernel_limits(columns, problem.element_bytes, BlockLimits.of(device), registers), columns
    )


def refuse_broken(limits: tuple[Limit, ...], columns: Mapping[str, Any]) -> None:
    """Raise IllegalConfig for the first limit that one configuration breaks."""
    for limit in limits:
        if not np.all(limit.holds):
            got = columns[limit.field] if limit.got is None else limit.got
            raise IllegalConfig(limit.field, f"{limit.rule}; got {got}")
