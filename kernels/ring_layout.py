"""Where the ring's parts lie in a CTA's shared memory, by the launch plan alone.

The kernel has its own account (``GemmMemory`` in ``kernels/cuda``); this one is what its
addresses are read against.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.launch_plan import LaunchPlan
from kernels.ptx_parser import PtxError
from solver.families import sm90_gemm as family

ROW_BYTES = 128  # of the swizzle: one row of a subtile
STEP_BYTES = 32  # of k in one wgmma
BLOCK_BYTES = family.MMA_M * ROW_BYTES
# A descriptor without its address: 128-byte swizzle, 1,024 bytes between groups of 8 rows.
DESCRIPTOR = 1 << 62 | (8 * ROW_BYTES >> 4) << 32 | 1 << 16
DESCRIPTOR_ADDRESS = (1 << 14) - 1


@dataclass(frozen=True, slots=True)
class RingLayout:
    """A CTA's shared memory in bytes from its start: slots, staging buffers, full and empty
    barriers, split-K flag. Operand b's tile follows operand a's in each slot."""

    stages: int
    subtiles: int
    subtile_a: int
    subtile_b: int
    staging: int
    buffers: int

    @classmethod
    def of(cls, plan: LaunchPlan) -> RingLayout:
        """The layout of a launch. Raises PtxError where the plan's own account differs."""
        config = plan.config
        element = plan.problem.element_bytes
        layout = cls(
            stages=config.stages,
            subtiles=config.tile_k * element // ROW_BYTES,
            subtile_a=config.tile_m * ROW_BYTES,
            subtile_b=config.tile_n * ROW_BYTES,
            staging=family.MMA_M * int(family.chunk_n(config.tile_n)) * element,
            buffers=config.math_warpgroups * family.STAGING_BUFFERS,
        )
        if layout.flag + family.FLAG_BYTES != plan.smem_bytes:
            raise PtxError(f"the layout ends at {layout.flag}, the plan has {plan.smem_bytes}")
        return layout

    @property
    def tile_a(self) -> int:
        """Bytes of an A tile."""
        return self.subtiles * self.subtile_a

    @property
    def slot(self) -> int:
        """Bytes of a slot."""
        return self.tile_a + self.subtiles * self.subtile_b

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

    def place(self, offset: int) -> tuple[int, str, int, int] | None:
        """(slot, operand, subtile, bytes into the subtile) of an offset, if it is in a slot."""
        slot, within = divmod(offset, self.slot)
        if not 0 <= slot < self.stages:
            return None
        if within < self.tile_a:
            return slot, "a", *divmod(within, self.subtile_a)
        return slot, "b", *divmod(within - self.tile_a, self.subtile_b)

    def staging_buffer(self, offset: int) -> tuple[int, int, int] | None:
        """(warpgroup, buffer, bytes into the buffer) of an offset, if it is in one."""
        number, within = divmod(offset - self.stages * self.slot, self.staging)
        if not 0 <= number < self.buffers:
            return None
        return *divmod(number, family.STAGING_BUFFERS), within
