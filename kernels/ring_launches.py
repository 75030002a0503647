"""The launches whose programs are read off a kernel's PTX: few, small, and each with much in it.

What a launch can differ in is met in pairs: any two of cluster, split-K, number of DMA warps, depth
of the ring, way to store, adding to C and type of C come together in one of them, as far as the
tile allows. Each walks more tiles than a CTA takes, so that the CTAs that are read, the first or
the last, have several units that don't follow one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kernels.launch_plan import LaunchPlan, plan_launch
from kernels.launch_units import pieces_of, work_of
from solver.config import Config
from solver.device import load_profile
from solver.families import sm90_gemm as family
from solver.problem import ELEMENT_BYTES, Problem
from solver.ring.epilogue import Unit

LONGEST = 5  # k-iterations of a unit, but where a ring is deeper: a turn of it and more


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch and its CTAs that are read: those of the cluster that starts at ``cta``.

    ``last`` says whether they find themselves the last at the tiles of their units, in turn, over
    and over; ``deepest``, that no block has room for a deeper ring, or the family has none.
    """

    plan: LaunchPlan
    beta: float = 0.0
    last: tuple[bool, ...] = (True,)
    cta: int = 0
    deepest: bool = False

    @property
    def ctas(self) -> range:
        """The CTAs that are read."""
        return range(self.cta, self.cta + self.plan.cluster)


def units_of(launch: Launch, cta: int) -> list[Unit]:
    """The units of work of a CTA, as the description has them."""
    plan, last = launch.plan, launch.last
    return [
        Unit(
            len(unit.iterations),
            tuple(
                len(pieces_of(plan, unit, warpgroup))
                for warpgroup in range(plan.config.math_warpgroups)
            ),
            plan.config.split_k == 1 or last[at % len(last)],
        )
        for at, unit in enumerate(work_of(plan, cta))
    ]


# Types of C: the operands' own, the other of 16 bits, the widest that the tile takes.
_OWN, _OTHER, _WIDEST = range(3)
# Depths of the ring, beyond the least; the most is what a block has room for.
_LEAST, _MORE, _MOST = 0, 1, max(family.STAGES)
_CLUSTERS = _ALONE, _DOWN, _ALONG = family.CLUSTERS


class _Walk(NamedTuple):
    """Tiles of the clusters, down and along, and how many clusters share them."""

    rows: int
    columns: int
    clusters: int
    raster_group: int = 1


_SQUARE = _Walk(2, 2, 2)
_RASTER = _Walk(3, 2, 3, raster_group=2)  # its last group is cut
# Two halves of three tiles, and five parts of two: a CTA's units are different parts.
_HALVES_DOWN, _HALVES_ALONG = _Walk(3, 1, 3), _Walk(1, 3, 3)
_FIFTHS_DOWN, _FIFTHS_ALONG = _Walk(2, 1, 4), _Walk(1, 2, 4)


class _Row(NamedTuple):
    """One launch; ``cut``: its last tiles lie partly outside C, whose rows have a gap after them
    where they are stored element by element."""

    walk: _Walk
    cluster: tuple[int, int]
    split_k: int
    dma_warps: int
    deeper: int
    out: int
    by_tma: bool
    beta: float
    cut: bool = True
    reads_last: bool = True


# The least rings come first: what a mismatch leads to is searched for where it is seen first.
_ROWS = (
    _Row(_SQUARE, _ALONE, 1, 1, _LEAST, _OWN, True, 0.0, cut=False),
    _Row(_HALVES_DOWN, _DOWN, 2, 1, _LEAST, _OTHER, True, 1.0),
    _Row(_HALVES_ALONG, _ALONG, 2, 2, _LEAST, _WIDEST, False, 0.0),
    _Row(_RASTER, _ALONG, 1, 2, _MORE, _OTHER, True, 0.0),
    _Row(_SQUARE, _DOWN, 1, 2, _MORE, _OWN, False, 0.0),
    _Row(_RASTER, _ALONE, 1, 2, _MOST, _OTHER, False, 1.0),
    _Row(_SQUARE, _DOWN, 1, 2, _MOST, _WIDEST, True, 0.0, reads_last=False),
    _Row(_FIFTHS_ALONG, _ALONE, 5, 1, _MORE, _WIDEST, True, 1.0),
    _Row(_FIFTHS_DOWN, _ALONG, 5, 1, _MOST, _OWN, False, 1.0, reads_last=False),
)


def small_launches(key: family.CompileKey) -> Iterator[Launch]:
    """The launches of a compile key; none where a block has no room for its least ring."""
    most = most_stages(key)
    if most >= 2 + key.mma_in_flight:
        yield from (_launch(key, row, most) for row in _ROWS)


def most_stages(key: family.CompileKey) -> int:
    """Slots of the deepest ring that a block has room for and the family has; 0 without any."""
    room = load_profile("h200").limit("smem_per_block_bytes")
    element = ELEMENT_BYTES[key.dtype]
    fits = (s for s in family.STAGES if _bytes(key, s, element) <= room)
    return max(fits, default=0)


def _bytes(key: family.CompileKey, stages: int, element_bytes: int) -> int:
    columns = {
        "tile_m": key.tile_m,
        "tile_n": key.tile_n,
        "tile_k": key.tile_k,
        "math_warpgroups": key.math_warpgroups,
        "stages": stages,
    }
    return int(family.smem_bytes(columns, element_bytes))


def _launch(key: family.CompileKey, row: _Row, most: int) -> Launch:
    # Clusters of two rows halve B's tile in whole steps of the swizzle; where it has none, two
    # columns do.
    halves = key.tile_n % (2 * family.BOX_STEP) == 0
    down, along = row.cluster if halves or row.cluster != _DOWN else _ALONG
    config = Config(
        family.NAME,
        key.tile_m,
        key.tile_n,
        key.tile_k,
        min(2 + key.mma_in_flight + row.deeper, most),
        mma_in_flight=key.mma_in_flight,
        dma_warps=row.dma_warps,
        math_warpgroups=key.math_warpgroups,
        register_split=key.register_split,
        split_k=row.split_k,
        raster_group=row.walk.raster_group,
        cluster_m=down,
        cluster_n=along,
    )
    plan = plan_launch(_problem(key, row, config), config, row.walk.clusters * down * along)
    first = plan.grid - plan.cluster if row.reads_last else 0
    last = (True,) if row.split_k == 1 else (not row.reads_last, row.reads_last)
    return Launch(plan, row.beta, last, first, config.stages == most)


def _problem(key: family.CompileKey, row: _Row, config: Config) -> Problem:
    other = next(dtype for dtype in ELEMENT_BYTES if dtype != key.dtype)
    widest = "fp32" if key.tile_n % family.WIDE_STEP_N == 0 else other
    m = row.walk.rows * config.cluster_m * key.tile_m
    n = row.walk.columns * config.cluster_n * key.tile_n
    k = _iterations(config) * key.tile_k
    ldc = None
    if row.cut:
        step = family.BOX_STEP
        m -= key.tile_m // 2 + 5
        # TMA stores rows of whole 16 bytes.
        n -= key.tile_n // (2 * step) * step if row.by_tma else key.tile_n // 2 + 3
        k -= step
        ldc = None if row.by_tma else n + 5
    out = (None, other, widest)[row.out]
    return Problem(m, n, k, key.dtype, key.layout, out, ldc=ldc)


def _iterations(config: Config) -> int:
    """k-iterations of a tile: each unit goes round the ring and further, or with split-K two of
    them do, whose splits are not all as long."""
    if config.split_k == 1:
        return max(LONGEST, config.stages + 1)
    each = max(LONGEST, config.stages + 1) // 2 + 1
    return config.split_k * each - config.split_k // 2
