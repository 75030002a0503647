"""The published model's space and prices (Liu and Grover, arXiv 2506.11209)."""

from __future__ import annotations

from solver.recheck.question import Question
from solver.recheck.shipped import Profile
from solver.recheck.space import TICKS_PER_US, Kernel, Space, Work, largest_grid

TILES = (64, 128)
TILE_K = 64
STAGES_MAX = 8


def published_space(question: Question, profile: Profile) -> Space:
    """Every tile that fits, with as many stages as fit up to STAGES_MAX, one or two DMA warps.

    Each work has one kernel of its own.
    """
    works, kernels = [], []
    for tile_m in TILES:
        for tile_n in TILES:
            slot_bytes = (tile_m + tile_n) * TILE_K * question.element_bytes
            stages = min(STAGES_MAX, profile.limits["smem_per_block_bytes"] // slot_bytes)
            if stages < 1:
                continue
            for dma_warps in (1, 2):
                works.append(_work(question, profile, tile_m, tile_n, stages, dma_warps))
                kernels.append(
                    Kernel(
                        slots=stages,
                        setup=0,
                        smem_bytes=stages * slot_bytes,
                        registers=0,
                        threads=profile.wavefront * (1 + dma_warps),
                        config={},
                    )
                )
    slices = tuple(range(i, i + 1) for i in range(len(works)))
    return Space("paper", tuple(works), tuple(kernels), slices)


def _work(
    question: Question, profile: Profile, tile_m: int, tile_n: int, stages: int, dma_warps: int
) -> Work:
    constant = profile.models["paper"]
    row_bytes = TILE_K * question.element_bytes
    a_us = tile_m * row_bytes / constant["dma_bytes_per_us"]
    b_us = tile_n * row_bytes / constant["dma_bytes_per_us"]
    if "math_bytes_per_us" in constant:
        busy_us = (tile_m + tile_n) * row_bytes / constant["math_bytes_per_us"]
    else:
        busy_us = tile_m * tile_n * TILE_K / constant["math_macs_per_us"]
    math_us = (constant["math_startup_us"] + busy_us) * question.divergence
    tiles = -(-question.m // tile_m) * -(-question.n // tile_n)
    grid = largest_grid(tiles, profile.limits["sms"], question.bounds)
    return Work(
        load=round((max(a_us, b_us) if dma_warps == 2 else a_us + b_us) * TICKS_PER_US),
        jitter=0,
        latency=round(constant["dma_startup_us"] * TICKS_PER_US),
        math=round(math_us * TICKS_PER_US),
        early=0,
        epilogue=0,
        iterations=-(-question.k // TILE_K),
        units=1,
        waves=-(-tiles // grid),
        fixed=round(constant["init_us"] * TICKS_PER_US),
        store=0,
        active=grid,
        load_path=0,
        clock_mhz=0,
        config={
            "tile_m": tile_m,
            "tile_n": tile_n,
            "tile_k": TILE_K,
            "stages": stages,
            "mma_in_flight": 0,
            "dma_warps": dma_warps,
            "math_warpgroups": 1,
            "register_split": 0,
            "cluster_m": 1,
            "cluster_n": 1,
            "split_k": 1,
            "raster_group": 1,
        },
        power={},
    )
