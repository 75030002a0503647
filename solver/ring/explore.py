"""Bounded check of barrier programs: every order in which their steps can happen.

Any program of ``solver.ring.program``'s steps can be checked, the description's or one taken from
a compiled kernel. An mbarrier is played as the hardware has it: a phase completes when its
arrivals are all in and its bytes delivered; a wait passes while the current phase has the other
parity, whichever phase that is, so that a barrier that runs a whole turn ahead is seen for what
it is. Copies land at any time after they were started, products read their slot until they are
waited for.

What is found: a deadlock, a copy into a slot whose products still run or were not issued yet, a
product issued on a slot that does not hold what was waited for, an arrival beyond a phase's
count, bytes beyond what was expected. Each comes with the steps that lead there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from solver.ring.program import Arrive, Load, Multiply, MultiplyWait, Ring, Step, Sync, Wait

STATES_MAX = 300_000


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong, and the steps that lead there, in words."""

    kind: str
    words: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        steps = "\n".join(f"  {at}. {step}" for at, step in enumerate(self.trace, start=1))
        return f"{self.kind}: {self.words}\n{steps}"


class TooManyStates(Exception):
    """The bounded check is larger than STATES_MAX states."""


@dataclass(frozen=True, slots=True)
class Warps:
    """``count`` warps that walk the same program in step: one place among the others' orders."""

    name: str
    steps: tuple[Step, ...]
    count: int = 1


@dataclass(frozen=True, slots=True)
class _State:
    """Where everything stands. Tuples, so that states can be told apart.

    ``at`` is the next step of each group of warps; ``barriers`` are (parity of the phase that
    runs, arrivals left, bytes left); ``copies`` are those on their way, as (slot, barrier, bytes);
    ``landed`` counts the copies that each slot has received; ``running`` lists the slots that each
    group's products still read, oldest first.
    """

    at: tuple[int, ...]
    barriers: tuple[tuple[int, int, int], ...]
    copies: tuple[tuple[int, int, int], ...]
    landed: tuple[int, ...]
    running: tuple[tuple[int, ...], ...]


class _Machine:
    """Groups of warps over numbered barriers, and what a slot must hold when it is read."""

    def __init__(self, groups: Sequence[Warps], counts: Mapping[str, int], copies: int) -> None:
        self.groups = groups
        self.barriers = list(counts)
        self.counts = list(counts.values())
        self.number = {name: i for i, name in enumerate(self.barriers)}
        steps = [step for group in groups for step in group.steps]
        slots = 1 + max((s.slot for s in steps if isinstance(s, Load | Multiply)), default=-1)
        # How often each group has read each slot before each of its steps.
        self.visits = [_visits(group.steps, slots) for group in groups]
        self.readers = [
            i for i, g in enumerate(groups) if any(isinstance(s, Multiply) for s in g.steps)
        ]
        self.copies = copies
        self.start = _State(
            at=(0,) * len(groups),
            barriers=tuple((0, count, 0) for count in self.counts),
            copies=(),
            landed=(0,) * slots,
            running=((),) * len(groups),
        )

    def done(self, state: _State) -> bool:
        """Whether every program has ended."""
        return all(at == len(g.steps) for at, g in zip(state.at, self.groups, strict=True))

    def moves(self, state: _State) -> Iterator[tuple[str, _State | Fault]]:
        """Every step that can happen next, in words, and what comes of it."""
        for copy in sorted(set(state.copies)):
            yield self._land(state, copy)
        synced: set[str] = set()
        for i, group in enumerate(self.groups):
            if state.at[i] == len(group.steps):
                continue
            step = group.steps[state.at[i]]
            if isinstance(step, Sync):
                if step.name not in synced:
                    synced.add(step.name)
                    yield from self._sync(state, step)
                continue
            result = self._take(state, i, step)
            if result is not None:
                yield f"{group.name}: {words(step)}", result

    def stuck(self, state: _State) -> str:
        """What each warp that has not ended waits for."""
        return "; ".join(
            f"{group.name} can't {words(group.steps[at])}"
            for group, at in zip(self.groups, state.at, strict=True)
            if at < len(group.steps)
        )

    def _take(self, state: _State, i: int, step: Step) -> _State | Fault | None:
        """The state after group ``i`` takes its step; None where it must wait."""
        match step:
            case Wait(barrier, parity):
                if state.barriers[self.number[barrier]][0] == parity:
                    return None
                return self._advance(state, i)
            case Arrive(barrier, count, tx_bytes):
                number = self.number[barrier]
                phase, left, bytes_left = state.barriers[number]
                left -= count * self.groups[i].count
                if left < 0:
                    return Fault("too many arrivals", f"{barrier} takes {self.counts[number]}", ())
                after = (phase, left, bytes_left + tx_bytes * self.groups[i].count)
                return self._advance(self._with_barrier(state, number, after), i)
            case Load(slot, barrier, tx_bytes):
                fault = self._may_be_read(state, slot)
                if fault is not None:
                    return fault
                copies = tuple(sorted((*state.copies, (slot, self.number[barrier], tx_bytes))))
                return self._advance(replace(state, copies=copies), i)
            case Multiply(slot):
                visit = self.visits[i][state.at[i]][slot]
                expected = (visit + 1) * self.copies
                if state.landed[slot] < expected:
                    return Fault("read before written", f"slot {slot}, visit {visit}", ())
                if state.landed[slot] > expected:
                    return Fault("overwritten before read", f"slot {slot}, visit {visit}", ())
                running = (*state.running[i], slot)
                return self._advance(_at(state, "running", i, running), i)
            case MultiplyWait(pending):
                running = state.running[i]
                kept = running[len(running) - pending :] if pending else ()
                return self._advance(_at(state, "running", i, kept), i)
        raise TypeError(f"no such step: {step}")

    def _may_be_read(self, state: _State, slot: int) -> Fault | None:
        """What is wrong with a copy into the slot that starts now: someone may still read it."""
        on_their_way = sum(copy[0] == slot for copy in state.copies)
        visit = (state.landed[slot] + on_their_way) // self.copies
        for r in self.readers:
            if slot in state.running[r]:
                words_ = f"slot {slot} is loaded while it is read by {self.groups[r].name}"
                return Fault("overwritten while read", words_, ())
            if self.visits[r][state.at[r]][slot] < visit:
                words_ = f"slot {slot} is loaded before it is read by {self.groups[r].name}"
                return Fault("overwritten before read", words_, ())
        return None

    def _land(self, state: _State, copy: tuple[int, int, int]) -> tuple[str, _State | Fault]:
        slot, number, tx_bytes = copy
        at = state.copies.index(copy)
        landed = _at(state, "landed", slot, state.landed[slot] + 1)
        rest = replace(landed, copies=state.copies[:at] + state.copies[at + 1 :])
        phase, left, bytes_left = state.barriers[number]
        after = self._with_barrier(rest, number, (phase, left, bytes_left - tx_bytes))
        name = f"TMA: a copy of {tx_bytes} bytes lands in slot {slot}"
        return f"{name}, told to {self.barriers[number]}", after

    def _with_barrier(self, state: _State, number: int, value: tuple[int, int, int]) -> _State:
        """The state with a barrier's new value; a phase that is complete ends."""
        phase, left, bytes_left = value
        if not left and not bytes_left:
            value = (phase ^ 1, self.counts[number], 0)
        return _at(state, "barriers", number, value)

    def _sync(self, state: _State, step: Sync) -> Iterator[tuple[str, _State]]:
        """All warps that a named barrier takes leave it together."""
        here = [
            i
            for i, group in enumerate(self.groups)
            if state.at[i] < len(group.steps) and group.steps[state.at[i]] == step
        ]
        if sum(self.groups[i].count for i in here) == step.warps:
            for i in here:
                state = self._advance(state, i)
            yield f"{step.warps} warps leave {step.name}", state

    @staticmethod
    def _advance(state: _State, i: int) -> _State:
        return _at(state, "at", i, state.at[i] + 1)


def _at(state: _State, name: str, i: int, value: object) -> _State:
    """The state with one item of one of its tuples replaced."""
    items = getattr(state, name)
    return replace(state, **{name: (*items[:i], value, *items[i + 1 :])})


def _visits(steps: Sequence[Step], slots: int) -> list[tuple[int, ...]]:
    """How often each slot was read before each step, and at the end."""
    seen = [0] * slots
    visits = [tuple(seen)]
    for step in steps:
        if isinstance(step, Multiply):
            seen[step.slot] += 1
        visits.append(tuple(seen))
    return visits


def explore(groups: Sequence[Warps], counts: Mapping[str, int], copies: int) -> Fault | int:
    """The first fault in any order of steps, by the shortest trace, or the number of states.

    ``counts`` are the arrivals that complete a phase of each barrier, ``copies`` the bulk copies
    that fill a slot. Raises TooManyStates.
    """
    machine = _Machine(groups, counts, copies)
    before: dict[_State, tuple[_State, str] | None] = {machine.start: None}
    queue = deque([machine.start])
    while queue:
        state = queue.popleft()
        moved = False
        for name, result in machine.moves(state):
            moved = True
            if isinstance(result, Fault):
                return replace(result, trace=(*_trace(before, state), name))
            if result not in before:
                before[result] = (state, name)
                queue.append(result)
        if len(before) > STATES_MAX:
            raise TooManyStates(f"more than {STATES_MAX} states")
        if not moved and not machine.done(state):
            return Fault("deadlock", machine.stuck(state), _trace(before, state))
    return len(before)


def explore_ring(ring: Ring, units: Sequence[int]) -> Fault | int:
    """The bounded check of a ring's own programs; MATH warps as one and all the others."""
    programs = ring.programs(units)
    groups = [Warps(f"dma{w}", programs[f"dma{w}"]) for w in range(ring.dma_warps)]
    groups.append(Warps("math0", programs["math0"]))
    if ring.math_warps > 1:
        groups.append(Warps("the other MATH warps", programs["math0"], ring.math_warps - 1))
    return explore(groups, ring.counts(), ring.copies)


def _trace(before: Mapping[_State, tuple[_State, str] | None], state: _State) -> tuple[str, ...]:
    steps = []
    while (previous := before[state]) is not None:
        state, name = previous
        steps.append(name)
    return tuple(reversed(steps))


def words(step: Step) -> str:
    """A step in words."""
    match step:
        case Wait(barrier, parity):
            return f"wait for {barrier} to complete parity {parity}"
        case Arrive(barrier, count, tx_bytes):
            bytes_ = f", {tx_bytes} bytes expected" if tx_bytes else ""
            times = f" {count} times" if count > 1 else ""
            return f"arrive at {barrier}{times}{bytes_}"
        case Load(slot, barrier, tx_bytes):
            return f"start a copy of {tx_bytes} bytes into slot {slot}, told to {barrier}"
        case Multiply(slot):
            return f"multiply from slot {slot}"
        case MultiplyWait(pending):
            return f"wait until at most {pending} products run"
        case Sync(name, warps):
            return f"wait for {warps} warps at {name}"
