"""A CTA's or a cluster's barriers, copies and buffers, played one step at a time.

An mbarrier is played as the hardware has it: a phase completes when its arrivals are all in and
as many bytes were delivered as were announced, in whatever order; a wait passes while the current
phase has the other parity, whichever phase that is, so that a barrier that runs a whole turn ahead
is seen for what it is. Copies land at any time after they were started, in each CTA on its own;
products and TMA stores read their slot or buffer until they are waited for. A named barrier lets
any warps pass that are at it, as many as it takes. A thread that has exited counts as arrived at
the cluster's barrier, and a CTA whose warps have all exited has no shared memory.

Not every order of steps needs to be played to see what can go wrong. A step that ends no phase,
frees nothing and lets no CTA exit commutes with whatever the others can do before it, or, played
first, leaves them more to go wrong: it is the only one played next. Waiting for products frees
their slot, so that it is played together with the step after it, as late as can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeVar

from solver.ring.history import ANY, Unfenced, history
from solver.ring.state import Barrier, Fault, Flight, Move, State, Warps, parties, replaced
from solver.ring.steps import (
    ASYNC_FENCE,
    INIT_FENCE,
    Arrive,
    ClusterArrive,
    ClusterWait,
    Fill,
    Init,
    Load,
    LoadFlag,
    Multiply,
    MultiplyWait,
    Op,
    ReadFilled,
    ReadStaged,
    Stage,
    Step,
    Store,
    StoreCommit,
    StoreFlag,
    StoreWait,
    Sync,
    Wait,
    words,
)

T = TypeVar("T")
Moved = tuple[Move, State | Fault]


class Machine:
    """Groups of warps over their CTAs' barriers, slots and buffers.

    ``copies`` is the number of bulk copies that fill a slot; ``units`` are the k-iterations of
    each unit of work, without which sums are not looked at; ``every_order`` plays also the orders
    that show nothing new.
    """

    def __init__(
        self,
        groups: Sequence[Warps],
        copies: int,
        *,
        units: Sequence[int] | None = None,
        every_order: bool = False,
    ) -> None:
        self._groups = groups
        self._copies = copies
        self._every_order = every_order
        self._ctas = 1 + max(group.cta for group in groups)
        steps = [step for group in groups for step in group.steps]
        ops = [step.op for step in steps]
        self._slots = 1 + max((o.slot for o in ops if isinstance(o, Load | Multiply)), default=-1)
        names = {o.barrier for o in ops if isinstance(o, Init | Wait | Arrive | Load)}
        self._names = sorted(names)
        self._number = {name: i for i, name in enumerate(self._names)}
        self._counts, self._fenced = self._initialised(groups)
        self._done = [history(group.steps) for group in groups]
        # The k-iterations that begin a unit, and at the end how many there are.
        self._begins = () if units is None else (0, *accumulate(units))
        # How many warps ever come to a named barrier of a CTA.
        self._come = {
            (cta, number): sum(g.count for g in groups if g.cta == cta and _comes(g, number))
            for cta in range(self._ctas)
            for number in {op.id for op in ops if isinstance(op, Sync)}
        }
        self._length = [len(group.steps) for group in groups]
        self._of_cta = [[i for i, g in enumerate(groups) if g.cta == c] for c in range(self._ctas)]
        self._readers = [
            [i for i in of if any(isinstance(s.op, Multiply) for s in groups[i].steps)]
            for of in self._of_cta
        ]
        self._warpgroup = [
            [j for j in self._of_cta[g.cta] if groups[j].warpgroup == g.warpgroup is not None]
            for g in groups
        ]
        self.start = State(
            at=(0,) * len(groups),
            barriers=(None,) * (len(names) * self._ctas),
            copies=(),
            landed=(0,) * (self._slots * self._ctas),
            running=((),) * len(groups),
            stores=((),) * len(groups),
        )

    def _initialised(self, groups: Sequence[Warps]) -> tuple[dict[int, int], set[int]]:
        """What each barrier is initialised for, and which are with both fences, for other threads
        and for TMA, before others meet."""
        counts: dict[int, int] = {}
        fenced: set[int] = set()
        for group in groups:
            unfenced: dict[int, dict[Op, int]] = {}
            for step in group.steps:
                if isinstance(step.op, Init):
                    number = self._barrier(group.cta, step.op.barrier)
                    counts[number] = step.op.count
                    unfenced[number] = dict.fromkeys((INIT_FENCE, ASYNC_FENCE), step.lanes)
                elif step.op in (INIT_FENCE, ASYNC_FENCE):
                    for lanes in unfenced.values():
                        lanes[step.op] &= ~step.lanes
                    fenced |= {n for n, lanes in unfenced.items() if not any(lanes.values())}
                elif isinstance(step.op, Sync | ClusterArrive):
                    unfenced = {}
        return counts, fenced

    def moves(self, state: State) -> Iterator[Moved]:
        """Every step that can happen next and what comes of it."""
        if not self._every_order and (only := self._at_once(state)) is not None:
            yield only
            return
        for at, copy in enumerate(state.copies):
            if copy not in state.copies[:at]:
                yield self._land(state, at, copy)
        for i in range(len(self._groups)):
            yield from self._moves_of(state, i)

    def _at_once(self, state: State) -> Moved | None:
        """A step that may as well be the next and only one."""
        for at, copy in enumerate(state.copies):
            if not self._ends_phase(state, copy.barrier, 0, -copy.tx_bytes):
                return self._land(state, at, copy)
        for i, group in enumerate(self._groups):
            at = state.at[i]
            if at + 1 >= self._length[i]:
                continue
            step = group.steps[at]
            match step.op:
                case Load() | Multiply() | ClusterArrive():
                    pass
                case Sync(number, warps) if self._come[group.cta, number] == warps:
                    pass
                case Arrive(barrier, tx_bytes, peer=False):
                    times = step.count * group.count
                    number = self._barrier(group.cta, barrier)
                    if self._ends_phase(state, number, times, times * tx_bytes):
                        continue
                case _:
                    continue
            moved = next(self._moves_of(state, i), None)
            if moved is not None:
                return moved
        return None

    def _moves_of(self, state: State, i: int) -> Iterator[Moved]:
        """Group ``i``'s next step and what comes of it, nothing where it must wait; at a named
        barrier with each of the groups that it may leave with, being the first of them."""
        if state.at[i] == self._length[i]:
            return
        step = self._groups[i].steps[state.at[i]]
        if isinstance(step.op, Sync):
            yield from self._sync(state, i, step.op)
        elif (moved := self._move(state, i, step)) is not None:
            yield moved

    def _move(self, state: State, i: int, step: Step) -> Moved | None:
        group = self._groups[i]
        result = self._take(state, i, step)
        if result is None:
            return None
        move = Move(group.name, words(step))
        if isinstance(step.op, MultiplyWait) and isinstance(result, State):
            then = group.steps[result.at[i]] if result.at[i] < self._length[i] else None
            if then is not None and isinstance(then.op, Arrive) and not self._every_order:
                after = self._take(result, i, then)
                both = Move(group.name, f"{words(step)}; {words(then)}")
                return None if after is None else (both, after)
        return move, result

    def _ends_phase(self, state: State, number: int, arrivals: int, tx_bytes: int) -> bool:
        """Whether a barrier's phase ends with these arrivals and bytes."""
        barrier = state.barriers[number]
        if barrier is None:
            return False
        return barrier.arrivals == arrivals and not barrier.tx_bytes + tx_bytes

    def end(self, state: State) -> Fault | None:
        """What is wrong with a state in which nothing more can happen; None where all is done."""
        waits = [
            f"{group.name} can't {words(group.steps[at])}"
            for group, at in zip(self._groups, state.at, strict=True)
            if at < len(group.steps)
        ]
        if waits:
            return Fault("deadlock", "; ".join(waits))
        for cta, readers in enumerate(self._readers):
            for slot in range(self._slots):
                visits = {self._before(state, r, Multiply, slot) for r in readers}
                landed = state.landed[cta * self._slots + slot]
                if any(landed != visit * self._copies for visit in visits):
                    return Fault("left too early", f"slot {slot} was loaded for nobody")
            for r in readers if self._begins else ():
                done, wanted = self._before(state, r, Multiply), self._begins[-1]
                if done != wanted:
                    words_ = f"{self._groups[r].name} has summed {done} slots, not {wanted}"
                    return Fault("wrong sum", words_)
        return None

    # ---- one step of one group

    def _take(self, state: State, i: int, step: Step) -> State | Fault | None:
        """The state after group ``i`` takes its step; None where it must wait."""
        cta = self._groups[i].cta
        match step.op:
            case Wait(barrier, parity):
                number = self._barrier(cta, barrier)
                found = state.barriers[number]
                if found is None:
                    return Fault("used before it is initialised", self._words(number))
                return None if found.parity == parity else self._advance(state, i)
            case Arrive(barrier, tx_bytes, peer):
                return self._arrive(state, i, step, cta ^ 1 if peer else cta, barrier, tx_bytes)
            case Load():
                return self._load(state, i, step, step.op)
            case Multiply(slot, fresh):
                return self._multiply(state, i, cta, slot, fresh)
            case MultiplyWait(pending):
                kept = _last(state.running[i], pending)
                return self._advance(state._replace(running=replaced(state.running, i, kept)), i)
            case ClusterWait():
                return self._advance(state, i) if self._cluster_is_here(state, i) else None
            case Init(barrier, count):
                return self._init(state, i, self._barrier(cta, barrier), count)
            case Fill() | Stage() | ReadFilled() | ReadStaged() | Store():
                return self._buffer(state, i, step.op)
            case StoreCommit():
                stores = tuple((buffer, True) for buffer, _ in state.stores[i])
                return self._advance(state._replace(stores=replaced(state.stores, i, stores)), i)
            case StoreWait(pending):
                committed = tuple(store for store in state.stores[i] if store[1])
                others = tuple(store for store in state.stores[i] if not store[1])
                left = (*_last(committed, pending), *others)
                return self._advance(state._replace(stores=replaced(state.stores, i, left)), i)
            case LoadFlag():
                return self._flag(state, i)
        return self._advance(state, i)

    def _advance(self, state: State, i: int) -> State | Fault:
        at = state.at[i] + 1
        if at == self._length[i] and (state.stores[i] or state.running[i]):
            words_ = f"{self._groups[i].name} exits while its shared memory is still being read"
            return Fault("left too early", words_)
        return state._replace(at=replaced(state.at, i, at))

    def _sync(self, state: State, i: int, op: Sync) -> Iterator[Moved]:
        """Warps that leave a named barrier together."""
        cta = self._groups[i].cta
        here = {
            j: self._groups[j].count
            for j in self._of_cta[cta]
            if state.at[j] < self._length[j] and self._groups[j].steps[state.at[j]].op == op
        }
        where = f" of CTA {cta}" if self._ctas > 1 else ""
        for party in parties(i, here, op.warps):
            after: State | Fault = state
            for j in party:
                if isinstance(after, State):
                    after = self._advance(after, j)
            who = f"{op.warps} warps"
            if self._come[cta, op.id] != op.warps:
                who = ", ".join(_count(self._groups[j]) for j in party)
            yield Move(who, f"leave barrier {op.id}{where}"), after

    def _cluster_is_here(self, state: State, i: int) -> bool:
        arrived = self._before(state, i, ClusterArrive)
        return all(
            at == self._length[j] or self._before(state, j, ClusterArrive) >= arrived
            for j, at in enumerate(state.at)
        )

    # ---- mbarriers

    def _barrier(self, cta: int, name: str) -> int:
        return cta * len(self._names) + self._number[name]

    def _init(self, state: State, i: int, number: int, count: int) -> State | Fault:
        if state.barriers[number] is not None:
            return Fault("initialised twice", self._words(number))
        if number not in self._fenced:
            return Fault("initialised without a fence", self._words(number))
        barriers = replaced(state.barriers, number, Barrier(0, count, 0))
        return self._advance(state._replace(barriers=barriers), i)

    def _arrive(
        self, state: State, i: int, step: Step, cta: int, name: str, tx_bytes: int
    ) -> State | Fault:
        if self._has_exited(state, cta):
            words_ = f"{self._groups[i].name} arrives at {name} of CTA {cta}, which has exited"
            return Fault("left too early", words_)
        times = step.count * self._groups[i].count
        after = self._signal(state, self._barrier(cta, name), times, times * tx_bytes)
        return after if isinstance(after, Fault) else self._advance(after, i)

    def _signal(self, state: State, number: int, arrivals: int, tx_bytes: int) -> State | Fault:
        """A barrier takes arrivals and bytes announced (or, below 0, delivered); a phase that is
        complete ends."""
        barrier = state.barriers[number]
        if barrier is None:
            return Fault("used before it is initialised", self._words(number))
        left = barrier.arrivals - arrivals
        if left < 0:
            return Fault("too many arrivals", f"{self._words(number)} takes {self._counts[number]}")
        after = Barrier(barrier.parity, left, barrier.tx_bytes + tx_bytes)
        if not after.arrivals and not after.tx_bytes:
            after = Barrier(barrier.parity ^ 1, self._counts[number], 0)
        return state._replace(barriers=replaced(state.barriers, number, after))

    def _words(self, number: int) -> str:
        cta, name = divmod(number, len(self._names))
        return self._names[name] + (f" of CTA {cta}" if self._ctas > 1 else "")

    # ---- slots

    def _load(self, state: State, i: int, step: Step, op: Load) -> State | Fault:
        cta = self._groups[i].cta
        copies = list(state.copies)
        for _ in range(step.count * self._groups[i].count):
            for to in range(self._ctas) if op.shared else (cta,):
                fault = self._may_be_read(state, to, op.slot)
                if fault is not None:
                    return fault
                copies.append(Flight(to, op.slot, self._barrier(to, op.barrier), op.tx_bytes))
        return self._advance(state._replace(copies=tuple(sorted(copies))), i)

    def _may_be_read(self, state: State, cta: int, slot: int) -> Fault | None:
        """What is wrong with a copy into the slot that starts now: someone may still read it."""
        on_their_way = sum(copy.cta == cta and copy.slot == slot for copy in state.copies)
        visit = (state.landed[cta * self._slots + slot] + on_their_way) // self._copies
        for r in self._readers[cta]:
            if slot in state.running[r]:
                words_ = f"slot {slot} is loaded while it is read by {self._groups[r].name}"
                return Fault("overwritten while read", words_)
            if self._before(state, r, Multiply, slot) < visit:
                words_ = f"slot {slot} is loaded before it is read by {self._groups[r].name}"
                return Fault("overwritten before read", words_)
        return None

    def _land(self, state: State, at: int, copy: Flight) -> Moved:
        slot = copy.cta * self._slots + copy.slot
        told = f"slot {copy.slot}, told to {self._words(copy.barrier)}"
        move = Move("TMA", f"a copy of {copy.tx_bytes} bytes lands in {told}")
        if self._has_exited(state, copy.cta):
            return move, Fault(
                "left too early", f"a copy lands in CTA {copy.cta}, which has exited"
            )
        rest = state._replace(
            landed=replaced(state.landed, slot, state.landed[slot] + 1),
            copies=state.copies[:at] + state.copies[at + 1 :],
        )
        return move, self._signal(rest, copy.barrier, 0, -copy.tx_bytes)

    def _multiply(self, state: State, i: int, cta: int, slot: int, fresh: bool) -> State | Fault:
        if self._begins and fresh != (self._before(state, i, Multiply) in self._begins):
            does = "drops the sums of its own unit" if fresh else "is added to another unit's sums"
            return Fault("wrong sum", f"slot {slot}, by {self._groups[i].name}, {does}")
        visit = self._before(state, i, Multiply, slot)
        expected = (visit + 1) * self._copies
        landed = state.landed[cta * self._slots + slot]
        if landed < expected:
            return Fault("read before written", f"slot {slot}, visit {visit}")
        if landed > expected:
            return Fault("overwritten before read", f"slot {slot}, visit {visit}")
        running = (*state.running[i], slot)
        return self._advance(state._replace(running=replaced(state.running, i, running)), i)

    def _has_exited(self, state: State, cta: int) -> bool:
        return all(state.at[i] == self._length[i] for i in self._of_cta[cta])

    # ---- staging buffers and the flag

    def _buffer(
        self, state: State, i: int, op: Fill | Stage | ReadFilled | ReadStaged | Store
    ) -> State | Fault:
        """A buffer's accesses. All warps of the warpgroup must have written to it as often as
        this one: fewer have not yet, more have done so too early."""
        buffer, me = op.buffer, self._groups[i]
        for j in self._warpgroup[i]:
            other = self._groups[j].name
            if isinstance(op, Fill | Stage) and any(b == buffer for b, _ in state.stores[j]):
                words_ = f"buffer {buffer} is written while a TMA store of {other} reads it"
                return Fault("overwritten while read", words_)
            if isinstance(op, Fill):
                continue
            for kind in (Fill,) if isinstance(op, ReadFilled | Stage) else (Fill, Stage):
                mine = self._before(state, i, kind, buffer)
                theirs = self._before(state, j, kind, buffer)
                if theirs != mine:
                    when = "read before written" if theirs < mine else "overwritten before read"
                    return Fault(
                        when, f"buffer {buffer}: {other}'s part is not what {me.name} takes"
                    )
            if isinstance(op, Store) and self._before(state, j, Unfenced, buffer):
                words_ = f"{other} has not fenced what it staged in buffer {buffer}"
                return Fault("read before written", words_)
        if isinstance(op, Store):
            stores = (*state.stores[i], (buffer, False))
            state = state._replace(stores=replaced(state.stores, i, stores))
        return self._advance(state, i)

    def _flag(self, state: State, i: int) -> State | Fault:
        mine = self._before(state, i, LoadFlag)
        written = sum(self._before(state, j, StoreFlag) for j in self._of_cta[self._groups[i].cta])
        if written == mine + 1:
            return self._advance(state, i)
        kind = "read before written" if written <= mine else "overwritten before read"
        return Fault(kind, f"the flag, by {self._groups[i].name}")

    def _before(self, state: State, i: int, kind: type[Op], of: int = ANY) -> int:
        """How many operations of a kind group ``i`` has done, of a slot or buffer."""
        return self._done[i][state.at[i]][kind, of]


def _last(items: tuple[T, ...], count: int) -> tuple[T, ...]:
    return items[max(0, len(items) - count) :]


def _comes(group: Warps, number: int) -> bool:
    return any(isinstance(step.op, Sync) and step.op.id == number for step in group.steps)


def _count(group: Warps) -> str:
    return group.name if group.count == 1 else f"{group.count} warps from {group.name} on"
