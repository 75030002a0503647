"""Where the parts of a norm_activation block's shared memory lie, by the plan alone."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.norm.plan import NormPlan
from kernels.ptx_parser import PtxError
from solver.families import norm_activation_block as block
from solver.ring.teams import LINES

BARRIER_BYTES = 8
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class NormLayout:
    """In bytes from the start: ``slots`` of ``slot_bytes``; for each its full and its empty
    mbarrier, where there are any; for each team two lines of a float for each of its warps."""

    slots: int
    slot_bytes: int
    mbarriers: bool
    teams: int
    team: int

    @classmethod
    def of(cls, plan: NormPlan) -> NormLayout:
        """The layout of a launch. Raises PtxError where the plan's own account differs."""
        problem, config = plan.problem, plan.config
        layout = cls(
            slots=config.groups * config.depth if config.has_ring else 0,
            slot_bytes=block.chunking(problem, config).slot_bytes if config.has_ring else 0,
            mbarriers=config.has_ring and config.barrier == "mbarrier",
            teams=config.consumers // config.team if config.team > 1 else 0,
            team=config.team,
        )
        end = layout.scratch + layout.teams * LINES * layout.line
        if end != plan.smem_bytes:
            raise PtxError(f"the layout ends at {end}, the plan has {plan.smem_bytes}")
        return layout

    @property
    def line(self) -> int:
        """Bytes of a line of scratch."""
        return self.team * FLOAT_BYTES

    @property
    def barriers(self) -> int:
        """Where the mbarriers start."""
        return self.slots * self.slot_bytes

    @property
    def scratch(self) -> int:
        """Where the scratch starts."""
        return self.barriers + (2 * BARRIER_BYTES * self.slots if self.mbarriers else 0)

    def barrier(self, offset: int) -> str | None:
        """The name of the mbarrier at an offset, if there is one."""
        number, odd = divmod(offset - self.barriers, BARRIER_BYTES)
        if odd or not self.mbarriers or not 0 <= number < 2 * self.slots:
            return None
        return f"{('full', 'empty')[number % 2]}[{number // 2}]"

    def place(self, offset: int) -> tuple[int, int] | None:
        """(slot, bytes into it) of an offset, if it is in one."""
        if not 0 <= offset < self.barriers:
            return None
        return divmod(offset, self.slot_bytes)

    def part(self, offset: int) -> tuple[int, int, int] | None:
        """(team, line, warp of the team) of an offset, if it is in scratch."""
        number, odd = divmod(offset - self.scratch, FLOAT_BYTES)
        if odd or not 0 <= number < self.teams * LINES * self.team:
            return None
        line, warp = divmod(number, self.team)
        return *divmod(line, LINES), warp
