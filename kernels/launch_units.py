"""The units of work of a launch's CTAs, and where each lies: its tile, its range of k, its pieces
of C.

Listed from the launch plan alone, where the kernel counts its way through them (``Schedule`` in
``kernels/cuda``): what a kernel reads and writes is held against this.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.launch_plan import LaunchPlan
from solver.families import sm90_gemm as family


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """An output tile, by its number and its first row and column, and the k-iterations of one of
    its splits. Tiles are numbered as they are walked, a cluster's one after the other."""

    tile: int
    split: int
    row: int
    column: int
    iterations: range


def work_of(plan: LaunchPlan, cta: int) -> list[WorkUnit]:
    """The units of a CTA. Its cluster's tiles are walked in groups of raster_group rows, column
    by column."""
    config, cluster = plan.config, plan.cluster
    rank_m, rank_n = cta % config.cluster_m, cta % config.cluster_n
    rows, columns = plan.tiles_m // config.cluster_m, plan.tiles_n // config.cluster_n
    tiles = [
        (row * config.cluster_m + rank_m, column * config.cluster_n + rank_n)
        for first in range(0, rows, config.raster_group)
        for column in range(columns)
        for row in range(first, min(first + config.raster_group, rows))
    ]
    iterations = -(-plan.problem.k // config.tile_k)
    starts = [split * iterations // config.split_k for split in range(config.split_k + 1)]
    units = [
        WorkUnit(
            number * cluster + cta % cluster,
            split,
            row * config.tile_m,
            column * config.tile_n,
            range(starts[split], starts[split + 1]),
        )
        for number, (row, column) in enumerate(tiles)
        for split in range(config.split_k)
    ]
    return units[cta // cluster :: plan.grid // cluster]


def pieces_of(plan: LaunchPlan, unit: WorkUnit, warpgroup: int) -> list[tuple[int, int]]:
    """First row and column of each piece of C that a warpgroup has in a unit's tile: 64 rows of a
    staging buffer's width, along each block of its rows; those outside C are none."""
    config, problem = plan.config, plan.problem
    rows = config.tile_m // config.math_warpgroups
    first = unit.row + warpgroup * rows
    return [
        (row, column)
        for row in range(first, min(first + rows, problem.m), family.MMA_M)
        for column in range(
            unit.column, min(unit.column + config.tile_n, problem.n), piece_columns(plan)
        )
    ]


def piece_columns(plan: LaunchPlan) -> int:
    """Columns of C that a row of a staging buffer holds."""
    problem = plan.problem
    width = int(family.chunk_n(plan.config.tile_n))
    return width * problem.element_bytes // problem.out_bytes
