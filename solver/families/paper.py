"""The published model: its own space, its own prices (arXiv 2506.11209).

Tiles of 64 and 128, tile_k 64, one MATH warp, one or two DMA warps, as many stages as fit up
to 8, waves of CTAs one after another. A profile needs no kernel family to answer in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.config import Config
from solver.device import DeviceProfile
from solver.errors import IllegalConfig, InvalidProblem
from solver.problem import Problem
from solver.recurrence import Ticks
from solver.table import Kernels, Table, Works, largest_grid
from solver.units import TICKS_PER_US

NAME = "paper"
TILES = (64, 128)
TILE_K = 64
DMA_WARPS = (1, 2)
STAGES_MAX = 8
MATH_WARPS = 1


def problem_limits(problem: Problem) -> None:
    """Raise InvalidProblem naming what the published model does not know: how operands lie in
    memory, and an output type of its own."""
    known = (
        ("layout", "tn"),
        ("out_dtype", problem.dtype),
        ("lda", problem.k),
        ("ldb", problem.k),
        ("ldc", problem.n),
        ("a_offset", 0),
        ("b_offset", 0),
        ("c_offset", 0),
    )
    for field, value in known:
        if getattr(problem, field) != value:
            raise InvalidProblem(
                field,
                f"must be {value} in model paper, which knows packed and aligned operands in tn "
                f"alone, all of one type; got {getattr(problem, field)}",
            )


def stages_that_fit(tile_m: int, tile_n: int, element_bytes: int, device: DeviceProfile) -> int:
    """Ring slots that fit in a block's shared memory, at most STAGES_MAX; 0 where none does."""
    slot = (tile_m + tile_n) * TILE_K * element_bytes
    return min(STAGES_MAX, device.limit("smem_per_block_bytes") // slot)


def tabulate(
    problem: Problem,
    device: DeviceProfile,
    *,
    stages: int | None = None,
    divergence: float = 1.0,
    grids: Ticks | None = None,
) -> Table:
    """The published space priced for one problem; each row is a work of its own.

    With two DMA warps A and B load side by side, b = max(b_A, b_B); with one, b_A + b_B.
    ``stages`` replaces "as many as fit"; ``divergence`` multiplies compute time; ``grids``
    are the counts of CTAs a wave may have, all without. Raises InvalidProblem as
    ``problem_limits`` does, and where no tile fits the device.
    """
    problem_limits(problem)
    k = {name: constant.value for name, constant in device.model(NAME).items()}
    grid = []
    for tile_m in TILES:
        for tile_n in TILES:
            fit = stages_that_fit(tile_m, tile_n, problem.element_bytes, device)
            depth = fit if stages is None else stages
            if 1 <= depth <= fit:
                grid += [(tile_m, tile_n, depth, dma) for dma in DMA_WARPS]
    if not grid:
        raise InvalidProblem("device", f"no tile of the published space fits {device.name}")
    tile_m, tile_n, depth, dma = np.array(grid, dtype=np.int64).T
    size = problem.element_bytes
    a_us = tile_m * TILE_K * size / k["dma_bytes_per_us"]
    b_us = tile_n * TILE_K * size / k["dma_bytes_per_us"]
    load_us = np.where(dma == 2, np.maximum(a_us, b_us), a_us + b_us)
    if "math_bytes_per_us" in k:
        work_us = (tile_m + tile_n) * TILE_K * size / k["math_bytes_per_us"]
    else:
        work_us = tile_m * tile_n * TILE_K / k["math_macs_per_us"]
    math_us = (k["math_startup_us"] + work_us) * divergence
    tiles = -(-problem.m // tile_m) * -(-problem.n // tile_n)
    active = largest_grid(tiles, device.limit("sms"), grids)
    rows = len(grid)
    none, one = np.zeros(rows, dtype=np.int64), np.ones(rows, dtype=np.int64)

    def ticks(time_us: Any) -> Ticks:
        count: Ticks = np.rint(np.broadcast_to(time_us, rows) * TICKS_PER_US).astype(np.int64)
        return count

    fixed = {
        "tile_m": tile_m,
        "tile_n": tile_n,
        "tile_k": TILE_K * one,
        "stages": depth,
        "mma_in_flight": none,
        "dma_warps": dma,
        "math_warpgroups": one,
        "register_split": none,
        "cluster_m": one,
        "cluster_n": one,
        "split_k": one,
        "raster_group": one,
    }
    return Table(
        family=NAME,
        works=Works(
            load=ticks(load_us),
            jitter=none,
            latency=ticks(k["dma_startup_us"]),
            math=ticks(math_us),
            early=none,
            epilogue=none,
            iterations=-(-problem.k // TILE_K) * one,
            units=one,
            waves=-(-tiles // active),
            fixed=ticks(k["init_us"]),
            store=none,
            active=active,
            load_path=none,
            clock_mhz=none,
            config=fixed,
        ),
        kernels=Kernels(
            slots=depth,
            setup=none,
            smem_bytes=depth * (tile_m + tile_n) * TILE_K * size,
            registers=none,
            threads=device.wavefront * (MATH_WARPS + dma),
            config={},
        ),
        first=np.arange(rows, dtype=np.int64),
        count=one,
        slots_max=depth,
        setup_min=none,
    )


def check(config: Config, problem: Problem, device: DeviceProfile) -> None:
    """Raise IllegalConfig with the first limit that ``config`` breaks in the published space."""
    allowed = {
        "family": (NAME,),
        "tile_m": TILES,
        "tile_n": TILES,
        "tile_k": (TILE_K,),
        "dma_warps": DMA_WARPS,
        "mma_in_flight": (0,),
        "math_warpgroups": (1,),
        "register_split": (0,),
        "cluster_m": (1,),
        "cluster_n": (1,),
        "split_k": (1,),
        "raster_group": (1,),
    }
    for name, values in allowed.items():
        if getattr(config, name) not in values:
            raise IllegalConfig(
                name, f"must be one of {', '.join(map(str, values))}; got {getattr(config, name)}"
            )
    fit = stages_that_fit(config.tile_m, config.tile_n, problem.element_bytes, device)
    if not 1 <= config.stages <= fit:
        raise IllegalConfig(
            "stages", f"must be between 1 and {fit}, what fits {device.name}; got {config.stages}"
        )
