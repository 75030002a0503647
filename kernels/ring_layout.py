"""Where the ring's parts lie in a CTA's shared memory, by the launch plan alone.

The kernel has its own account (``GemmMemory`` in ``kernels/cuda``); this one is what its
addresses are read against.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernels.launch_plan import LaunchPlan, TileLoad
from kernels.ptx_parser import PtxError
from solver.families import sm90_gemm as family

MMA_K = 16  # of one wgmma
SWIZZLES = {128: 1, 64: 2, 32: 3}  # row bytes to how a descriptor says it
SWIZZLE_ROWS = 8
SWIZZLE_PERIOD = 128  # bytes: what a step of the swizzle's pattern goes over
QUAD_BYTES = 16  # what a swizzle moves
DESCRIPTOR_ADDRESS = (1 << 14) - 1
WARP_ROWS = 16  # of a staging buffer that each warp of a warpgroup has accumulators for


@dataclass(frozen=True, slots=True)
class TileLayout:
    """An operand's tile in a slot: subtiles one after the other, ``lines`` rows each.

    A row is as wide as the swizzle and holds elements that are contiguous in the operand: along
    k where it is K-major, and each line is a row (column of B) of the tile; along m or n where
    it is not, and each line is one k.
    """

    k_major: bool
    subtiles: int
    lines: int
    row_bytes: int

    @property
    def subtile(self) -> int:
        """Bytes of a subtile."""
        return self.lines * self.row_bytes

    @property
    def bytes(self) -> int:
        """Bytes of the tile."""
        return self.subtiles * self.subtile

    @property
    def descriptor(self) -> int:
        """A wgmma descriptor without its address: swizzle, bytes between groups of eight rows, and
        between subtiles where a product reads several."""
        stride = SWIZZLE_ROWS * self.row_bytes >> 4
        leading = 1 if self.k_major else self.subtile >> 4
        return SWIZZLES[self.row_bytes] << 62 | stride << 32 | leading << 16

    def line(self, offset: int) -> tuple[int, int] | None:
        """(subtile, line) that start at an offset into the tile, if one does."""
        subtile, within = divmod(offset, self.subtile)
        line, odd = divmod(within, self.row_bytes)
        return None if odd else (subtile, line)

    def product(self, offset: int, element_bytes: int) -> tuple[int, int] | None:
        """(block of 64 rows, step of 16 along k) that a product reads which starts at an offset
        into the tile, if one does."""
        subtile, within = divmod(offset, self.subtile)
        if not self.k_major:
            step, odd = divmod(within, MMA_K * self.row_bytes)
            return None if odd else (subtile, step)
        block, along = divmod(within, family.MMA_M * self.row_bytes)
        step, odd = divmod(along, MMA_K * element_bytes)
        if odd or along >= self.row_bytes:
            return None
        return block, subtile * (self.row_bytes // (MMA_K * element_bytes)) + step


@dataclass(frozen=True, slots=True)
class RingLayout:
    """A CTA's shared memory in bytes from its start: slots, staging buffers, full and empty
    barriers, split-K flag. Operand b's tile follows operand a's in each slot."""

    stages: int
    tiles: dict[str, TileLayout]
    staging_row: int
    buffers: int

    @classmethod
    def of(cls, plan: LaunchPlan) -> RingLayout:
        """The layout of a launch. Raises PtxError where the plan's own account differs."""
        config, problem = plan.config, plan.problem
        layout = cls(
            stages=config.stages,
            tiles={
                "a": _tile(plan.a, problem.a_is_k_major, config.tile_m, config.tile_k),
                "b": _tile(plan.b, problem.b_is_k_major, config.tile_n, config.tile_k),
            },
            staging_row=int(family.chunk_n(config.tile_n)) * problem.element_bytes,
            buffers=config.math_warpgroups * family.STAGING_BUFFERS,
        )
        if layout.flag + family.FLAG_BYTES != plan.smem_bytes:
            raise PtxError(f"the layout ends at {layout.flag}, the plan has {plan.smem_bytes}")
        swizzle = layout.staging_row if layout.staging_row in SWIZZLES else QUAD_BYTES
        if plan.c is not None and plan.c.swizzle_bytes != swizzle:
            raise PtxError(f"C's box is swizzled over {plan.c.swizzle_bytes} bytes, not {swizzle}")
        return layout

    @property
    def slot(self) -> int:
        """Bytes of a slot."""
        return sum(tile.bytes for tile in self.tiles.values())

    @property
    def staging(self) -> int:
        """Bytes of a staging buffer."""
        return family.MMA_M * self.staging_row

    @property
    def barriers(self) -> int:
        """Where the barriers start."""
        return self.stages * self.slot + self.buffers * self.staging

    @property
    def flag(self) -> int:
        """Where the split-K flag is."""
        return self.barriers + 2 * family.BARRIER_BYTES * self.stages

    def barrier(self, offset: int) -> str | None:
        """The name of the barrier at an offset, if there is one."""
        number, odd = divmod(offset - self.barriers, family.BARRIER_BYTES)
        if odd or not 0 <= number < 2 * self.stages:
            return None
        side = "full" if number < self.stages else "empty"
        return f"{side}[{number % self.stages}]"

    def staged(
        self, offsets: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(row, byte of the row) whose place in a staging buffer an offset into it is.

        Rows as long as a swizzle have their 16-byte quads swizzled over their own width, as TMA
        has them; others lie as they are.
        """
        if self.staging_row in SWIZZLES:
            quads = self.staging_row // QUAD_BYTES
            offsets = offsets ^ offsets // SWIZZLE_PERIOD % quads * QUAD_BYTES
        row, byte = np.divmod(offsets, self.staging_row)
        return row, byte

    def place(self, offset: int) -> tuple[int, str, int] | None:
        """(slot, operand, bytes into its tile) of an offset, if it is in a slot."""
        slot, within = divmod(offset, self.slot)
        if not 0 <= slot < self.stages:
            return None
        tile_a = self.tiles["a"].bytes
        return (slot, "a", within) if within < tile_a else (slot, "b", within - tile_a)


def _tile(load: TileLoad, k_major: bool, across: int, along: int) -> TileLayout:
    width = load.box.box_columns
    row_bytes = load.box.swizzle_bytes
    if k_major:
        return TileLayout(True, along // width, across, row_bytes)
    return TileLayout(False, across // width, along, row_bytes)
