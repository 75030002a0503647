"""The matrix products of a PTX run: that each group reads its own rows of one slot, each once."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernels.barrier_collect import Collector, Handler, by_value, outside
from kernels.launch_plan import LaunchPlan
from kernels.ptx_events import Event
from kernels.ptx_parser import PtxError
from kernels.ptx_registers import SHARED_BASE
from kernels.ring_layout import DESCRIPTOR_ADDRESS, MMA_K, RingLayout
from solver.families import sm90_gemm as family
from solver.ring.program import WARPGROUP_WARPS
from solver.ring.steps import Multiply, MultiplyWait


@dataclass(slots=True)
class _Group:
    """A warp's wgmma since its last commit: (slot, block, step along k, adds) of each."""

    fenced: bool = False
    issued: list[tuple[int, int, int, bool]] = field(default_factory=list)


class Products:
    """Follows every warp's groups of products. ``handlers`` by opcode; ``issue`` for a product."""

    def __init__(self, plan: LaunchPlan, layout: RingLayout, collector: Collector) -> None:
        self._plan = plan
        self._layout = layout
        self._collector = collector
        self._groups = [_Group() for _ in range(plan.warps)]
        self.handlers: dict[str, Handler] = {
            "wgmma.fence.sync.aligned": self._fence,
            "wgmma.commit_group.sync.aligned": self._commit,
            "wgmma.wait_group.sync.aligned": self._wait,
        }

    def _fence(self, event: Event) -> None:
        for warp, _, _ in by_value(event):
            self._groups[warp].fenced = True

    def issue(self, event: Event) -> None:
        """Note a product. Raises PtxError for one that the launch does not have."""
        config = self._plan.config
        kind = self._plan.problem.dtype.replace("fp", "f")
        if not event.instruction.opcode.endswith(f".m64n{config.tile_n}k16.f32.{kind}.{kind}"):
            raise PtxError(
                f"{event.instruction}: is no product of {config.tile_n} columns of {kind}"
            )
        blocks = config.tile_m // family.MMA_M // config.math_warpgroups
        tiles = self._layout.tiles
        transposed = [int(not tiles[operand].k_major) for operand in "ab"]
        for warp, _, (a, b, adds, *options) in by_value(event):
            slot, block, step = self._operand(event, a, "a")
            slot_b, block_b, step_b = self._operand(event, b, "b")
            if options != [1, 1, *transposed]:
                raise PtxError(f"{event.instruction}: negates or transposes an operand wrongly")
            if (slot, step) != (slot_b, step_b) or block_b:
                raise PtxError(
                    f"{event.instruction}: multiplies slot {slot} step {step} of a by slot "
                    f"{slot_b} step {step_b} block {block_b} of b"
                )
            if block // blocks != warp // WARPGROUP_WARPS:
                raise PtxError(f"{event.instruction}: warp {warp} reads block {block} of a")
            if not self._groups[warp].fenced:
                raise PtxError(f"{event.instruction}: no wgmma.fence before the group")
            self._groups[warp].issued.append((slot, block, step, bool(adds)))

    def _operand(self, event: Event, descriptor: int, operand: str) -> tuple[int, int, int]:
        """(slot, block of 64 rows, step along k) that a descriptor of an operand addresses."""
        address = (descriptor & DESCRIPTOR_ADDRESS) << 4
        tile = self._layout.tiles[operand]
        if descriptor & ~DESCRIPTOR_ADDRESS != tile.descriptor:
            raise PtxError(f"{event.instruction}: descriptor {descriptor:#x} has another layout")
        place = self._layout.place(address - SHARED_BASE)
        if place is None or place[1] != operand:
            raise outside(event, address, f"operand {operand} of a slot")
        slot, _, within = place
        part = tile.product(within, self._plan.problem.element_bytes)
        if part is None:
            raise outside(event, address, "the start of a block's step along k")
        return slot, *part

    def _commit(self, event: Event) -> None:
        config = self._plan.config
        blocks = config.tile_m // family.MMA_M // config.math_warpgroups
        steps = config.tile_k // MMA_K
        for warp, lanes, _ in by_value(event):
            issued = self._groups[warp].issued
            self._groups[warp] = _Group()
            slots = {slot for slot, _, _, _ in issued}
            first = warp // WARPGROUP_WARPS * blocks
            whole = {(b, s) for b in range(first, first + blocks) for s in range(steps)}
            parts = [(block, step) for _, block, step, _ in issued]
            if len(slots) != 1 or len(parts) != len(whole) or set(parts) != whole:
                raise PtxError(
                    f"{event.instruction}: warp {warp} commits {len(parts)} products from slots "
                    f"{sorted(slots)}, not each block and step of one slot once"
                )
            adds: dict[int, list[bool]] = {}
            for _, block, _, add in issued:
                adds.setdefault(block, []).append(add)
            firsts = {of_block[0] for of_block in adds.values()}
            if len(firsts) != 1 or not all(all(of_block[1:]) for of_block in adds.values()):
                raise PtxError(f"{event.instruction}: drops a product within the group")
            self._collector.add(warp, Multiply(slots.pop(), not firsts.pop()), lanes)

    def _wait(self, event: Event) -> None:
        for warp, lanes, (pending,) in by_value(event):
            self.require_committed(event, warp)
            self._collector.add(warp, MultiplyWait(pending), lanes)

    def require_committed(self, event: Event, warp: int) -> None:
        """Raise PtxError where a warp has issued products since its last commit."""
        if self._groups[warp].issued:
            raise PtxError(f"{event.instruction}: warp {warp} has products not committed")
