"""From the events of a PTX run to the steps of a barrier program.

Addresses are read against ``RingLayout``, which knows the launch plan alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kernels.barrier_steps import (
    MERGED,
    Arrive,
    ArriveExpect,
    BlockBarrier,
    CountTile,
    Exit,
    Fence,
    Init,
    Load,
    LoadFlag,
    LoadPartial,
    Multiply,
    Op,
    ReadStaged,
    SetRegisters,
    Stage,
    Step,
    Store,
    StoreCommit,
    StoreElements,
    StoreFlag,
    StorePartial,
    StoreWait,
    WarpBarrier,
)
from kernels.launch_plan import LaunchPlan
from kernels.ptx_machine import LOAD_TILE, STORE_TILE, Event
from kernels.ptx_parser import PtxError
from kernels.ptx_registers import SHARED_BASE, WARP
from kernels.ring_layout import (
    BLOCK_BYTES,
    DESCRIPTOR,
    DESCRIPTOR_ADDRESS,
    ROW_BYTES,
    STEP_BYTES,
    RingLayout,
)
from solver.families import sm90_gemm as family
from solver.ring.program import MultiplyWait, Wait

WARPGROUP_WARPS = family.WARPGROUP // WARP
# Where C, the workspace and the counters would be: far apart, so that a stray address shows.
C_BASE, WORKSPACE_BASE, COUNTERS_BASE = 1 << 52, 1 << 53, 1 << 54


@dataclass(slots=True)
class _Products:
    """A warp's wgmma since its last commit: (slot, block, step along k, adds) of each."""

    fenced: bool = False
    issued: list[tuple[int, int, int, bool]] = field(default_factory=list)


class BarrierObserver:
    """Collects each warp's steps. ``maps`` are the addresses of the three tensor maps, to be
    set before the run; ``last_split`` is what every load of the split-K flag finds."""

    def __init__(self, plan: LaunchPlan, last_split: bool) -> None:
        self.arguments = plan.arguments(C_BASE, WORKSPACE_BASE, COUNTERS_BASE).tobytes()
        self.maps: tuple[int, ...] = ()
        self.math_warps = plan.config.math_warpgroups * WARPGROUP_WARPS
        self._plan = plan
        self._layout = RingLayout.of(plan)
        self._last_split = last_split
        warps = plan.threads // WARP
        self._steps: list[list[Step]] = [[] for _ in range(warps)]
        self._products = [_Products() for _ in range(warps)]
        self._initialised: set[str] = set()
        self._handlers: dict[str, Callable[[Event], int | None]] = {
            "mbarrier.init.shared::cta.b64": self._each(self._init),
            "mbarrier.try_wait.parity.shared::cta.b64": self._each(self._wait),
            "mbarrier.arrive.shared::cta.b64": self._each(self._arrive),
            "mbarrier.arrive.expect_tx.shared::cta.b64": self._each(self._arrive_expect),
            LOAD_TILE: self._each(self._load),
            STORE_TILE: self._each(self._store),
            "bar.sync": self._each(self._block_barrier),
            "bar.warp.sync": self._each(lambda event, mask: WarpBarrier()),
            "fence.mbarrier_init.release.cluster": self._each(_fence),
            "fence.proxy.async.shared::cta": self._each(_fence),
            "fence.acq_rel.gpu": self._each(_fence),
            "cp.async.bulk.commit_group": self._each(lambda event: StoreCommit()),
            "cp.async.bulk.wait_group.read": self._each(lambda event, n: StoreWait(n)),
            "wgmma.fence.sync.aligned": self._wgmma_fence,
            "wgmma.commit_group.sync.aligned": self._commit,
            "wgmma.wait_group.sync.aligned": self._wait_group,
            "setmaxnreg.inc.sync.aligned.u32": self._each(lambda _, n: SetRegisters(n, True)),
            "setmaxnreg.dec.sync.aligned.u32": self._each(lambda _, n: SetRegisters(n, False)),
            "stmatrix.sync.aligned.m8n8.x2.shared.b16": self._stage,
            "stmatrix.sync.aligned.m8n8.x4.shared.b16": self._stage,
            "ld.shared.u16": self._read_staged,
            "ld.shared.u32": self._load_flag,
            "st.shared.u32": self._store_flag,
            "ld.global.cg.v4.f32": self._workspace,
            "st.global.cg.v4.f32": self._workspace,
            "st.global.u16": self._store_element,
            "atom.global.inc.u32": self._each(self._count_tile),
            "prefetch.tensormap": self._prefetch,
            "ret": self._exit,
        }

    def __call__(self, event: Event) -> int | None:
        opcode = event.instruction.opcode
        if opcode.startswith("wgmma.mma_async"):
            self._product(event)
            return None
        return self._handlers[opcode](event)

    def finish(self) -> list[tuple[Step, ...]]:
        """Each warp's steps after the run.

        Raises PtxError where the warps of a warpgroup disagree on what they must do together.
        """
        together = (Multiply, MultiplyWait, SetRegisters)
        agreed = [[s for s in steps if isinstance(s.op, together)] for steps in self._steps]
        for warp, steps in enumerate(agreed):
            if steps != agreed[warp // WARPGROUP_WARPS * WARPGROUP_WARPS]:
                raise PtxError(f"warp {warp} does not multiply in step with its warpgroup")
        return [tuple(steps) for steps in self._steps]

    # ---- collecting

    def _add(self, warp: int, op: Op, lanes: int) -> None:
        steps = self._steps[warp]
        if isinstance(op, MERGED):
            for at in range(len(steps) - 1, -1, -1):
                if not isinstance(steps[at].op, MERGED):
                    break
                if steps[at].op == op:
                    steps[at] = Step(op, steps[at].lanes | lanes)
                    return
        steps.append(Step(op, lanes))

    def _each(self, make: Callable[..., Op]) -> Callable[[Event], int | None]:
        """A handler that makes an op from each distinct set of operand values in a warp."""

        def handle(event: Event) -> None:
            for warp, lanes, values in _by_value(event):
                self._add(warp, make(event, *values), lanes)

        return handle

    def _all(self, event: Event, op: Op) -> None:
        for warp, lanes, _ in _by_value(Event(event.instruction, event.lanes, ())):
            self._add(warp, op, lanes)

    # ---- barriers

    def _barrier(self, event: Event, address: int) -> str:
        name = self._layout.barrier(address - SHARED_BASE)
        if name is None:
            raise _outside(event, address, "a barrier")
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
        return ArriveExpect(self._barrier(event, address), tx_bytes)

    def _block_barrier(self, event: Event, number: int, threads: int | None = None) -> Op:
        return BlockBarrier(number, self._plan.threads if threads is None else threads)

    # ---- bulk copies

    def _load(
        self, event: Event, address: int, source: int, column: int, row: int, barrier: int
    ) -> Op:
        place = self._layout.place(address - SHARED_BASE)
        if place is None:
            raise _outside(event, address, "a slot")
        slot, operand, subtile, within = place
        if within:
            raise _outside(event, address, "the start of a subtile")
        if source != self.maps["ab".index(operand)]:
            raise PtxError(f"{event.instruction}: fills operand {operand} from another's map")
        box = self._plan.a if operand == "a" else self._plan.b
        return Load(
            slot,
            "a" if operand == "a" else "b",
            self._barrier(event, barrier),
            box.box_rows * box.box_columns * self._plan.problem.element_bytes,
            subtile,
            _signed(row),
            _signed(column),
        )

    def _store(self, event: Event, target: int, column: int, row: int, address: int) -> Op:
        buffer = self._layout.staging_buffer(address - SHARED_BASE)
        if buffer is None or buffer[2]:
            raise _outside(event, address, "the start of a staging buffer")
        if target != self.maps[2] or self._plan.c is None:
            raise PtxError(f"{event.instruction}: stores to what is no tensor map of C")
        return Store(buffer[0], buffer[1], _signed(row), _signed(column))

    def _prefetch(self, event: Event) -> None:
        for _, _, (address,) in _by_value(event):
            if address not in self.maps:
                raise PtxError(f"{event.instruction}: {address:#x} is no tensor map")

    # ---- products

    def _wgmma_fence(self, event: Event) -> None:
        for warp, _, _ in _by_value(event):
            self._products[warp].fenced = True

    def _product(self, event: Event) -> None:
        config = self._plan.config
        kind = self._plan.problem.dtype.replace("fp", "f")
        if not event.instruction.opcode.endswith(f".m64n{config.tile_n}k16.f32.{kind}.{kind}"):
            raise PtxError(
                f"{event.instruction}: is no product of {config.tile_n} columns of {kind}"
            )
        blocks = config.tile_m // family.MMA_M // config.math_warpgroups
        for warp, _, (a, b, adds, *options) in _by_value(event):
            slot, block, step = self._operand(event, a, "a")
            slot_b, block_b, step_b = self._operand(event, b, "b")
            if options != [1, 1, 0, 0]:
                raise PtxError(f"{event.instruction}: negates or transposes an operand")
            if (slot, step) != (slot_b, step_b) or block_b:
                raise PtxError(
                    f"{event.instruction}: multiplies slot {slot} step {step} of a by slot "
                    f"{slot_b} step {step_b} block {block_b} of b"
                )
            if block // blocks != warp // WARPGROUP_WARPS:
                raise PtxError(f"{event.instruction}: warp {warp} reads block {block} of a")
            if not self._products[warp].fenced:
                raise PtxError(f"{event.instruction}: no wgmma.fence before the group")
            self._products[warp].issued.append((slot, block, step, bool(adds)))

    def _operand(self, event: Event, descriptor: int, operand: str) -> tuple[int, int, int]:
        """(slot, block of 64 rows, step along k) that a descriptor of an operand addresses."""
        address = (descriptor & DESCRIPTOR_ADDRESS) << 4
        if descriptor & ~DESCRIPTOR_ADDRESS != DESCRIPTOR:
            raise PtxError(f"{event.instruction}: descriptor {descriptor:#x} has another layout")
        place = self._layout.place(address - SHARED_BASE)
        if place is None or place[1] != operand:
            raise _outside(event, address, f"operand {operand} of a slot")
        slot, _, subtile, within = place
        block, along = divmod(within, BLOCK_BYTES)
        step, odd = divmod(along, STEP_BYTES)
        if odd or along >= ROW_BYTES:
            raise _outside(event, address, "the start of a row's step along k")
        return slot, block, subtile * (ROW_BYTES // STEP_BYTES) + step

    def _commit(self, event: Event) -> None:
        config = self._plan.config
        blocks = config.tile_m // family.MMA_M // config.math_warpgroups
        steps = self._layout.subtiles * (ROW_BYTES // STEP_BYTES)
        for warp, lanes, _ in _by_value(event):
            issued = self._products[warp].issued
            self._products[warp] = _Products()
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
            self._add(warp, Multiply(slots.pop(), not firsts.pop()), lanes)

    def _wait_group(self, event: Event) -> None:
        for warp, lanes, (pending,) in _by_value(event):
            self._require_committed(event, warp)
            self._add(warp, MultiplyWait(pending), lanes)

    def _exit(self, event: Event) -> None:
        for warp, lanes, _ in _by_value(event):
            self._require_committed(event, warp)
            self._add(warp, Exit(), lanes)

    def _require_committed(self, event: Event, warp: int) -> None:
        if self._products[warp].issued:
            raise PtxError(f"{event.instruction}: warp {warp} has products not committed")

    # ---- epilogue

    def _buffers(self, event: Event, size: int) -> Iterator[tuple[int, int, tuple[int, int]]]:
        """(warp, lanes, (warpgroup, buffer)) of accesses of ``size`` bytes to staging."""
        offsets = event.values[0].astype(np.int64) - SHARED_BASE
        start = self._layout.stages * self._layout.slot
        number, within = np.divmod(offsets - start, self._layout.staging)
        wrong = (number < 0) | (number >= self._layout.buffers) | (within % size != 0)
        _refuse(event, wrong, "a staging buffer")
        for warp, lanes, (found,) in _by_value(Event(event.instruction, event.lanes, (number,))):
            warpgroup, buffer = divmod(found, family.STAGING_BUFFERS)
            if warpgroup != warp // WARPGROUP_WARPS:
                raise PtxError(
                    f"{event.instruction}: warp {warp} in warpgroup {warpgroup}'s buffer"
                )
            yield warp, lanes, (warpgroup, buffer)

    def _stage(self, event: Event) -> None:
        lanes = event.lanes
        if ".x2." in event.instruction.opcode:  # only the first 16 lanes address a row
            lanes = lanes & (np.arange(len(lanes)) % WARP < 16)
        for warp, _, buffer in self._buffers(Event(event.instruction, lanes, event.values), 16):
            self._add(warp, Stage(*buffer), (1 << WARP) - 1)

    def _read_staged(self, event: Event) -> None:
        for warp, lanes, buffer in self._buffers(event, 2):
            self._add(warp, ReadStaged(*buffer), lanes)

    def _store_element(self, event: Event) -> None:
        problem, ldc = self._plan.problem, self._plan.ldc
        element, odd = np.divmod(event.values[0].astype(np.int64) - C_BASE, problem.element_bytes)
        row, column = np.divmod(element, ldc)
        inside = (row >= 0) & (row < problem.m) & (column < problem.n) & (odd == 0)
        _refuse(event, ~inside, "an element of C")
        self._all(event, StoreElements())

    def _workspace(self, event: Event) -> None:
        offset = event.values[0].astype(np.int64) - WORKSPACE_BASE
        inside = (offset >= 0) & (offset < self._plan.workspace_bytes) & (offset % 16 == 0)
        _refuse(event, ~inside, "the workspace")
        stores = event.instruction.opcode.startswith("st.")
        self._all(event, StorePartial() if stores else LoadPartial())

    def _count_tile(self, event: Event, address: int, last: int) -> Op:
        tile, odd = divmod(address - COUNTERS_BASE, 4)
        if odd or not 0 <= tile < self._plan.counter_bytes // 4:
            raise PtxError(f"{event.instruction}: {address:#x} is no tile's counter")
        return CountTile(tile, last)

    def _flag(self, event: Event) -> None:
        offset = event.values[0].astype(np.int64) - SHARED_BASE
        _refuse(event, offset != self._layout.flag, "the split-K flag")

    def _load_flag(self, event: Event) -> int:
        self._flag(event)
        self._all(event, LoadFlag(self._last_split))
        return int(self._last_split)

    def _store_flag(self, event: Event) -> None:
        self._flag(event)
        self._all(event, StoreFlag())


def _fence(event: Event) -> Op:
    return Fence(event.instruction.opcode.removeprefix("fence."))


def _by_value(event: Event) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """(warp, lanes, operand values) for each warp of an event and each set of values in it."""
    by_warp = event.lanes.reshape(-1, WARP)
    values = np.stack(event.values) if event.values else np.zeros((0, event.lanes.size), np.int64)
    for warp in np.flatnonzero(by_warp.any(axis=1)).tolist():
        lanes = np.flatnonzero(by_warp[warp])
        columns = values[:, warp * WARP + lanes]
        if (columns == columns[:, :1]).all():
            groups = {tuple(columns[:, 0].tolist()): _mask(lanes.tolist())}
        else:
            groups = {}
            for lane, value in zip(lanes.tolist(), map(tuple, columns.T.tolist()), strict=True):
                groups[value] = groups.get(value, 0) | 1 << lane
        for value, mask in groups.items():
            yield warp, mask, value


def _mask(lanes: list[int]) -> int:
    return sum(1 << lane for lane in lanes)


def _signed(value: int) -> int:
    """A 32-bit value as a signed number."""
    return value - (1 << 32) if value >> 31 else value


def _refuse(event: Event, wrong: npt.NDArray[np.bool_], what: str) -> None:
    if (wrong & event.lanes).any():
        thread = int(np.flatnonzero(wrong & event.lanes)[0])
        raise _outside(event, int(event.values[0][thread]), what)


def _outside(event: Event, address: int, what: str) -> PtxError:
    where = f"{address:#x}" if address >= 1 << 32 else f"shared memory + {address - SHARED_BASE}"
    return PtxError(f"{event.instruction}: {where} is not {what}")
