"""From the events of a norm_activation kernel's PTX run to the steps of a barrier program.

Addresses are read against ``NormLayout`` and the chunks of the launch's units, which know the plan
alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

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
    """Collects each warp's steps of a launch's block. ``arguments`` is the launch's one parameter;
    ``elsewhere`` is the first access whose bytes are not where they belong, which does not keep the
    steps from being told."""

    def __init__(self, launch: NormLaunch) -> None:
        plan = launch.plan
        self._plan = plan
        self._layout = NormLayout.of(plan)
        self._collector = Collector(plan.config.warps, OF_ITS_LANES)
        described_ = described(launch)
        self._ring = described_ if isinstance(described_, Stream) else None
        self._groups = plan.config.groups
        self._chunks = Chunks(launch, self._groups)
        self.elsewhere: PtxError | None = None
        # How often each warp has waited for each slot to be given back, the latest chunk that it
        # has waited for in each, and how many in all.
        self._claimed: list[Counter[int]] = [Counter() for _ in range(plan.config.warps)]
        self._latest: list[dict[int, int]] = [{} for _ in range(plan.config.warps)]
        self._begun = [0] * plan.config.warps
        # For each thread: the bytes of x that it holds, and how many parts of sums it has taken.
        self._held: list[list[int]] = [[] for _ in range(plan.threads)]
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
            LOAD_BULK: self._load_bulk,
            LOAD_ASYNC: self._load_async,
            STORE_BULK: self._store_bulk,
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
        """Each warp's steps after the run; what was left out is told in ``elsewhere``."""
        programs = self._collector.programs()
        with self._noted():
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
        if any(self._held):
            raise PtxError("some of x is loaded and put into no slot")

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Keeps the first error of what is where."""
        try:
            yield
        except PtxError as error:
            self.elsewhere = self.elsewhere or error

    # ---- who fills and reads what

    def _next_fill(self, event: Event, warp: int, slot: int) -> tuple[int, int]:
        """(group, chunk) that a warp fills a slot with, after so many waits for it."""
        assert self._ring is not None
        group, number = divmod(slot, self._ring.depth)
        visit = self._claimed[warp][slot] - (0 if self._ring.named else 1)
        chunk = visit * self._ring.depth + number
        if not 0 <= chunk < len(self._chunks.of_group[group]):
            raise PtxError(f"{event.instruction}: warp {warp} has nothing to fill slot {slot} with")
        return group, chunk

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
            side, _, slot = barrier[:-1].partition("[")
            if side == "full":
                self._begin(event, warp, int(slot))
            else:
                self._claimed[warp][int(slot)] += 1

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
                    self._begin(event, warp, slot)
                elif number == self._ring.empty_id(slot):
                    self._claimed[warp][slot] += 1

    def _sync_arrive(self, event: Event, number: int, threads: int) -> Op:
        return SyncArrive(number, self._warps(event, threads))

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

    def _load_bulk(self, event: Event) -> None:
        for warp, lanes, (to, source, size, barrier) in by_value(event):
            self._collector.add(warp, self._load(event, warp, to, source, size, barrier), lanes)

    def _load(self, event: Event, warp: int, to: int, source: int, size: int, barrier: int) -> Op:
        place = self._layout.place(to - SHARED_BASE)
        if place is None:
            raise outside(event, to, "a slot")
        slot, within = place
        with self._noted():
            group, chunk = self._next_fill(event, warp, slot)
            at = np.arange(0, size, QUAD)
            self._chunks.fill(
                group, chunk, within + at, source - X_BASE + at, str(event.instruction)
            )
        return Load(slot, self._barrier(event, barrier), size)

    def _fill(self, event: Event, warp: int, slot: int, offsets: _Ints, sources: _Ints) -> None:
        group, chunk = self._next_fill(event, warp, slot)
        self._chunks.fill(group, chunk, offsets, sources, str(event.instruction))

    def _load_async(self, event: Event) -> None:
        for warp, lanes, slot, offsets, threads in self._in_slots(event):
            if (event.values[2][threads] != QUAD).any():
                raise PtxError(f"{event.instruction}: copies other than {QUAD} bytes")
            sources = event.values[1][threads].astype(np.int64) - X_BASE
            with self._noted():
                self._fill(event, warp, slot, offsets, sources)
            self._collector.add(warp, CopyAsync(slot), lanes)

    def _slot(self, event: Event, *, loads: bool) -> None:
        what = str(event.instruction)
        for warp, lanes, slot, offsets, threads in self._in_slots(event):
            if warp < self._plan.config.producers:
                if loads or not all(self._held[thread] for thread in threads):
                    raise PtxError(f"{what}: a producer has nothing to put into slot {slot}")
                sources = np.array([self._held[thread].pop(0) for thread in threads])
                with self._noted():
                    self._fill(event, warp, slot, offsets, sources)
                self._collector.add(warp, WriteSlot(slot), lanes)
                continue
            with self._noted():
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

    def _store_bulk(self, event: Event) -> None:
        for warp, lanes, (to, source, size) in by_value(event):
            self._collector.add(warp, self._store(event, warp, to, source, size), lanes)

    def _store(self, event: Event, warp: int, to: int, source: int, size: int) -> Op:
        place = self._layout.place(source - SHARED_BASE)
        if place is None:
            raise outside(event, source, "a slot")
        slot, within = place
        with self._noted():
            group, chunk = self._current(event, warp, slot)
            start = self._chunks.of_group[group][chunk].start + within
            if to - Y_BASE != start:
                raise PtxError(f"{event.instruction}: byte {start} of x goes to {to - Y_BASE} of y")
            self._to_y(event, warp, np.arange(start, start + size, QUAD), QUAD)
        return StoreSlot(slot)

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
                starts = event.values[0].astype(np.int64)[mine] - Y_BASE
                if not ((starts >= 0) & (starts < problem.rows * problem.row_bytes)).all():
                    raise outside(event, int(starts[0]) + Y_BASE, "y")
                with self._noted():
                    self._to_y(event, warp, starts, size)
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
                self._held[thread].append(offset)

    def _to_y(self, event: Event, warp: int, starts: _Ints, size: int) -> None:
        team = self._consumer(event, warp) // self._plan.config.team
        self._chunks.stored(team, starts, size, str(event.instruction))


def _fence(event: Event) -> Op:
    return Fence(event.instruction.opcode.removeprefix("fence."))
