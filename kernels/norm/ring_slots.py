"""The slots of a PTX run: who fills them with what, who reads them, and where it goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from kernels.barrier_collect import Collector, Handler, by_value, outside
from kernels.norm.plan import NormPlan
from kernels.norm.ring_chunks import QUAD, Chunks
from kernels.norm.ring_layout import NormLayout
from kernels.ptx_events import LOAD_ASYNC, LOAD_BULK, STORE_BULK, Event
from kernels.ptx_parser import PtxError
from kernels.ptx_registers import SHARED_BASE, WARP
from solver.ring.steps import Load, Op
from solver.ring.stream import Stream
from solver.ring.stream_steps import CopyAsync, ReadSlot, Rewrite, StoreSlot, WriteSlot

# Where x and y would be: far apart, and from all else, so that a stray address shows.
X_BASE, Y_BASE = 1 << 52, 1 << 55
_Ints = npt.NDArray[np.int64]


class Slots:
    """Reads accesses to slots against a launch's chunks; ``handlers`` by opcode. ``barrier`` names
    the mbarrier at an address.

    ``elsewhere`` is the first access whose bytes are not where they belong, which does not keep
    the steps from being told. ``held`` are the bytes of x that each thread has on their way.
    """

    def __init__(
        self,
        plan: NormPlan,
        layout: NormLayout,
        ring: Stream | None,
        chunks: Chunks,
        collector: Collector,
        barrier: Callable[[Event, int], str],
    ) -> None:
        self._plan = plan
        self._layout = layout
        self._ring = ring
        self._chunks = chunks
        self._collector = collector
        self._barrier = barrier
        self.elsewhere: PtxError | None = None
        self.held: list[list[int]] = [[] for _ in range(plan.threads)]
        # How often each warp has waited for each slot to be given back, the latest chunk that it
        # has waited for in each, and how many in all.
        self.claimed: list[Counter[int]] = [Counter() for _ in range(plan.config.warps)]
        self._latest: list[dict[int, int]] = [{} for _ in range(plan.config.warps)]
        self._begun = [0] * plan.config.warps
        self.handlers: dict[str, Handler] = {
            LOAD_BULK: self._load_bulk,
            LOAD_ASYNC: self._load_async,
            STORE_BULK: self._store_bulk,
        }

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Keeps the first error of what is where."""
        try:
            yield
        except PtxError as error:
            self.elsewhere = self.elsewhere or error

    def consumer(self, event: Event, warp: int) -> int:
        consumer = warp - self._plan.config.producers
        if consumer < 0:
            raise PtxError(f"{event.instruction}: warp {warp} is no consumer")
        return consumer

    def begin(self, event: Event, warp: int, slot: int) -> None:
        """A consumer has waited for a slot: its next chunk is there."""
        assert self._ring is not None
        group = self.consumer(event, warp) // self._ring.group_warps
        chunk = self._begun[warp]
        if chunk < len(self._chunks.of_group[group]) and slot == self._ring.slot(group, chunk):
            self._latest[warp][slot] = chunk
        self._begun[warp] += 1

    def has(self, event: Event) -> bool:
        first = int(event.values[0][event.lanes][0])
        return self._layout.place(first - SHARED_BASE) is not None

    def access(self, event: Event, *, loads: bool) -> None:
        what = str(event.instruction)
        for warp, lanes, slot, offsets, threads in self._in_slots(event):
            if warp < self._plan.config.producers:
                if loads or not all(self.held[thread] for thread in threads):
                    raise PtxError(f"{what}: a producer has nothing to put into slot {slot}")
                sources = np.array([self.held[thread].pop(0) for thread in threads])
                with self.noted():
                    self._fill(event, warp, slot, offsets, sources)
                self._collector.add(warp, WriteSlot(slot), lanes)
                continue
            with self.noted():
                group, chunk = self._current(event, warp, slot)
                does = self._chunks.read_at if loads else self._chunks.put_at
                does(group, chunk, offsets, threads, what)
            self._collector.add(warp, ReadSlot(slot) if loads else Rewrite(slot), lanes)

    def store(self, event: Event, warp: int, starts: _Ints, size: int) -> None:
        team = self.consumer(event, warp) // self._plan.config.team
        self._chunks.stored(team, starts, size, str(event.instruction))

    def _load_bulk(self, event: Event) -> None:
        for warp, lanes, (to, source, size, barrier) in by_value(event):
            self._collector.add(warp, self._load(event, warp, to, source, size, barrier), lanes)

    def _load(self, event: Event, warp: int, to: int, source: int, size: int, barrier: int) -> Op:
        place = self._layout.place(to - SHARED_BASE)
        if place is None:
            raise outside(event, to, "a slot")
        slot, within = place
        with self.noted():
            group, chunk = self._next_fill(event, warp, slot)
            at = np.arange(0, size, QUAD)
            self._chunks.fill(
                group, chunk, within + at, source - X_BASE + at, str(event.instruction)
            )
        return Load(slot, self._barrier(event, barrier), size)

    def _load_async(self, event: Event) -> None:
        for warp, lanes, slot, offsets, threads in self._in_slots(event):
            if (event.values[2][threads] != QUAD).any():
                raise PtxError(f"{event.instruction}: copies other than {QUAD} bytes")
            sources = event.values[1][threads].astype(np.int64) - X_BASE
            with self.noted():
                self._fill(event, warp, slot, offsets, sources)
            self._collector.add(warp, CopyAsync(slot), lanes)

    def _store_bulk(self, event: Event) -> None:
        for warp, lanes, (to, source, size) in by_value(event):
            self._collector.add(warp, self._store_one(event, warp, to, source, size), lanes)

    def _store_one(self, event: Event, warp: int, to: int, source: int, size: int) -> Op:
        place = self._layout.place(source - SHARED_BASE)
        if place is None:
            raise outside(event, source, "a slot")
        slot, within = place
        with self.noted():
            group, chunk = self._current(event, warp, slot)
            start = self._chunks.of_group[group][chunk].start + within
            if to - Y_BASE != start:
                raise PtxError(f"{event.instruction}: byte {start} of x goes to {to - Y_BASE} of y")
            self.store(event, warp, np.arange(start, start + size, QUAD), QUAD)
        return StoreSlot(slot)

    def _next_fill(self, event: Event, warp: int, slot: int) -> tuple[int, int]:
        """(group, chunk) that a warp fills a slot with, after so many waits for it."""
        assert self._ring is not None
        group, number = divmod(slot, self._ring.depth)
        visit = self.claimed[warp][slot] - (0 if self._ring.named else 1)
        chunk = visit * self._ring.depth + number
        if not 0 <= chunk < len(self._chunks.of_group[group]):
            raise PtxError(f"{event.instruction}: warp {warp} has nothing to fill slot {slot} with")
        return group, chunk

    def _fill(self, event: Event, warp: int, slot: int, offsets: _Ints, sources: _Ints) -> None:
        group, chunk = self._next_fill(event, warp, slot)
        self._chunks.fill(group, chunk, offsets, sources, str(event.instruction))

    def _current(self, event: Event, warp: int, slot: int) -> tuple[int, int]:
        """The chunk that a consumer has waited for in a slot."""
        assert self._ring is not None
        group = self.consumer(event, warp) // self._ring.group_warps
        if slot not in self._latest[warp]:
            raise PtxError(f"{event.instruction}: warp {warp} has not waited for slot {slot}")
        return group, self._latest[warp][slot]

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
