"""From the events of a norm_activation kernel's PTX run to the steps of a barrier program.

Addresses are read against ``NormLayout`` and the chunks of the launch's units, which know the plan
alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernels.barrier_collect import Collector, Handler, by_value, outside
from kernels.barrier_steps import SetRegisters, WarpBarrier
from kernels.norm.ring_chunks import QUAD, Chunks
from kernels.norm.ring_launches import NormLaunch, described
from kernels.norm.ring_layout import FLOAT_BYTES, NormLayout
from kernels.norm.ring_slots import X_BASE, Y_BASE, Slots
from kernels.ptx_events import (
    ACCESS,
    ARRIVE_LOADED,
    TRY_WAIT,
    Event,
)
from kernels.ptx_parser import PtxError
from kernels.ptx_registers import SHARED_BASE, VARIABLE_BASE, WARP
from solver.ring.steps import (
    Arrive,
    Fence,
    Init,
    Op,
    Program,
    StoreCommit,
    StoreWait,
    Sync,
    Wait,
)
from solver.ring.stream import Stream
from solver.ring.stream_steps import (
    OF_ITS_LANES,
    ArriveLoaded,
    ReadScratch,
    SyncArrive,
    WriteScratch,
)
from solver.ring.teams import LINES

SCALE_BASE, SHIFT_BASE = 1 << 53, 1 << 54
_Ints = npt.NDArray[np.int64]


class NormObserver:
    """Collects each warp's steps of a launch's block. ``arguments`` is its one parameter."""

    def __init__(self, launch: NormLaunch) -> None:
        plan = launch.plan
        self._plan = plan
        self._layout = NormLayout.of(plan)
        self._collector = Collector(plan.config.warps, OF_ITS_LANES)
        described_ = described(launch)
        self._ring = described_ if isinstance(described_, Stream) else None
        self._groups = plan.config.groups
        self._chunks = Chunks(launch, self._groups)
        self._slots = Slots(
            plan, self._layout, self._ring, self._chunks, self._collector, self._barrier
        )
        # How many parts of sums each thread has taken.
        self._parts = np.zeros(plan.threads, np.int64)
        self.arguments = plan.arguments(X_BASE, SCALE_BASE, SHIFT_BASE, Y_BASE).tobytes()
        each = self._collector.each
        self._handlers: dict[str, Handler] = {
            "mbarrier.init.shared::cta.b64": each(self._init),
            TRY_WAIT: self._wait,
            "mbarrier.arrive.shared.b64": each(self._arrive),
            "mbarrier.arrive.expect_tx.shared::cta.b64": each(self._expect),
            ARRIVE_LOADED: each(self._arrive_loaded),
            "fence.mbarrier_init.release.cluster": each(_fence),
            "fence.proxy.async.shared::cta": each(_fence),
            "bar.sync": self._sync,
            "bar.arrive": each(self._sync_arrive),
            "bar.warp.sync": each(lambda event, mask: WarpBarrier()),
            "cp.async.bulk.commit_group": each(lambda event: StoreCommit()),
            "cp.async.bulk.wait_group.read": each(lambda event, n: StoreWait(n)),
            "setmaxnreg.inc.sync.aligned.u32": each(lambda _, n: SetRegisters(n, True)),
            "setmaxnreg.dec.sync.aligned.u32": each(lambda _, n: SetRegisters(n, False)),
            "ret": lambda event: None,
        } | self._slots.handlers

    def __call__(self, event: Event) -> int | None:
        opcode = event.instruction.opcode
        if opcode in self._handlers:
            return self._handlers[opcode](event)
        if (shape := ACCESS.fullmatch(opcode)) is None:
            raise PtxError(f"{event.instruction}: is no step of this kernel")
        size = int(shape["count"] or 1) * int(shape["bits"]) // 8
        loads = shape["kind"] == "ld"
        if shape["space"] == "global":
            self._global(event, size, loads=loads)
        elif size == QUAD and self._slots.has(event):
            self._slots.access(event, loads=loads)
        else:
            self._scratch(event, size, loads=loads)
        return None

    @property
    def elsewhere(self) -> PtxError | None:
        """The first access whose bytes are not where they belong."""
        return self._slots.elsewhere

    def finish(self) -> list[Program]:
        """Each warp's steps after the run; what was left out is told in ``elsewhere``."""
        programs = self._collector.programs()
        with self._slots.noted():
            self._require_all(programs)
        return programs

    def _require_all(self, programs: list[Program]) -> None:
        if self._ring is not None:
            self._chunks.require_all(bulk_stores=self._ring.bulk_stores)
        else:
            self._chunks.require_rows()
        for thread, parts in enumerate(self._parts.tolist()):
            steps = programs[thread // WARP]
            sums = sum(isinstance(s.op, ReadScratch) and thread % WARP in s for s in steps)
            if parts != sums * self._plan.config.team:
                raise PtxError(f"thread {thread} takes {parts} parts of {sums} sums")
        if any(self._slots.held):
            raise PtxError("some of x is loaded and put into no slot")

    # ---- barriers

    def _barrier(self, event: Event, address: int) -> str:
        name = self._layout.barrier(address - SHARED_BASE)
        if name is None:
            raise outside(event, address, "a barrier")
        return name

    def _init(self, event: Event, address: int, count: int) -> Op:
        return Init(self._barrier(event, address), count)

    def _wait(self, event: Event) -> None:
        for warp, lanes, (address, parity) in by_value(event):
            if parity not in (0, 1):
                raise PtxError(f"{event.instruction}: a parity of {parity}")
            barrier = self._barrier(event, address)
            self._collector.add(warp, Wait(barrier, parity), lanes)
            side, _, slot = barrier[:-1].partition("[")
            if side == "full":
                self._slots.begin(event, warp, int(slot))
            else:
                self._slots.claimed[warp][int(slot)] += 1

    def _arrive(self, event: Event, address: int) -> Op:
        return Arrive(self._barrier(event, address))

    def _arrive_loaded(self, event: Event, address: int) -> Op:
        return ArriveLoaded(self._barrier(event, address))

    def _expect(self, event: Event, address: int, tx_bytes: int) -> Op:
        return Arrive(self._barrier(event, address), tx_bytes)

    def _warps(self, event: Event, threads: int | None) -> int:
        warps, odd = divmod(self._plan.threads if threads is None else threads, WARP)
        if odd:
            raise PtxError(f"{event.instruction}: {threads} threads are no whole number of warps")
        return warps

    def _sync(self, event: Event) -> None:
        for warp, lanes, (number, *threads) in by_value(event):
            warps = self._warps(event, threads[0] if threads else None)
            self._collector.add(warp, Sync(number, warps), lanes)
            if self._ring is None or not self._ring.named:
                continue
            for slot in range(self._ring.slots):
                if number == self._ring.full_id(slot):
                    self._slots.begin(event, warp, slot)
                elif number == self._ring.empty_id(slot):
                    self._slots.claimed[warp][slot] += 1

    def _sync_arrive(self, event: Event, number: int, threads: int) -> Op:
        return SyncArrive(number, self._warps(event, threads))

    # ---- scratch and memory

    def _scratch(self, event: Event, size: int, *, loads: bool) -> None:
        for warp, lanes, (address,) in by_value(event):
            part = self._layout.part(address - SHARED_BASE)
            if part is None:
                raise outside(event, address, "a slot or a team's scratch")
            team, line, place = part
            mine = divmod(self._slots.consumer(event, warp), self._layout.team)
            count = size // FLOAT_BYTES
            if team != mine[0] or place + count > self._layout.team or line >= LINES:
                raise outside(event, address, f"a line of team {mine[0]}")
            if not loads and (place, count) != (mine[1], 1):
                raise outside(event, address, f"the place of warp {mine[1]} of its team")
            self._collector.add(warp, (ReadScratch if loads else WriteScratch)(team, line), lanes)
            if loads:
                threads = [t for t in range(WARP) if lanes >> t & 1]
                self._parts[warp * WARP + np.array(threads)] += count

    def _global(self, event: Event, size: int, *, loads: bool) -> None:
        lanes, problem = event.lanes, self._plan.problem
        addresses = event.values[0].astype(np.int64)[lanes]
        if not loads:
            for warp, _, _ in by_value(Event(event.instruction, lanes, ())):
                mine = lanes & (np.arange(len(lanes)) // WARP == warp)
                starts = event.values[0].astype(np.int64)[mine] - Y_BASE
                if not ((starts >= 0) & (starts < problem.rows * problem.row_bytes)).all():
                    raise outside(event, int(starts[0]) + Y_BASE, "y")
                with self._slots.noted():
                    self._slots.store(event, warp, starts, size)
            return
        for base in (SCALE_BASE, SHIFT_BASE):
            inside = (addresses >= base) & (addresses + size <= base + problem.row_bytes)
            if inside.all():
                return
        if ((addresses >= VARIABLE_BASE) & (addresses < VARIABLE_BASE << 1)).all():
            return  # coefficients
        offsets = addresses - X_BASE
        if not ((offsets >= 0) & (offsets + size <= problem.rows * problem.row_bytes)).all():
            raise outside(event, int(addresses[0]), "x, scale, shift or a coefficient")
        if self._ring is not None:
            if self._plan.config.copies != "vector" or size != QUAD:
                raise PtxError(f"{event.instruction}: loads x past the ring")
            for thread, offset in zip(
                np.flatnonzero(lanes).tolist(), offsets.tolist(), strict=True
            ):
                self._slots.held[thread].append(offset)


def _fence(event: Event) -> Op:
    return Fence(event.instruction.opcode.removeprefix("fence."))
