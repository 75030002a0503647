"""Configurations and problems that between them take every branch of the kernel."""

from __future__ import annotations

from solver.config import Config
from solver.families import sm90_gemm as family
from solver.problem import Problem

SMALL = Config(family.NAME, 64, 64, 64, 3)

SHAPES = [
    (1, 1, 8),
    (1, 8, 8),
    (8, 8, 64),
    (1, 4096, 1024),
    (17, 33, 136),
    (63, 65, 72),
    (64, 64, 64),
    (65, 130, 200),
    (129, 255, 1032),
    (300, 520, 4104),
    (257, 1000, 512),
]


def _config(tile_m: int, warpgroups: int, tile_n: int, **changes: int) -> Config:
    return Config(
        family.NAME,
        tile_m,
        tile_n,
        changes.pop("tile_k", 64),
        changes.pop("stages", 4),
        math_warpgroups=warpgroups,
        **changes,
    )


def _fits(config: Config) -> bool:
    key = family.compile_key(config, "bf16")
    columns = config.to_dict()
    return (
        key.name in family.register_table().registers
        and int(family.smem_bytes(columns, 2)) <= 232_448  # what a Hopper block may opt in to
    )


def _every_tile() -> list[Config]:
    """Each (tile_m, warpgroups), each width of tile_n that has a chunk width of its own, with
    and without a wgmma group in flight."""
    return [
        config
        for tile_m, warpgroups in family.TILE_SHAPES
        for tile_n in (8, 16, 24, 48, 64, 96, 112, 128, 192, 256)
        for flight in (0, 1)
        if _fits(config := _config(tile_m, warpgroups, tile_n, mma_in_flight=flight))
    ]


def _every_role() -> list[Config]:
    """Rings, DMA warps, register split, tile_k, rasterisation, on a few tiles."""
    tiles = [(64, 1, 64), (128, 1, 128), (128, 2, 128), (256, 2, 64), (192, 3, 96), (192, 3, 24)]
    changes: list[dict[str, int]] = [
        {"dma_warps": 2},
        {"dma_warps": 2, "mma_in_flight": 1, "stages": 3},
        {"stages": 2},
        {"stages": 12},
        {"stages": 7, "dma_warps": 2},
        {"tile_k": 128, "stages": 2},
        {"tile_k": 128, "stages": 3, "mma_in_flight": 1, "dma_warps": 2},
        {"register_split": 1},
        {"register_split": 1, "dma_warps": 2, "mma_in_flight": 1},
        {"raster_group": 4},
        {"raster_group": 8, "dma_warps": 2},
    ]
    return [
        config
        for tile_m, warpgroups, tile_n in tiles
        for change in changes
        if _fits(config := _config(tile_m, warpgroups, tile_n, **change))
    ]


def _splits() -> list[Config]:
    """Split-K over one, two and three warpgroups, even and odd shares of k."""
    tiles = [(64, 1, 8), (64, 1, 128), (128, 2, 96), (192, 3, 64), (128, 1, 64)]
    return [
        config
        for tile_m, warpgroups, tile_n in tiles
        for split in (2, 3, 7)
        for change in ({}, {"mma_in_flight": 1, "dma_warps": 2}, {"raster_group": 2})
        if _fits(config := _config(tile_m, warpgroups, tile_n, split_k=split, **change))
    ]


def cases(dtype: str = "bf16") -> list[tuple[Problem, Config]]:
    """Every configuration with shapes in turn, so that each branch meets odd and even ones.

    A split over more k-iterations than there are is no launch the kernel takes; it gets the
    next shape that has enough.
    """
    paired = []
    for index, config in enumerate((*_every_tile(), *_every_role(), *_splits())):
        for step in (0, 4):
            for place in range(len(SHAPES)):
                m, n, k = SHAPES[(index + step + place) % len(SHAPES)]
                if config.split_k <= -(-k // config.tile_k):
                    break
            paired.append((Problem(m, n, k, dtype), config))
    return paired
