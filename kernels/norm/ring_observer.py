"""From the events of a norm_activation kernel's PTX run to the steps of a barrier program.

Addresses are read against ``NormLayout`` and the chunks of the launch's units, which know the plan
alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kernels.barrier_collect import Collector, Handler, by_value, outside
from kernels.barrier_steps import SetRegisters, WarpBarrier
from kernels.norm.ring_chunks import QUAD, Chunks
from kernels.norm.ring_launches import NormLaunch, described
from kernels.norm.ring_layout import FLOAT_BYTES, NormLayout
from kernels.ptx_events import (
    ACCESS,
    ARRIVE_LOADED,
    LOAD_ASYNC,
    LOAD_BULK,
    STORE_BULK,
    TRY_WAIT,
    Event,
)
from kernels.ptx_parser import PtxError
from kernels.ptx_registers import SHARED_BASE, VARIABLE_BASE, WARP
from solver.ring.steps import (
    Arrive,
    Fence,
    Init,
    Load,
    Op,
    Program,
    StoreCommit,
    StoreWait,
    Sync,
    Wait,
)
from solver.ring.stream import LINES, Stream
from solver.ring.stream_steps import (
    OF_ITS_LANES,
    ArriveLoaded,
    CopyAsync,
    ReadScratch,
    ReadSlot,
    Rewrite,
    StoreSlot,
    SyncArrive,
    WriteScratch,
    WriteSlot,
)

# Where x, scale, shift and y would be: far apart, so that a stray address shows.
X_BASE, SCALE_BASE, SHIFT_BASE, Y_BASE = (1 << 52, 1 << 53, 1 << 54, 1 << 55)
_Ints = npt.NDArray[np.int64]


class NormObserver:
    """Collects each warp's steps of a launch's block. ``arguments`` is the launch's one parameter."""

    def __init__(self, launch: NormLaunch) -> None:
        plan = launch.plan
        self._plan = plan
        self._layout = NormLayout.of(plan)
        self._collector = Collector(plan.config.warps, OF_ITS_LANES)
        described_ = described(launch)
        self._ring = described_ if isinstance(described_, Stream) else None
        self._groups = plan.config.groups
        self._chunks = Chunks(launch, self._groups)
        self._of_warp = [self._fills_of(warp) for warp in range(plan.config.warps)]
        # How many chunks each warp has filled and waited for, the latest of each slot, and for each
        # thread of a producer the bytes of x that it holds and how often it has taken some of a sum.
        self._filled = [0] * plan.config.warps
        self._begun = [0] * plan.config.warps
        self._latest: list[dict[int, int]] = [{} for _ in range(plan.config.warps)]
        self._held: list[list[int]] = [[] for _ in range(plan.threads)]
        self._parts = np.zeros(plan.threads, np.int64)
        self.arguments = plan.arguments(X_BASE, SCALE_BASE, SHIFT_BASE, Y_BASE).tobytes()
        each = self._collector.each
        self._handlers: dict[str, Handler] = {
            "mbarrier.init.shared::cta.b64": each(self._init),
            TRY_WAIT: self._wait,
            "mbarrier.arrive.shared.b64": self._arrive,
            "mbarrier.arrive.expect_tx.shared::cta.b64": each(self._expect),
            ARRIVE_LOADED: self._arrive_loaded,
            "fence.mbarrier_init.release.cluster": each(_fence),
            "fence.proxy.async.shared::cta": each(_fence),
            "bar.sync": self._sync,
            "bar.arrive": self._sync_arrive,
            "bar.warp.sync": each(lambda event, mask: WarpBarrier()),
            LOAD_BULK: self._load,
            LOAD_ASYNC: self._load_async,
            STORE_BULK: self._store,
            "cp.async.bulk.commit_group": each(lambda event: StoreCommit()),
            "cp.async.bulk.wait_group.read": each(lambda event, n: StoreWait(n)),
            "setmaxnreg.inc.sync.aligned.u32": each(lambda _, n: SetRegisters(n, True)),
            "setmaxnreg.dec.sync.aligned.u32": each(lambda _, n: SetRegisters(n, False)),
            "ret": lambda event: None,
        }

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
        elif size == QUAD and self._is_slot(event):
            self._slot(event, loads=loads)
        else:
            self._scratch(event, size, loads=loads)
        return None

    def finish(self) -> list[Program]:
        """Each warp's steps after the run. Raises PtxError where some bytes were left out."""
        if self._ring is not None:
            self._chunks.require_all(bulk_stores=self._ring.bulk_stores)
        else:
            self._chunks.require_rows()
        programs = self._collector.programs()
        for thread, parts in enumerate(self._parts.tolist()):
            steps = programs[thread // WARP]
            sums = sum(isinstance(s.op, ReadScratch) and thread % WARP in s for s in steps)
            if parts != sums * self._plan.config.team:
                raise PtxError(f"thread {thread} takes {parts} parts of {sums} sums")
        if any(self._held):
            raise PtxError("some of x is loaded and put into no slot")
        return programs

    # ---- who fills and reads what

    def _fills_of(self, warp: int) -> list[tuple[int, int]]:
        """(group, chunk) of all that a warp helps to fill, in order."""
        ring, own = self._ring, self._chunks.of_group
        if ring is None:
            return []
        consumer = warp - ring.producers
        if consumer >= 0 and not ring.producers:
            group, number = divmod(consumer, ring.group_warps)
            return [(group, k) for k in range(len(own[group]) if number < ring.loaders else 0)]
        if not 0 <= warp < ring.loaders or consumer >= 0:
            return []
        most = max(map(len, own))
        return [(g, k) for k in range(most) for g in range(len(own)) if k < len(own[g])]

    def _next_fill(self, event: Event, warp: int) -> tuple[int, int]:
        done, all_ = self._filled[warp], self._of_warp[warp]
        if done == len(all_):
            raise PtxError(f"{event.instruction}: warp {warp} has nothing more to fill")
        return all_[done]

    def _consumer(self, event: Event, warp: int) -> int:
        consumer = warp - self._plan.config.producers
        if consumer < 0:
            raise PtxError(f"{event.instruction}: warp {warp} is no consumer")
        return consumer

    def _begin(self, event: Event, warp: int, slot: int) -> None:
        """A consumer has waited for a slot: its next chunk is there."""
        assert self._ring is not None
        group = self._consumer(event, warp) // self._ring.group_warps
        chunk = self._begun[warp]
        if chunk < len(self._chunks.of_group[group]) and slot == self._ring.slot(group, chunk):
            self._latest[warp][slot] = chunk
        self._begun[warp] += 1

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
            if barrier.startswith("full["):
                self._begin(event, warp, int(barrier[5:-1]))

    def _arrive(self, event: Event) -> None:
        for warp, lanes, (address,) in by_value(event):
            barrier = self._barrier(event, address)
            self._collector.add(warp, Arrive(barrier), lanes)
            self._filled[warp] += barrier.startswith("full[")

    def _arrive_loaded(self, event: Event) -> None:
        for warp, lanes, (address,) in by_value(event):
            self._collector.add(warp, ArriveLoaded(self._barrier(event, address)), lanes)
            self._filled[warp] += 1

    def _expect(self, event: Event, address: int, tx_bytes: int) -> Op:
        return Arrive(self._barrier(event, address), tx_bytes)

    def _warps(self, event: Event, threads: int | None) -> int:
        warps, odd = divmod(self._plan.threads if threads is None else threads, WARP)
        if odd:
            raise PtxError(f"{event.instruction}: {threads} threads are no whole number of warps")
        return warps

    def _sync(self, event: Event) -> None:
        for warp, lanes, (number, *threads) in by_value(event):
            warps = self._warps(event, *threads or [None])
            self._collector.add(warp, Sync(number, warps), lanes)
            if (slot := self._named("full", number)) is not None:
                self._begin(event, warp, slot)

    def _sync_arrive(self, event: Event) -> None:
        for warp, lanes, (number, threads) in by_value(event):
            warps = self._warps(event, threads)
            self._collector.add(warp, SyncArrive(number, warps), lanes)
            self._filled[warp] += self._named("full", number) is not None

    def _named(self, side: str, number: int) -> int | None:
        """The slot whose full or empty barrier is the named one of this number."""
        ring = self._ring
        if ring is None or not ring.named:
            return None
        of = ring.full_id if side == "full" else ring.empty_id
        return next((slot for slot in range(ring.slots) if of(slot) == number), None)

    # ---- slots

    def _in_slots(self, event: Event) -> Iterator[tuple[int, int, int, _Ints, _Ints]]:
        """(warp, lanes, slot, offsets into it, threads) of an access to slots, by warp."""
        offsets = event.values[0].astype(np.int64) - SHARED_BASE
        for warp, lanes, _ in by_value(Event(event.instruction, event.lanes, ())):
            threads = np.flatnonzero(event.lanes[warp * WARP : (warp + 1) * WARP]) + warp * WARP
            place = self._layout.place(int(offsets[threads[0]]))
            if place is None:
                raise outside(event, int(event.values[0][threads[0]]), "a slot")
            start = place[0] * self._layout.slot_bytes
            yield warp, lanes, place[0], offsets[threads] - start, threads

    def _is_slot(self, event: Event) -> bool:
        first = int(event.values[0][event.lanes][0])
        return self._layout.place(first - SHARED_BASE) is not None

    def _load(self, event: Event) -> None:
        for warp, lanes, (to, source, size, barrier) in by_value(event):
            group, chunk = self._next_fill(event, warp)
            assert self._ring is not None
            slot = self._ring.slot(group, chunk)
            if to - SHARED_BASE != slot * self._layout.slot_bytes:
                raise outside(event, to, f"the start of slot {slot}, where the chunk goes")
            if size != len(self._chunks.of_group[group][chunk]):
                raise PtxError(f"{event.instruction}: brings {size} bytes of a chunk of another size")
            at = np.arange(0, size, QUAD)
            self._chunks.fill(group, chunk, at, source - X_BASE + at, str(event.instruction))
            self._collector.add(warp, Load(slot, self._barrier(event, barrier), size), lanes)
            self._filled[warp] += 1

    def _fill(self, event: Event, warp: int, slot: int, offsets: _Ints, sources: _Ints) -> None:
        group, chunk = self._next_fill(event, warp)
        assert self._ring is not None
        if slot != self._ring.slot(group, chunk):
            raise PtxError(f"{event.instruction}: fills slot {slot} with another's chunk")
        self._chunks.fill(group, chunk, offsets, sources, str(event.instruction))

    def _load_async(self, event: Event) -> None:
        for warp, lanes, slot, offsets, threads in self._in_slots(event):
            if (event.values[2][threads] != QUAD).any():
                raise PtxError(f"{event.instruction}: copies other than {QUAD} bytes")
            sources = event.values[1][threads].astype(np.int64) - X_BASE
            self._fill(event, warp, slot, offsets, sources)
            self._collector.add(warp, CopyAsync(slot), lanes)

    def _slot(self, event: Event, *, loads: bool) -> None:
        what = str(event.instruction)
        for warp, lanes, slot, offsets, threads in self._in_slots(event):
            if warp < self._plan.config.producers:
                if loads or not all(self._held[thread] for thread in threads):
                    raise PtxError(f"{what}: a producer has nothing to put into slot {slot}")
                sources = np.array([self._held[thread].pop(0) for thread in threads])
                self._fill(event, warp, slot, offsets, sources)
                self._collector.add(warp, WriteSlot(slot), lanes)
                continue
            group, chunk = self._current(event, warp, slot)
            does = self._chunks.read_at if loads else self._chunks.put_at
            does(group, chunk, offsets, threads, what)
            self._collector.add(warp, ReadSlot(slot) if loads else Rewrite(slot), lanes)

    def _current(self, event: Event, warp: int, slot: int) -> tuple[int, int]:
        """The chunk that a consumer has waited for in a slot."""
        assert self._ring is not None
        group = self._consumer(event, warp) // self._ring.group_warps
        if slot not in self._latest[warp]:
            raise PtxError(f"{event.instruction}: warp {warp} has not waited for slot {slot}")
        return group, self._latest[warp][slot]

    def _store(self, event: Event) -> None:
        for warp, lanes, (to, source, size) in by_value(event):
            place = self._layout.place(source - SHARED_BASE)
            if place is None:
                raise outside(event, source, "a slot")
            slot, within = place
            group, chunk = self._current(event, warp, slot)
            start = self._chunks.of_group[group][chunk].start + within
            if to - Y_BASE != start:
                raise PtxError(f"{event.instruction}: byte {start} of x goes to {to - Y_BASE} of y")
            self._to_y(event, warp, np.arange(start, start + size, QUAD), QUAD)
            self._collector.add(warp, StoreSlot(slot), lanes)

    # ---- scratch and memory

    def _scratch(self, event: Event, size: int, *, loads: bool) -> None:
        for warp, lanes, (address,) in by_value(event):
            part = self._layout.part(address - SHARED_BASE)
            if part is None:
                raise outside(event, address, "a slot or a team's scratch")
            team, line, place = part
            mine = divmod(self._consumer(event, warp), self._layout.team)
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
                self._to_y(event, warp, event.values[0].astype(np.int64)[mine] - Y_BASE, size)
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
            for thread, offset in zip(np.flatnonzero(lanes).tolist(), offsets.tolist(), strict=True):
                self._held[thread].append(offset)

    def _to_y(self, event: Event, warp: int, starts: _Ints, size: int) -> None:
        team = self._consumer(event, warp) // self._plan.config.team
        self._chunks.stored(team, starts, size, str(event.instruction))


def _fence(event: Event) -> Op:
    return Fence(event.instruction.opcode.removeprefix("fence."))
