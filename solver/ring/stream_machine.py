"""A norm_activation block's barriers and slots, played in every order of its warps' steps.

mbarriers are played as in ``solver.ring.machine``. A named barrier counts the warps that arrive,
whoever they are, and lets those that wait at it go on once they are as many as it takes. Copies
land at any time after they were started; bulk stores read their slot until they are waited for.

What only touches a slot or scratch (a local step) may be taken at once or as late as its warp's
next step of another kind: all that can go wrong is seen where a warp comes to such a step, by
where the others are, and no order of these steps needs to be played. A warp that has touched, or
has yet to touch, nothing since its last step and arrives somewhere without ending a phase is the
only one that moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from solver.ring.explore import Programs, search
from solver.ring.state import Barrier, Fault, Move, replaced
from solver.ring.steps import (
    ASYNC_FENCE,
    INIT_FENCE,
    Arrive,
    Fence,
    Init,
    Load,
    Op,
    Program,
    Step,
    StoreWait,
    Sync,
    Wait,
    words,
)
from solver.ring.stream import Stream
from solver.ring.stream_state import Flight, StreamHistory, StreamState, StreamWarps
from solver.ring.stream_steps import (
    FILLS,
    READS,
    ArriveLoaded,
    CopyAsync,
    ScratchOp,
    StoreSlot,
    SyncArrive,
    WriteScratch,
)
from solver.ring.teams import Teams

_ARRIVES = (Arrive, ArriveLoaded, SyncArrive, Sync)


Moved = tuple[Move, StreamState | Fault]


class StreamMachine:
    """Groups of warps over a block's barriers, slots and scratch; ``full_ids`` are the named
    barriers that tell of full slots; ``every_order`` plays also the orders of arrivals that show
    nothing new."""

    def __init__(
        self,
        groups: Sequence[StreamWarps],
        full_ids: Mapping[int, int],
        *,
        every_order: bool = False,
    ) -> None:
        self._every_order = every_order
        self._groups = groups
        self._histories = [StreamHistory(group.steps, full_ids) for group in groups]
        ops = [step.op for group in groups for step in group.steps]
        self._mbarriers = sorted(
            {o.barrier for o in ops if isinstance(o, Init | Wait | Arrive | ArriveLoaded | Load)}
        )
        self._number = {name: at for at, name in enumerate(self._mbarriers)}
        self._counts = {o.barrier: o.count for o in ops if isinstance(o, Init)}
        self._ids = sorted({o.id for o in ops if isinstance(o, Sync | SyncArrive)})
        self._takes = {o.id: o.warps for o in ops if isinstance(o, Sync | SyncArrive)}
        self._next = [history.following for history in self._histories]
        slots = {o.slot for o in ops if isinstance(o, (*FILLS, *READS, Load))}
        self._loaders = {slot: self._with(slot, (*FILLS, Load)) for slot in slots}
        self._readers = {slot: self._waiting_for(slot) for slot in slots}
        self._mates = [
            [j for j, other in enumerate(groups) if other.team == group.team is not None]
            for group in groups
        ]
        self.start = StreamState(
            at=(0,) * len(groups),
            waiting=(False,) * len(groups),
            barriers=(None,) * len(self._mbarriers),
            named=(0,) * len(self._ids),
            flights=(),
            stores=((),) * len(groups),
        )

    def _with(self, slot: int, kinds: tuple[type[Op], ...]) -> list[int]:
        return [
            i
            for i, group in enumerate(self._groups)
            if any(isinstance(s.op, kinds) and s.op.slot == slot for s in group.steps)  # type: ignore[attr-defined]
        ]

    def _waiting_for(self, slot: int) -> list[int]:
        return [
            i
            for i, group in enumerate(self._groups)
            if any(self._histories[i].told_full(step.op) == slot for step in group.steps)
        ]

    # ---- moves

    def moves(self, state: StreamState) -> Iterator[Moved]:
        """Every step that can happen next and what comes of it."""
        if (only := self._at_once(state)) is not None:
            yield only
            return
        for at, flight in enumerate(state.flights):
            if flight not in state.flights[:at] and flight.barrier:
                yield self._land(state, at, flight)
        for i in range(len(self._groups)):
            moved = self._move(state, i)
            if moved is not None:
                yield moved

    def _at_once(self, state: StreamState) -> Moved | None:
        """A step that commutes with all that the others can do before it."""
        for i in range(0 if self._every_order else len(self._groups)):
            step = self._played(state, i)
            if step is None or state.waiting[i]:
                continue
            if any(not isinstance(s.op, Fence) for s in self._local(state, i)):
                continue
            if isinstance(step.op, Init) or (
                isinstance(step.op, _ARRIVES) and not self._ends(state, i, step)
            ):
                return self._move(state, i)
        return None

    def _ends(self, state: StreamState, i: int, step: Step) -> bool:
        """Whether an arrival ends a phase, or is one too many."""
        op, count = step.op, self._groups[i].count
        if isinstance(op, Sync | SyncArrive):
            return state.named[self._ids.index(op.id)] + count >= op.warps
        if isinstance(op, ArriveLoaded):
            return False
        assert isinstance(op, Arrive)
        barrier = state.barriers[self._number[op.barrier]]
        return barrier is None or barrier.arrivals <= step.count * count

    def _played(self, state: StreamState, i: int) -> Step | None:
        at = self._next[i][state.at[i]]
        steps = self._groups[i].steps
        return steps[at] if at < len(steps) else None

    def _local(self, state: StreamState, i: int) -> Program:
        return self._groups[i].steps[state.at[i] : self._next[i][state.at[i]]]

    def _move(self, state: StreamState, i: int) -> Moved | None:
        step = self._played(state, i)
        if step is None or state.waiting[i]:
            return None
        after = self._take(state, i, step)
        if after is None:
            return None
        return Move(self._groups[i].name, words(step)), after

    def _take(self, state: StreamState, i: int, step: Step) -> StreamState | Fault | None:
        count = self._groups[i].count
        flights = list(state.flights)
        match step.op:
            case Wait(barrier, parity):
                found = state.barriers[self._number[barrier]]
                if found is None:
                    return Fault("used before it is initialised", barrier)
                return None if found.parity == parity else self._advance(state, [i])
            case Init(barrier, arrivals):
                return self._init(state, i, barrier, arrivals)
            case Arrive(barrier, tx_bytes):
                times = step.count * count
                after = self._signal(state, barrier, times, times * tx_bytes)
                return after if isinstance(after, Fault) else self._advance(after, [i])
            case Sync(number, warps) | SyncArrive(number, warps):
                return self._come(state, i, number, warps, waits=isinstance(step.op, Sync))
            case Load(slot, barrier, tx_bytes):
                if self._seen(state, i, "filled", slot) and not self._is_fenced(state, i):
                    words_ = f"slot {slot}, which warps have read, is filled by TMA"
                    return Fault("filled without a fence", words_)
                flights += [Flight(i, (slot,), barrier, 0, tx_bytes)] * step.count
            case CopyAsync(slot):
                flights.append(Flight(i, (slot,), "", 0, 0))
            case ArriveLoaded(barrier):
                own = [flight for flight in flights if flight.warps == i and not flight.barrier]
                slots = tuple(slot for flight in own for slot in flight.slots)
                flights = [flight for flight in flights if flight not in own]
                flights.append(Flight(i, slots, barrier, step.count * count, 0))
            case StoreSlot(slot):
                stores = (*state.stores[i], slot)
                state = state._replace(stores=replaced(state.stores, i, stores))
            case StoreWait():
                state = state._replace(stores=replaced(state.stores, i, ()))
        state = state._replace(flights=tuple(sorted(flights)))
        return self._advance(state, [i])

    def _advance(self, state: StreamState, movers: Sequence[int]) -> StreamState | Fault:
        """The movers take their steps, and come to what is local to them next."""
        at = list(state.at)
        for i in movers:
            at[i] = self._next[i][at[i]] + 1
        state = state._replace(at=tuple(at))
        for i in movers:
            fault = self._look(state, i)
            if fault is not None:
                return fault
        return state

    # ---- barriers

    def _init(self, state: StreamState, i: int, barrier: str, arrivals: int) -> StreamState | Fault:
        number = self._number[barrier]
        if state.barriers[number] is not None:
            return Fault("initialised twice", barrier)
        rest = [step.op for step in self._groups[i].steps[state.at[i] :]]
        until = next((at for at, op in enumerate(rest) if isinstance(op, Sync)), len(rest))
        if not {INIT_FENCE, ASYNC_FENCE} <= set(rest[:until]):
            return Fault("initialised without a fence", barrier)
        made = replaced(state.barriers, number, Barrier(0, arrivals, 0))
        return self._advance(state._replace(barriers=made), [i])

    def _signal(
        self, state: StreamState, name: str, arrivals: int, tx_bytes: int
    ) -> StreamState | Fault:
        number = self._number[name]
        barrier = state.barriers[number]
        if barrier is None:
            return Fault("used before it is initialised", name)
        left = Barrier(barrier.parity, barrier.arrivals - arrivals, barrier.tx_bytes + tx_bytes)
        if left.arrivals < 0:
            return Fault("too many arrivals", f"{name} takes {self._counts[name]}")
        if not left.arrivals and not left.tx_bytes:
            left = Barrier(barrier.parity ^ 1, self._counts[name], 0)
        return state._replace(barriers=replaced(state.barriers, number, left))

    def _come(
        self, state: StreamState, i: int, number: int, warps: int, *, waits: bool
    ) -> StreamState | Fault:
        """A group comes to a named barrier, and all that wait there leave if it is the last."""
        here = self._ids.index(number)
        arrived = state.named[here] + self._groups[i].count
        if arrived > warps or self._takes[number] != warps:
            return Fault("too many arrivals", f"barrier {number} takes {warps} warps")
        full = arrived == warps
        state = state._replace(named=replaced(state.named, here, 0 if full else arrived))
        if not full:
            if waits:
                return state._replace(waiting=replaced(state.waiting, i, True))
            return self._advance(state, [i])
        leave = [i]
        for j, waiting in enumerate(state.waiting):
            step = self._played(state, j)
            if waiting and step is not None and isinstance(step.op, Sync) and step.op.id == number:
                leave.append(j)
                state = state._replace(waiting=replaced(state.waiting, j, False))
        return self._advance(state, leave)

    # ---- copies

    def _land(self, state: StreamState, at: int, flight: Flight) -> Moved:
        slots = ", ".join(map(str, flight.slots))
        move = Move("copies", f"land in slot {slots}, told to {flight.barrier}")
        if all(self._played(state, i) is None for i in range(len(self._groups))):
            return move, Fault("left too early", "a copy lands in a block that has exited")
        rest = state._replace(flights=state.flights[:at] + state.flights[at + 1 :])
        return move, self._signal(rest, flight.barrier, flight.arrivals, -flight.tx_bytes)

    # ---- what can be wrong with where a group of warps has come to

    def _look(self, state: StreamState, i: int) -> Fault | None:
        name, played = self._groups[i].name, self._played(state, i)
        ops = [step.op for step in self._local(state, i)] + ([played.op] if played else [])
        for op in ops:
            fault = None
            if isinstance(op, (*FILLS, Load)):
                fault = self._may_fill(state, i, op.slot)
            elif isinstance(op, READS):
                fault = self._may_read(state, i, op.slot)
                if fault is None and isinstance(op, StoreSlot):
                    fault = self._may_store(state, i, op.slot)
            elif isinstance(op, ScratchOp):
                fault = self._may_sum(state, i, op)
            if fault is not None:
                return fault
        if played is None and state.stores[i]:
            return Fault("left too early", f"{name} exits while its slots are being read")
        return None

    def _is_fenced(self, state: StreamState, i: int) -> bool:
        """Whether a bulk copy follows a fence after the wait for its slot: reads and writes of
        warps are not ordered before it otherwise."""
        before = self._groups[i].steps[: self._next[i][state.at[i]]]
        ops = (step.op for step in reversed(before))
        return next((op == ASYNC_FENCE for op in ops if isinstance(op, Fence | Wait)), False)

    def _may_fill(self, state: StreamState, i: int, slot: int) -> Fault | None:
        if any(slot in stores for stores in state.stores):
            words_ = f"slot {slot} is filled while a bulk store reads it"
            return Fault("overwritten while read", words_)
        visit = self._seen(state, i, "filled", slot)
        for j in self._readers[slot]:
            done = self._seen(state, j, "begun", slot) - (
                slot in self._histories[j].reading[state.at[j]]
            )
            if done < visit:
                words_ = f"slot {slot} is filled before it is read by {self._groups[j].name}"
                return Fault("overwritten before read", words_)
        return None

    def _may_read(self, state: StreamState, i: int, slot: int) -> Fault | None:
        visits = self._seen(state, i, "begun", slot)
        by = f"slot {slot}, visit {visits - 1}, by {self._groups[i].name}"
        if any(slot in flight.slots for flight in state.flights):
            return Fault("read before written", f"{by}: copies are on their way")
        for j in self._loaders[slot]:
            filled = self._seen(state, j, "filled", slot)
            if filled != visits:
                kind = "read before written" if filled < visits else "overwritten before read"
                return Fault(kind, f"{by}: {self._groups[j].name} has filled it {filled} times")
        return None

    def _may_store(self, state: StreamState, i: int, slot: int) -> Fault | None:
        mine = self._histories[i].done[self._next[i][state.at[i]]]["put", slot]
        for j in self._mates[i]:
            at = self._next[i][state.at[i]] if j == i else state.at[j]
            if self._histories[j].done[at]["fenced", slot] != mine:
                words_ = f"{self._groups[j].name} has not put and fenced its part of slot {slot}"
                return Fault("read before written", words_)
        return None

    def _may_sum(self, state: StreamState, i: int, op: ScratchOp) -> Fault | None:
        """All have written what is read, and read what is written over."""
        writes = isinstance(op, WriteScratch)
        number = self._seen(state, i, type(op).__name__, op.line)
        for j in self._mates[i]:
            if j == i:
                continue
            other = self._groups[j].name
            if writes and self._seen(state, j, "ReadScratch", op.line) < number:
                words_ = f"line {op.line} of team {op.team} is not read yet by {other}"
                return Fault("overwritten before read", words_)
            if not writes and self._seen(state, j, "WriteScratch", op.line) <= number:
                words_ = f"line {op.line} of team {op.team} is not written yet by {other}"
                return Fault("read before written", words_)
        return None

    def _seen(self, state: StreamState, i: int, name: str, of: int) -> int:
        return self._histories[i].done[state.at[i]][name, of]

    def end(self, state: StreamState) -> Fault | None:
        """What is wrong with a state in which nothing more can happen; None where all is done."""
        waits = [
            f"{group.name} can't {words(step)}"
            for i, group in enumerate(self._groups)
            if (step := self._played(state, i)) is not None
        ]
        if waits:
            return Fault("deadlock", "; ".join(waits))
        if state.flights:
            return Fault("left too early", "copies that nobody waits for are on their way")
        for number, arrived in zip(self._ids, state.named, strict=True):
            if arrived:
                return Fault("left over", f"{arrived} warps have arrived at barrier {number}")
        for slot, readers in self._readers.items():
            filled = {self._seen(state, j, "filled", slot) for j in self._loaders[slot]}
            if {self._seen(state, j, "begun", slot) for j in readers} != filled:
                return Fault("left too early", f"slot {slot} was filled for nobody")
        return None


def explore_stream(
    stream: Teams, programs: Programs, *, lumped: bool = False, every_order: bool = False
) -> Fault | int:
    """The first fault in any order of a block's programs, or the number of states.

    ``lumped``: warps of a team or role that do the same walk in step, but for the first;
    ``every_order`` as for ``StreamMachine``. Raises TooManyStates.
    """
    groups: list[StreamWarps] = []
    alike = 0
    for name, steps in programs.items():
        _, _, number = name.partition("consumer")
        team = int(number) // stream.team if number else None
        last = groups[-1] if groups else None
        same = last is not None and (last.steps, last.team) == (steps, team)
        alike = alike + 1 if same else 0
        if lumped and last is not None and alike > 1:
            groups[-1] = replace(last, count=last.count + 1)
        else:
            groups.append(StreamWarps(name, steps, team))
    full_ids = {}
    if isinstance(stream, Stream) and stream.named:
        full_ids = {stream.full_id(slot): slot for slot in range(stream.slots)}
    return search(StreamMachine(groups, full_ids, every_order=every_order))
