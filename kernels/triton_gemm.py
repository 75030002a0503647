"""Triton's persistent TMA product, to compare with: the kernel and the ways to run it.

Importing this imports Triton. C = A·Bᵀ, A and B contiguous in k, C in rows, all in 16-byte steps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

GROUP = 8  # tile rows walked together, so that B's tiles are read again while the L2 has them


@dataclass(frozen=True, slots=True)
class TritonConfig:
    """One way to run the kernel.

    ``halves``: C's tile is stored in two halves, which leaves room for another stage.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    warps: int
    stages: int
    halves: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The configuration under its own field names."""
        return asdict(self)


CONFIGS = (
    TritonConfig(64, 32, 128, 4, 5),
    TritonConfig(64, 64, 128, 4, 4),
    TritonConfig(64, 64, 64, 4, 5),
    TritonConfig(64, 128, 128, 4, 4),
    TritonConfig(64, 128, 64, 4, 5),
    TritonConfig(64, 256, 64, 4, 4),
    TritonConfig(128, 64, 128, 4, 4),
    TritonConfig(128, 128, 64, 4, 4),
    TritonConfig(128, 128, 64, 8, 4),
    TritonConfig(128, 128, 128, 8, 3),
    TritonConfig(128, 256, 64, 8, 3),
    TritonConfig(128, 256, 64, 8, 4, halves=True),
    TritonConfig(256, 128, 64, 8, 3),
    TritonConfig(256, 128, 64, 8, 4, halves=True),
)
"""What is tried for each product: none of them spills or takes more shared memory than a Hopper
SM has (Triton 3.6's own compiler). Warp specialisation (``warp_specialize`` of the loop over tiles)
is left out: its first launch did not come to an end in a minute (Triton 3.6, H200)."""


@triton.jit(do_not_specialize=["m", "n", "k"])  # type: ignore[untyped-decorator]
def persistent_gemm(  # type: ignore[no-untyped-def]  # Triton reads its own types
    a_map,
    b_map,
    c_map,
    m,
    n,
    k,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    tile_k: tl.constexpr,
    group: tl.constexpr,
    halves: tl.constexpr,
):
    """Each CTA takes every grid-th tile of C, GROUP rows of tiles at a time, column by column."""
    gdc_wait()  # the launch before may still write what this one reads
    gdc_launch_dependents()
    rows, columns = tl.cdiv(m, tile_m), tl.cdiv(n, tile_n)
    steps = tl.cdiv(k, tile_k)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=True):
        first = tile // (group * columns) * group
        height = min(rows - first, group)
        within = tile - first * columns
        row = (first + within % height) * tile_m
        column = within // height * tile_n
        total = tl.zeros((tile_m, tile_n), dtype=tl.float32)
        for step in range(steps):
            a = a_map.load([row, step * tile_k])
            b = b_map.load([column, step * tile_k])
            total = tl.dot(a, b.T, total)
        if halves:
            pair = tl.permute(tl.reshape(total, (tile_m, 2, tile_n // 2)), (0, 2, 1))
            left, right = tl.split(pair)
            c_map.store([row, column], left.to(c_map.dtype))
            c_map.store([row, column + tile_n // 2], right.to(c_map.dtype))
        else:
            c_map.store([row, column], total.to(c_map.dtype))
