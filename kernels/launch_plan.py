"""What a launch of the Hopper GEMM needs, worked out without touching a GPU.

One place holds the launch ABI shared with ``kernels/cuda/sm90_gemm.cuh``: grid, threads,
cluster, TMA boxes, bytes per slot, workspace, copies of operands that TMA can't take, and the
argument block.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from solver.config import Config
from solver.device import DeviceProfile
from solver.errors import IllegalConfig
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.families.sm90_gemm_operands import copy_pitch, requested_m, requested_n, stores_by_tma
from solver.problem import VECTOR_BYTES, Matrix, Problem

ENTRY = "sm90_gemm"
SWIZZLE_BYTES = (16, 32, 64, 128)  # inner bytes of a box: none, 32, 64 or 128 byte swizzle
OUT_TYPES = {"bf16": 0, "fp16": 1, "fp32": 2}
"""OutType of the kernel."""

ARGUMENTS = np.dtype(
    [
        ("c", "<u8"),
        ("workspace", "<u8"),
        ("counters", "<u8"),
        ("progress", "<u8"),
        ("ldc", "<i8"),
        ("m", "<i4"),
        ("n", "<i4"),
        ("k", "<i4"),
        ("stages", "<i4"),
        ("dma_warps", "<i4"),
        ("split_k", "<i4"),
        ("raster_group", "<i4"),
        ("cluster_m", "<i4"),
        ("cluster_n", "<i4"),
        ("a_copies", "<i4"),
        ("b_copies", "<i4"),
        ("a_box_rows", "<i4"),
        ("b_box_rows", "<i4"),
        ("a_tx_bytes", "<i4"),
        ("b_tx_bytes", "<i4"),
        ("a_policy", "<i4"),
        ("b_policy", "<i4"),
        ("c_by_tma", "<i4"),
        ("out_type", "<i4"),
        ("alpha", "<f4"),
        ("beta", "<f4"),
        ("plain", "<i4"),
    ]
)
"""GemmArgs of the kernel: little-endian, naturally aligned, 128 bytes."""


class CachePolicy(Enum):
    """What the L2 is told of an operand's lines: CachePolicy of the kernel. Both or neither.

    Lines that one CTA or cluster reads, and no other, go first and leave room; an operand that all
    others read again meanwhile goes last.
    """

    NONE = 0
    EVICT_FIRST = 1
    EVICT_LAST = 2


@dataclass(frozen=True, slots=True)
class Box:
    """One TMA tensor map over ``rows`` lines of ``columns`` contiguous elements.

    ``row_bytes`` is the pitch of the lines; a copy moves ``box_rows`` × ``box_columns``
    elements of ``dtype``, swizzled over ``swizzle_bytes`` (16: not at all).
    """

    dtype: str
    rows: int
    columns: int
    row_bytes: int
    box_rows: int
    box_columns: int
    swizzle_bytes: int


@dataclass(frozen=True, slots=True)
class TileLoad:
    """How one CTA fills its part of an operand's tile in a slot.

    ``copies`` boxes; ``tx_bytes`` of the operand land in the slot in all, ``sharers`` CTAs of a
    cluster each loading their part for all of them. ``pitch`` is that of the matrix TMA reads:
    the operand's own, or, with ``copied``, that of an aligned copy made before the launch.
    ``policy`` is what the L2 is told of its lines.
    """

    box: Box
    copies: int
    sharers: int
    tx_bytes: int
    pitch: int
    copied: bool
    policy: CachePolicy

    @property
    def copy_bytes(self) -> int:
        """Bytes of the aligned copy; 0 where TMA takes the operand as it is."""
        return self.box.rows * self.box.row_bytes if self.copied else 0


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Everything about a launch but its addresses and scalars.

    ``c`` is None where the epilogue stores element by element. ``units`` counts output tiles
    times split_k; ``grid`` CTAs walk them, ``cluster`` neighbours in step.
    """

    problem: Problem
    config: Config
    grid: int
    cluster: int
    threads: int
    smem_bytes: int
    tiles_m: int
    tiles_n: int
    units: int
    a: TileLoad
    b: TileLoad
    c: Box | None
    workspace_bytes: int
    counter_bytes: int

    @property
    def c_by_tma(self) -> bool:
        """Whether output leaves by TMA."""
        return self.c is not None

    @property
    def overlaps(self) -> bool:
        """Whether the launch may begin while the one before it in the stream runs.

        Not where two of its CTAs fit an SM: while the other launch still holds SMs they are put
        there by twos, next to SMs with none, and the launch takes up to twice its time.
        """
        return bool(family.holds_sm(self.smem_bytes))

    @property
    def warps(self) -> int:
        """Warps of a CTA."""
        return self.threads // family.WARP

    def arguments(
        self,
        c: int,
        workspace: int,
        counters: int,
        *,
        alpha: float = 1.0,
        beta: float = 0.0,
        progress: int = 0,
    ) -> np.ndarray[Any, Any]:
        """The kernel's argument block for these device addresses, an array of one record.

        ``progress``: device address of the debug build's records, 16 bytes per warp of the
        grid; the shipped build does not look at it.
        """
        block = np.zeros(1, ARGUMENTS)
        values: dict[str, int | float | None] = {
            "c": c,
            "workspace": workspace,
            "counters": counters,
            "progress": progress,
            "ldc": self.problem.ldc,
            "m": self.problem.m,
            "n": self.problem.n,
            "k": self.problem.k,
            "stages": self.config.stages,
            "dma_warps": self.config.dma_warps,
            "split_k": self.config.split_k,
            "raster_group": self.config.raster_group,
            "cluster_m": self.config.cluster_m,
            "cluster_n": self.config.cluster_n,
            "a_copies": self.a.copies,
            "b_copies": self.b.copies,
            "a_box_rows": self.a.box.box_rows,
            "b_box_rows": self.b.box.box_rows,
            "a_tx_bytes": self.a.tx_bytes,
            "b_tx_bytes": self.b.tx_bytes,
            "a_policy": self.a.policy.value,
            "b_policy": self.b.policy.value,
            "c_by_tma": int(self.c_by_tma),
            "out_type": OUT_TYPES[self.problem.out],
            "alpha": alpha,
            "beta": beta,
            "plain": int(
                self.c_by_tma
                and self.problem.out == self.problem.dtype
                and alpha == 1.0
                and beta == 0.0
            ),
        }
        for name, value in values.items():
            block[name] = value
        return block


def plan_launch(problem: Problem, config: Config, sms: int | DeviceProfile) -> LaunchPlan:
    """The launch of ``config`` for ``problem`` on a device with ``sms`` SMs.

    ``sms`` is a count read from the device, or a profile whose limit is taken.

    Raises IllegalConfig for another family and for what no kernel can walk; what else is legal
    is for ``sm90_gemm_legality.check`` to say.
    """
    if config.family != family.NAME:
        raise IllegalConfig("family", f"must be {family.NAME}, got {config.family!r}")
    sms = sms.limit("sms") if isinstance(sms, DeviceProfile) else sms
    columns = config.to_dict()
    legality.refuse_broken(legality.grid_limits(columns, problem, sms), columns)
    cluster = config.cluster_m * config.cluster_n
    tiles_m = -(-problem.m // config.tile_m)
    tiles_n = -(-problem.n // config.tile_n)
    units = tiles_m * tiles_n * config.split_k
    split = config.split_k > 1
    once_a, once_b = tiles_n == config.cluster_n, tiles_m == config.cluster_m
    return LaunchPlan(
        problem=problem,
        config=config,
        grid=min(units, sms // cluster * cluster),
        cluster=cluster,
        threads=int(family.threads(columns)),
        smem_bytes=int(family.smem_bytes(columns, problem.element_bytes)),
        tiles_m=tiles_m,
        tiles_n=tiles_n,
        units=units,
        a=_tile_load(
            problem,
            problem.a,
            problem.a_is_k_major,
            int(requested_m(columns, problem)),
            config.tile_k,
            config.cluster_n,
            family.SWIZZLE_K,
            _policy(once_a, once_b),
        ),
        b=_tile_load(
            problem,
            problem.b,
            problem.b_is_k_major,
            int(requested_n(columns, problem)),
            config.tile_k,
            config.cluster_m,
            int(family.swizzle_n(config.tile_n)),
            _policy(once_b, once_a),
        ),
        c=_c_box(problem, config) if stores_by_tma(problem) else None,
        workspace_bytes=4 * units * config.tile_m * config.tile_n if split else 0,
        counter_bytes=4 * tiles_m * tiles_n if split else 0,
    )


def _policy(once: bool, other_once: bool) -> CachePolicy:
    """``once``: each of the operand's tiles is read once in the launch, ``other_once`` the
    other operand's."""
    if once:
        return CachePolicy.EVICT_FIRST
    return CachePolicy.EVICT_LAST if other_once else CachePolicy.NONE


def _row_bytes(pitch: int, element_bytes: int) -> int:
    """A pitch as TMA takes it; that of a single line counts for nothing and may be rounded."""
    return -(-pitch * element_bytes // VECTOR_BYTES) * VECTOR_BYTES


def _tile_load(
    problem: Problem,
    matrix: Matrix,
    k_major: bool,
    requested: int,
    tile_k: int,
    sharers: int,
    width: int,
    policy: CachePolicy,
) -> TileLoad:
    """``requested`` rows (columns of B) of a tile; ``width``: of a subtile not K-major."""
    element = problem.element_bytes
    copied = not matrix.aligned
    pitch = copy_pitch(matrix.length) if copied else matrix.pitch
    if k_major:
        lines, columns, copies = requested // sharers, family.SWIZZLE_K, tile_k // family.SWIZZLE_K
    else:
        lines, columns, copies = tile_k // sharers, width, requested // width
    box = Box(
        problem.dtype,
        matrix.lines,
        matrix.length,
        _row_bytes(pitch, element),
        lines,
        columns,
        columns * element,
    )
    return TileLoad(box, copies, sharers, requested * tile_k * element, pitch, copied, policy)


def _c_box(problem: Problem, config: Config) -> Box:
    """C's pieces, swizzled where their rows are as long as a swizzle."""
    matrix = problem.c
    columns = int(family.piece_n(config.tile_n, matrix.element_bytes))
    row_bytes = columns * matrix.element_bytes
    return Box(
        problem.out,
        matrix.lines,
        matrix.length,
        _row_bytes(matrix.pitch, matrix.element_bytes),
        family.MMA_M,
        columns,
        row_bytes if row_bytes in SWIZZLE_BYTES else SWIZZLE_BYTES[0],
    )
