"""The barrier program of norm_activation's blocks: rings of chunks, and teams that share a row.

From this description come the programs that a compiled kernel's own are compared with
(``kernels.norm.ring_check``), the bounded check (``solver.ring.stream_machine``) and the induction
(``solver.z3_stream``).

Every group of consumer warps has a ring of ``depth`` slots of its own. Chunk k of a group goes
through slot k % depth; its visit to the slot is number k // depth. Producer warps fill the rings of
all groups, chunk k of each group before chunk k + 1 of any; without producers a group fills its own
ring, ``depth`` chunks ahead of the one it gives back.

By mbarriers: full[slot] takes one arrival and the chunk's bytes (bulk copies, by one thread), an
arrival of each loading thread once its copies have landed (asynchronous ones), or one of each
loading warp (stores of warps). empty[slot] takes one of each warp of the group. By named barriers
each takes the loading warps and the group's, of which those that hand over arrive and those that
need it wait; the first visit to a slot waits for nothing, and nobody arrives for a visit that never
comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from solver.ring.cta import WHOLE_BLOCK
from solver.ring.steps import (
    ALL,
    ASYNC_FENCE,
    INIT_FENCE,
    Arrive,
    Init,
    Load,
    Program,
    Step,
    StoreCommit,
    StoreWait,
    Sync,
    Wait,
)
from solver.ring.stream_steps import (
    ArriveLoaded,
    CopyAsync,
    ReadSlot,
    Rewrite,
    StoreSlot,
    SyncArrive,
    WriteSlot,
)
from solver.ring.teams import Teams

WARP = 32


@dataclass(frozen=True, slots=True)
class StreamUnit:
    """What a group takes at a time: ``rows`` whole ones in one chunk, or one row in several.
    ``chunks`` are their bytes, once for each time that they come."""

    rows: int
    chunks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stream(Teams):
    """A block with rings. ``warps`` are its consumers, ``producers`` come before them; 0: consumers
    load for themselves. ``copies``, ``barrier`` and ``hold`` are the configuration's words;
    ``chunked``: a row comes in several chunks; ``bulk_stores``: rows leave from their slots."""

    producers: int
    groups: int
    depth: int
    copies: str = "bulk"
    barrier: str = "mbarrier"
    hold: str = "registers"
    chunked: bool = False
    bulk_stores: bool = False

    # ---- what takes part

    @property
    def group_warps(self) -> int:
        """Consumers of a group."""
        return self.warps // self.groups

    @property
    def loaders(self) -> int:
        """Warps that fill a ring: one thread of one with bulk copies."""
        if self.copies == "bulk":
            return 1
        return self.producers or self.group_warps

    @property
    def named(self) -> bool:
        """Whether slots are handed over at named barriers."""
        return self.barrier == "named"

    @property
    def arrivals(self) -> int:
        """Of a loading warp, at a full mbarrier."""
        return WARP if self.copies == "async" else 1

    @property
    def full_count(self) -> int:
        """Arrivals that complete a phase of a full mbarrier."""
        return self.loaders * self.arrivals

    @property
    def empty_count(self) -> int:
        """Arrivals that complete a phase of an empty mbarrier."""
        return self.group_warps

    @property
    def named_warps(self) -> int:
        """Warps that a slot's named barriers take."""
        return self.loaders + self.group_warps

    def freed_parity(self, visit: Any) -> Any:
        """The parity that a loader waits for on a slot's empty barrier; in any algebra."""
        return (visit + 1) % 2

    def filled_parity(self, visit: Any) -> Any:
        """The parity that a consumer waits for on a slot's full barrier; in any algebra."""
        return visit % 2

    def visit_read(self, group: int, use: Any) -> Any:
        """Which visit to a slot a group's use of it is, counted from 0; in any algebra. Every one
        is, since no other group uses it."""
        return use

    def arrives(self, loader: int) -> bool:
        """Whether a loading warp says that it has filled a slot."""
        return loader < self.loaders

    def gives_back(self, again: Any) -> Any:
        """Whether a consumer arrives at a named empty barrier; ``again``: the slot is filled once
        more; in any algebra."""
        return again

    def enough(self, depth: Any, lag: Any) -> Any:
        """Whether a ring is deep enough for consumers that keep up to ``lag`` slots besides the
        one they wait for: those of a row's other chunks with hold shared; in any algebra."""
        return depth > lag

    @property
    def keeps_row(self) -> bool:
        """Whether a row's chunks stay in their slots until all have been read."""
        return self.chunked and self.hold == "shared"

    @property
    def drains(self) -> bool:
        """Whether whoever starts a bulk store gives the slot back once it has been read."""
        return True

    # ---- places

    def slot(self, group: int, chunk: int) -> int:
        """The slot that a group's chunk goes through."""
        return group * self.depth + chunk % self.depth

    def visit(self, group: int, chunk: int) -> int:
        """Which visit to its slot a group's chunk is."""
        return chunk // self.depth

    @property
    def slots(self) -> int:
        """Slots of a block."""
        return self.groups * self.depth

    def full_id(self, slot: Any) -> Any:
        """The named barrier of a slot that was filled; in any algebra."""
        return 1 + self._team_ids + 2 * slot

    def empty_id(self, slot: Any) -> Any:
        """The named barrier of a slot that was given back; in any algebra."""
        return self.full_id(slot) + 1

    @property
    def _team_ids(self) -> int:
        return self.warps // self.team if self.team > 1 else 0

    # ---- programs

    def programs(self, units: Sequence[StreamUnit]) -> dict[str, Program]:
        """Every warp's program for a block's units, dealt to the groups in turn; producers first,
        as they lie in the block."""
        of_group = [units[group :: self.groups] for group in range(self.groups)]
        programs = {}
        for warp in range(self.producers):
            steps = (*self.start(warp), *self._produce(warp, of_group))
            programs[f"producer{warp}"] = steps
        for warp in range(self.warps):
            steps = (*self.start(self.producers + warp), *self._consume(warp, of_group))
            programs[f"consumer{warp}"] = steps
        return programs

    def start(self, warp: int) -> Iterator[Step]:
        """Nobody uses a barrier that is not initialised: the one barrier of the whole block."""
        if warp == 0 and not self.named:
            for slot in range(self.slots):
                yield Step(Init(f"full[{slot}]", self.full_count), 1)
                yield Step(Init(f"empty[{slot}]", self.empty_count), 1)
            yield Step(INIT_FENCE, 1)
            yield Step(ASYNC_FENCE, 1)
        yield Step(Sync(WHOLE_BLOCK, self.producers + self.warps))

    def _produce(self, warp: int, of_group: Sequence[Sequence[StreamUnit]]) -> Iterator[Step]:
        if warp >= self.loaders:
            return
        chunks = [[size for unit in units for size in unit.chunks] for units in of_group]
        for chunk in range(max(map(len, chunks), default=0)):
            for group, sizes in enumerate(chunks):
                if chunk < len(sizes):
                    yield from self.fill(warp, group, chunk, sizes[chunk])

    def fill(self, loader: int, group: int, chunk: int, size: int) -> Iterator[Step]:
        """What a loading warp does for a chunk of a group."""
        slot, visit = self.slot(group, chunk), self.visit(group, chunk)
        full, empty = f"full[{slot}]", f"empty[{slot}]"
        lanes = 1 if self.copies == "bulk" else ALL
        if not self.named:
            yield Step(Wait(empty, self.freed_parity(visit)), lanes)
        elif visit:
            yield Step(Sync(self.empty_id(slot), self.named_warps))
        if self.copies == "bulk":
            yield Step(ASYNC_FENCE, 1)
            yield Step(Arrive(full, size), 1)
            yield Step(Load(slot, full, size), 1)
            return
        yield Step(CopyAsync(slot) if self.copies == "async" else WriteSlot(slot))
        if self.arrives(loader):
            yield self._says_full(slot)

    def _says_full(self, slot: int) -> Step:
        if self.copies == "async":
            return Step(ArriveLoaded(f"full[{slot}]"))
        if self.named:
            return Step(SyncArrive(self.full_id(slot), self.named_warps))
        return Step(Arrive(f"full[{slot}]"), 1)

    def _consume(self, warp: int, of_group: Sequence[Sequence[StreamUnit]]) -> Iterator[Step]:
        group = warp // self.group_warps
        return _Consumer(self, warp, of_group[group]).steps()


class _Consumer:
    """A consumer on its way through its group's units."""

    def __init__(self, stream: Stream, warp: int, units: Sequence[StreamUnit]) -> None:
        self._stream = stream
        self._warp = warp
        self._units = units
        self._group, self._number = divmod(warp, stream.group_warps)
        self._sizes = [size for unit in units for size in unit.chunks]
        self._read = self._freed = self._loaded = self._summed = 0

    def steps(self) -> Iterator[Step]:
        if not self._stream.producers:
            for _ in range(self._stream.depth):
                yield from self._load_next()
        for unit in self._units:
            yield from self._chunks(unit) if self._stream.chunked else self._rows(unit)

    def _rows(self, unit: StreamUnit) -> Iterator[Step]:
        """Whole rows of a slot: a team takes every so many."""
        stream = self._stream
        teams = stream.group_warps // stream.team
        mine = range(self._number // stream.team, unit.rows, teams)
        yield from self._wait_full()
        slot = stream.slot(self._group, self._freed)
        if stream.hold == "registers":
            if not mine:
                yield from self._give_back()
            for row in mine:
                yield Step(ReadSlot(slot))
                if row == mine[-1]:
                    yield from self._give_back()
                yield from self._sum_up()
            return
        for _ in mine:
            yield Step(ReadSlot(slot))
            yield from self._sum_up()
            yield from self._write(slot)
        yield from self._give_back()

    def _chunks(self, unit: StreamUnit) -> Iterator[Step]:
        """A row in several chunks, which all warps of the group share."""
        stream, count = self._stream, len(unit.chunks)
        if stream.hold == "reload":
            count //= 2
        for _ in range(count):
            slot = stream.slot(self._group, self._read)
            yield from self._wait_full()
            yield Step(ReadSlot(slot))
            if stream.hold != "shared":
                yield from self._give_back()
        yield from self._sum_up()
        for _ in range(count if stream.hold != "registers" else 0):
            if stream.hold == "reload":
                yield from self._wait_full()
            yield from self._write(stream.slot(self._group, self._freed))
            yield from self._give_back()

    def _write(self, slot: int) -> Iterator[Step]:
        """From a slot to memory."""
        stream = self._stream
        yield Step(ReadSlot(slot))
        if not stream.bulk_stores:
            return
        yield Step(Rewrite(slot))
        yield Step(ASYNC_FENCE)
        yield from stream.sync(self._warp)
        if self._number % stream.team == 0:
            yield Step(StoreSlot(slot), 1)
            yield Step(StoreCommit(), 1)
            yield Step(StoreWait(0), 1)

    def _sum_up(self) -> Iterator[Step]:
        yield from self._stream.sum_up(self._warp, self._summed)
        self._summed += self._stream.sums

    def _wait_full(self) -> Iterator[Step]:
        stream = self._stream
        slot, visit = (of(self._group, self._read) for of in (stream.slot, stream.visit))
        self._read += 1
        if stream.named:
            yield Step(Sync(stream.full_id(slot), stream.named_warps))
        else:
            yield Step(Wait(f"full[{slot}]", stream.filled_parity(visit)))

    def _give_back(self) -> Iterator[Step]:
        stream = self._stream
        slot = stream.slot(self._group, self._freed)
        again = self._freed + stream.depth < len(self._sizes)
        self._freed += 1
        if not stream.named:
            yield Step(Arrive(f"empty[{slot}]"), 1)
        elif stream.gives_back(again):
            yield Step(SyncArrive(stream.empty_id(slot), stream.named_warps))
        if not stream.producers:
            yield from self._load_next()

    def _load_next(self) -> Iterator[Step]:
        chunk = self._loaded
        if chunk < len(self._sizes):
            self._loaded += 1
            if self._number < self._stream.loaders:
                size = self._sizes[chunk]
                yield from self._stream.fill(self._number, self._group, chunk, size)
