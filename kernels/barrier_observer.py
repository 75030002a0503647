"""From the events of a PTX run to the steps of a barrier program.

Addresses are read against ``RingLayout`` and the CTA's units of work, which know the launch plan
alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernels.barrier_collect import Collector, Handler, by_value, outside, signed
from kernels.barrier_epilogue import Epilogue
from kernels.barrier_products import Products
from kernels.barrier_steps import BoxLoad, Exit, SetRegisters, WarpBarrier
from kernels.launch_plan import CachePolicy, LaunchPlan, TileLoad
from kernels.launch_units import work_of
from kernels.ptx_events import (
    LOAD_TILE,
    MULTICAST_TILE,
    POLICIES,
    TELLING,
    TRY_WAIT,
    Event,
)
from kernels.ptx_parser import PtxError
from kernels.ptx_registers import CTA_WINDOW, SHARED_BASE, WARP
from kernels.ring_layout import SWIZZLE_ROWS, RingLayout
from solver.ring.program import WARPGROUP_WARPS
from solver.ring.steps import (
    Arrive,
    ClusterArrive,
    ClusterWait,
    Fence,
    Init,
    LetNextLaunchBegin,
    Multiply,
    MultiplyWait,
    Op,
    Program,
    Sync,
    Wait,
    WaitForLaunchBefore,
)

# What a kernel has from the instruction that makes each policy.
_POLICIES = {
    policy: POLICIES[f"createpolicy.fractional.L2::{words}.b64"]
    for policy, words in (
        (CachePolicy.EVICT_FIRST, "evict_first"),
        (CachePolicy.EVICT_LAST, "evict_last"),
    )
}


class BarrierObserver:
    """Collects each warp's steps of CTA ``cta`` of a launch. ``arguments`` is the launch's argument
    block; ``last`` is what the split-K flag says after each unit in turn, over and over."""

    def __init__(
        self, plan: LaunchPlan, cta: int, *, last: Sequence[bool], alpha: float, beta: float
    ) -> None:
        self._plan = plan
        self._layout = RingLayout.of(plan)
        self._rank = cta % plan.cluster
        self._collector = Collector(plan.warps)
        self._initialised: set[str] = set()
        self._maps: tuple[int, ...] = ()
        self._products = Products(plan, self._layout, self._collector)
        self._epilogue = Epilogue(
            plan,
            self._layout,
            self._collector,
            work_of(plan, cta),
            last=last,
            alpha=alpha,
            beta=beta,
        )
        self.arguments = self._epilogue.arguments
        each = self._collector.each
        self._handlers: dict[str, Handler] = (
            {
                "mbarrier.init.shared::cta.b64": each(self._init),
                TRY_WAIT: each(self._wait),
                "mbarrier.arrive.shared::cta.b64": each(self._arrive),
                "mbarrier.arrive.expect_tx.shared::cta.b64": each(self._arrive_expect),
                "mbarrier.arrive.shared::cluster.b64": each(self._arrive_remote),
                "barrier.cluster.arrive.release": each(lambda event: ClusterArrive()),
                "barrier.cluster.wait.acquire": each(lambda event: ClusterWait()),
                "griddepcontrol.launch_dependents": each(lambda event: LetNextLaunchBegin()),
                "griddepcontrol.wait": each(lambda event: WaitForLaunchBefore()),
                LOAD_TILE: each(self._load),
                MULTICAST_TILE: each(self._load),
                LOAD_TILE + TELLING: each(self._telling_load),
                MULTICAST_TILE + TELLING: each(self._telling_load),
                "bar.sync": self._named_barrier,
                "bar.warp.sync": each(lambda event, mask: WarpBarrier()),
                "fence.mbarrier_init.release.cluster": each(_fence),
                "fence.proxy.async.shared::cta": each(_fence),
                "fence.acq_rel.gpu": each(_fence),
                "setmaxnreg.inc.sync.aligned.u32": each(lambda _, n: SetRegisters(n, True)),
                "setmaxnreg.dec.sync.aligned.u32": each(lambda _, n: SetRegisters(n, False)),
                "prefetch.tensormap": self._prefetch,
                "ret": self._exit,
            }
            | self._products.handlers
            | self._epilogue.handlers
        )

    def expect_maps(self, maps: tuple[int, ...]) -> None:
        """Set where the tensor maps of A, B and C are, before the run."""
        self._maps, self._epilogue.map_c = maps, maps[2]

    def __call__(self, event: Event) -> int | None:
        opcode = event.instruction.opcode
        if opcode.startswith("wgmma.mma_async"):
            self._products.issue(event)
            return None
        if opcode not in self._handlers:
            raise PtxError(f"{event.instruction}: is no step of this kernel")
        return self._handlers[opcode](event)

    def finish(self) -> list[Program]:
        """Each warp's steps after the run.

        Raises PtxError where the warps of a warpgroup disagree on what they must do together, or
        where loads do not make up whole tiles, or elements not the CTA's part of C.
        """
        self._epilogue.finish()
        together = (Multiply, MultiplyWait, SetRegisters)
        programs = self._collector.programs()
        agreed = [[s for s in steps if isinstance(s.op, together)] for steps in programs]
        for warp, steps in enumerate(agreed):
            if steps != agreed[warp // WARPGROUP_WARPS * WARPGROUP_WARPS]:
                raise PtxError(f"warp {warp} does not multiply in step with its warpgroup")
        for operand, load in (("a", self._plan.a), ("b", self._plan.b)):
            self._require_whole_tiles(operand, load, programs)
        return programs

    def _require_whole_tiles(self, operand: str, load: TileLoad, programs: list[Program]) -> None:
        """Each visit to a slot must bring every subtile of this CTA's part of a tile, once."""
        line = self._rank * load.box.box_rows if load.sharers > 1 else 0
        whole = {(subtile, line, load.sharers > 1) for subtile in range(load.copies)}
        by_slot: dict[int, list[tuple[int, int, bool]]] = {}
        for steps in programs:
            for step in steps:
                if isinstance(step.op, BoxLoad) and step.op.operand == operand:
                    part = (step.op.subtile, step.op.line, step.op.shared)
                    by_slot.setdefault(step.op.slot, []).extend([part] * step.count)
        for slot, parts in by_slot.items():
            visits = [parts[at : at + len(whole)] for at in range(0, len(parts), len(whole))]
            if any(set(visit) != whole for visit in visits):
                raise PtxError(f"loads of {operand} into slot {slot} do not make up its tile")

    # ---- barriers

    def _barrier(self, event: Event, address: int) -> str:
        name = self._layout.barrier(address - SHARED_BASE)
        if name is None:
            raise outside(event, address, "a barrier")
        return name

    def _init(self, event: Event, address: int, count: int) -> Op:
        barrier = self._barrier(event, address)
        if barrier in self._initialised:
            raise PtxError(f"{event.instruction}: {barrier} is initialised a second time")
        self._initialised.add(barrier)
        return Init(barrier, count)

    def _wait(self, event: Event, address: int, parity: int) -> Op:
        if parity not in (0, 1):
            raise PtxError(f"{event.instruction}: a parity of {parity}")
        return Wait(self._barrier(event, address), parity)

    def _arrive(self, event: Event, address: int) -> Op:
        return Arrive(self._barrier(event, address))

    def _arrive_expect(self, event: Event, address: int, tx_bytes: int) -> Op:
        return Arrive(self._barrier(event, address), tx_bytes)

    def _arrive_remote(self, event: Event, address: int) -> Op:
        window, within = divmod(address, CTA_WINDOW)
        rank = window - 1 if window else self._rank
        return Arrive(self._barrier(event, within), peer=rank != self._rank)

    def _named_barrier(self, event: Event) -> None:
        self._epilogue.require_whole_rows(event)
        self._collector.each(self._sync)(event)

    def _sync(self, event: Event, number: int, threads: int | None = None) -> Op:
        warps, odd = divmod(self._plan.threads if threads is None else threads, WARP)
        if odd:
            raise PtxError(f"{event.instruction}: {threads} threads are no whole number of warps")
        return Sync(number, warps)

    # ---- bulk copies

    def _load(
        self,
        event: Event,
        address: int,
        source: int,
        column: int,
        row: int,
        barrier: int,
        ctas: int | None = None,
        *,
        policy: int | None = None,
    ) -> Op:
        place = self._layout.place(address - SHARED_BASE)
        if place is None:
            raise outside(event, address, "a slot")
        slot, operand, within = place
        found = self._layout.tiles[operand].line(within)
        if found is None or found[1] % SWIZZLE_ROWS:
            raise outside(event, address, "the start of rows that the swizzle starts at")
        if source != self._maps["ab".index(operand)]:
            raise PtxError(f"{event.instruction}: fills operand {operand} from another's map")
        if ctas not in (None, (1 << self._plan.cluster) - 1):
            raise PtxError(f"{event.instruction}: goes to CTAs {ctas:#b}, not the cluster's")
        load = self._plan.a if operand == "a" else self._plan.b
        if policy != _POLICIES.get(load.policy):
            raise PtxError(
                f"{event.instruction}: operand {operand} does not have the launch's cache policy, "
                f"{load.policy.name}"
            )
        return BoxLoad(
            slot,
            self._barrier(event, barrier),
            load.box.box_rows * load.box.box_columns * self._plan.problem.element_bytes,
            ctas is not None,
            "a" if operand == "a" else "b",
            *found,
            signed(row),
            signed(column),
        )

    def _telling_load(self, event: Event, *values: int) -> Op:
        """A load whose last operand is its cache policy."""
        *load, policy = values
        return self._load(event, *load, policy=policy)

    def _prefetch(self, event: Event) -> None:
        for _, _, (address,) in by_value(event):
            if address not in self._maps:
                raise PtxError(f"{event.instruction}: {address:#x} is no tensor map")

    def _exit(self, event: Event) -> None:
        self._epilogue.require_whole_rows(event)
        for warp, lanes, _ in by_value(event):
            self._products.require_committed(event, warp)
            self._collector.add(warp, Exit(), lanes)


def _fence(event: Event) -> Op:
    return Fence(event.instruction.opcode.removeprefix("fence."))
