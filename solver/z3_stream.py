"""Induction with Z3: norm_activation's rings hold for any number of chunks and any depth.

A slot, whatever its visits (``solver.z3_stream_slot`` and ``z3_stream_handover``). The whole block:
counters of chunks say who waits for whom, at slots and at the barriers of teams; Z3 shows that no
state within their bounds has every unfinished warp waiting, for every depth and any number of
chunks of each group. A team:
no warp reads a sum's parts, or stores what others put into a slot, before all have come, and none
writes over a line of scratch that another still reads. And that no named barrier has two uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import z3

from solver.ring.stream import Stream
from solver.ring.teams import LINES, Teams
from solver.z3_induction import Lemma, Step, prove
from solver.z3_stream_handover import Mbarriers, Named

SLOT_LEMMAS = (
    Lemma("waits", "no wait ends in another phase than the one it means"),
    Lemma("arrivals", "no warp arrives twice in one phase, and none beyond a count"),
    Lemma("fills", "a slot is filled only after all of its group have read it, stores included"),
    Lemma("reads", "a slot is read only with all of this visit there, none of the next"),
)


def prove_stream(stream: Stream) -> tuple[Lemma, ...]:
    """Prove the protocol for a block's warps, whatever its depth and its chunks.

    Raises ProofError naming the statement that does not hold.
    """
    context = z3.Context()
    return (
        *prove_slot(context, stream),
        _prove_progress(context, stream),
        *prove_team(stream),
        _prove_ids(context, stream),
    )


# ---- a slot


def prove_slot(context: z3.Context, stream: Stream, group: int = 0) -> Iterator[Lemma]:
    """Prove a slot's hand-over, whatever the number of visits. Raises ProofError."""
    slot = Named(context, stream) if stream.named else Mbarriers(context, stream, group)
    invariant = slot.invariant()
    prove(context, "slot, start", z3.Implies(slot.begun(), invariant))
    yield Lemma("start", "the invariant holds before the first step")
    for step in slot.steps():
        step.prove(context, invariant)
    yield from SLOT_LEMMAS
    if isinstance(slot, Named):
        prove(context, "slot, left over", z3.Implies(invariant, slot.ends_even()))
        yield Lemma(
            "left over", "nobody has arrived at a named barrier for a phase that never ends"
        )


# ---- progress


class _Block:
    """Where the warps of a block are: chunks loaded, read and given back. Groups that load for
    themselves have nothing in common, so that one of them is enough."""

    def __init__(self, context: z3.Context, stream: Stream) -> None:
        self.context = context
        self.stream = stream
        self.own = not stream.producers
        self.groups = range(1 if self.own else stream.groups)
        self.loaders = range(stream.loaders)
        self.warps = [(g, y) for g in self.groups for y in range(stream.group_warps)]
        self.depth, self.lag = z3.Ints("depth lag", context)
        self.total = [z3.Int(f"total_{g}", context) for g in self.groups]
        self.loaded = {
            (x, g): z3.Int(f"loaded_{x}_{g}", context) for x in self.loaders for g in self.groups
        }
        self.read, self.freed, self.met = (
            {w: z3.Int(f"{name}_{w[0]}_{w[1]}", context) for w in self.warps}
            for name in ("read", "freed", "met")
        )
        # At its team's barrier; at the load of its own that follows a slot it gave back.
        self.meets, self.loads = (
            {w: z3.Bool(f"{name}_{w[0]}_{w[1]}", context) for w in self.warps}
            for name in ("meets", "loads")
        )
        self.turn = [z3.Int(f"turn_{x}", context) for x in self.loaders]
        self.next = [z3.Int(f"next_{x}", context) for x in self.loaders]

    def count(self, claims: list[tuple[Any, int]]) -> Any:
        """How many arrive, each where its claim holds."""
        zero = z3.IntVal(0, self.context)
        return z3.Sum(zero, *(z3.If(claim, times, 0) for claim, times in claims))

    def group(self, g: int) -> list[tuple[int, int]]:
        return [w for w in self.warps if w[0] == g]

    def at_full(self, w: tuple[int, int]) -> Any:
        """Whether a consumer waits for its next chunk."""
        return z3.And(z3.Not(self.meets[w]), z3.Not(self.loads[w]), self.read[w] < self.total[w[0]])

    def finished(self, w: tuple[int, int]) -> Any:
        return z3.And(
            z3.Not(self.meets[w]), z3.Not(self.loads[w]), self.freed[w] == self.total[w[0]]
        )

    # ---- what holds everywhere

    def bounds(self) -> Iterator[Any]:
        stream = self.stream
        yield stream.enough(self.depth, self.lag)
        yield from (self.depth >= 1, self.lag >= 0, *(total >= 0 for total in self.total))
        if not stream.keeps_row:
            yield self.lag == 0
        for w in self.warps:
            yield from self._consumer(w)
        for x in self.loaders:
            yield from self._own(x) if self.own else self._producer(x)
        # Warps of a team that are alike may be told apart by how far they are; so may producers.
        for w in self.warps:
            for z in self.team(w):
                if z[1] == w[1] + 1 and (w[1] in self.loaders) == (z[1] in self.loaders):
                    yield self.freed[w] <= self.freed[z]
        yield from (one <= other for one, other in pairwise(self.next) if not self.own)

    def _consumer(self, w: tuple[int, int]) -> Iterator[Any]:
        read, freed, total = self.read[w], self.freed[w], self.total[w[0]]
        yield from (freed >= 0, freed <= read, read <= total)
        keeps = z3.If(self.meets[w], self.lag + 1, self.lag)
        yield read <= freed + keeps
        if not self.own or w[1] not in self.loaders:
            yield z3.Not(self.loads[w])
        if self.stream.team == 1:
            yield z3.Not(self.meets[w])
        yield z3.Not(z3.And(self.meets[w], self.loads[w]))
        # After its last chunk there is nothing more to wait for but its team.
        idle = z3.And(z3.Not(self.meets[w]), z3.Not(self.loads[w]), read == total)
        yield z3.Implies(idle, freed == total)
        yield from (read <= self.loaded[x, w[0]] for x in self.loaders if self.stream.arrives(x))
        for z in self.team(w):
            # A team's warps come to the same places in the same order.
            behind = z3.And(self.read[z] <= read, freed >= self.freed[z])
            yield z3.Implies(
                self.met[z] < self.met[w], z3.And(self.meets[z], self.met[w] == self.met[z] + 1)
            )
            before = z3.And(self.meets[w], self.met[z] == self.met[w], z3.Not(self.meets[z]))
            yield z3.Implies(before, z3.And(behind, z3.Not(self.finished(z))))
            # Whose next chunk is one that this warp, on its way here, has waited for.
            yield z3.Implies(z3.And(before, self.at_full(z)), self.read[z] < read)

    def team(self, w: tuple[int, int]) -> list[tuple[int, int]]:
        """The other warps of a team."""
        team = self.stream.team
        return [z for z in self.group(w[0]) if z != w and z[1] // team == w[1] // team]

    def _own(self, x: int) -> Iterator[Any]:
        """A consumer loads ``depth`` chunks ahead of those that it has given back."""
        w, loaded, total = (0, x), self.loaded[x, 0], self.total[0]
        ahead = self.freed[w] + self.depth
        waits = z3.And(loaded == ahead - 1, loaded < total, self.freed[w] >= 1)
        yield z3.Implies(self.loads[w], waits)
        yield z3.Implies(z3.Not(self.loads[w]), loaded == z3.If(ahead < total, ahead, total))

    def _producer(self, x: int) -> Iterator[Any]:
        """Chunk ``next`` of group ``turn`` comes after it of all groups before."""
        turn, following = self.turn[x], self.next[x]
        yield from (turn >= 0, turn < len(self.groups), following >= 0)
        for g in self.groups:
            through = following + z3.If(turn > g, 1, 0)
            total = self.total[g]
            yield self.loaded[x, g] == z3.If(through < total, through, total)
            yield z3.Implies(turn == g, z3.Or(following < total, self.all_loaded(x)))

    def all_loaded(self, x: int) -> Any:
        return z3.And(*(self.loaded[x, g] == self.total[g] for g in self.groups))

    # ---- who waits

    def waits(self) -> Iterator[Any]:
        """For each warp: it is done or waits."""
        for w in self.warps:
            yield z3.Or(self.finished(w), self._waits(w))
        for x in self.loaders if not self.own else ():
            waits = (
                z3.And(self.turn[x] == g, self._waits_for_empty(g, self.next[x], x))
                for g in self.groups
            )
            yield z3.Or(self.all_loaded(x), *waits)

    def _waits(self, w: tuple[int, int]) -> Any:
        ways = [z3.And(self.at_full(w), self._waits_for_full(w))]
        if self.own and w[1] in self.loaders:
            chunk = self.loaded[w[1], w[0]]
            ways += [z3.And(self.loads[w], self._waits_for_empty(w[0], chunk, w[1]))]
        for z in self.team(w):
            missing = z3.And(self.met[z] <= self.met[w], z3.Not(self.meets[z]))
            ways.append(z3.And(self.meets[w], missing))
        return z3.Or(*ways)

    def _waits_for_full(self, w: tuple[int, int]) -> Any:
        g, chunk, stream = w[0], self.read[w], self.stream
        each = 1 if stream.named else stream.arrivals
        come: list[tuple[Any, int]] = [
            (self.loaded[x, g] > chunk, each) for x in self.loaders if stream.arrives(x)
        ]
        if not stream.named:
            return self.count(come) < stream.full_count
        come += [
            (z3.Or(self.read[p] > chunk, z3.And(self.at_full(p), self.read[p] == chunk)), 1)
            for p in self.group(g)
        ]
        return self.count(come) < stream.named_warps

    def _waits_for_empty(self, g: int, chunk: Any, x: int) -> Any:
        """Whether chunk ``chunk`` of a group waits for the slot that it goes into."""
        stream = self.stream
        come: list[tuple[Any, int]] = [
            (self.freed[p] > chunk - self.depth, 1) for p in self.group(g)
        ]
        if not stream.named:
            return z3.And(chunk >= self.depth, self.count(come) < stream.empty_count)
        for other in self.loaders:
            here = z3.And(self.turn[other] == g, self.next[other] == chunk)
            come += [(z3.Or(self.loaded[other, g] > chunk, here), 1)]
        return z3.And(chunk >= self.depth, self.count(come) < stream.named_warps)

    def unfinished(self) -> Any:
        left = [z3.Not(self.finished(w)) for w in self.warps]
        if not self.own:
            left += [z3.Not(self.all_loaded(x)) for x in self.loaders]
        return z3.Or(*left)


def _prove_progress(context: z3.Context, stream: Stream) -> Lemma:
    """Some unfinished warp can go on in every state, for every depth that is enough."""
    block = _Block(context, stream)
    stuck = z3.And(*block.bounds(), *block.waits(), block.unfinished())
    prove(context, "progress", z3.Not(stuck))
    return Lemma("progress", "a warp can always go on, however deep the rings")


# ---- teams and ids


def prove_team(teams: Teams) -> tuple[Lemma, ...]:
    """Prove what a team's barrier and its lines of scratch are for, whatever the number of sums.
    Raises ProofError."""
    if teams.team == 1:
        return ()
    context = z3.Context()
    warps = range(teams.team)
    wrote, came, left, read = (
        [z3.Int(f"{name}_{w}", context) for w in warps]
        for name in ("wrote", "came", "left", "read")
    )
    phase = z3.Int("phase", context)
    here = z3.Sum(*(each - phase for each in came))
    parts = [phase >= 0, here < teams.team]
    for w in warps:
        parts += [read[w] <= left[w], left[w] <= came[w], came[w] <= wrote[w]]
        parts += [wrote[w] <= read[w] + 1, left[w] <= phase, phase <= came[w], came[w] <= phase + 1]
    invariant = z3.And(*parts)
    counters = [phase, *wrote, *came, *left, *read]
    begun = z3.And(*(counter == 0 for counter in counters))
    prove(context, "team, start", z3.Implies(begun, invariant))
    for w in warps:
        number, mine = wrote[w], read[w]
        earlier = (
            z3.Implies(
                z3.And(number >= back, teams.line(number) == teams.line(number - back)),
                z3.And(*(each > number - back for each in read)),
            )
            for back in range(1, LINES + 1)
        )
        writes = Step(f"warp{w} writes", number == mine, z3.And(*earlier), {number: number + 1})
        ends = here + 1 == teams.team
        comes = Step(
            f"warp{w} comes",
            came[w] < wrote[w],
            z3.And(came[w] == phase, here < teams.team),
            {came[w]: came[w] + 1, phase: z3.If(ends, phase + 1, phase)},
        )
        leaves = Step(
            f"warp{w} leaves",
            z3.And(left[w] < came[w], phase >= came[w]),
            phase == left[w] + 1,
            {left[w]: left[w] + 1},
        )
        there = z3.And(*(each > mine for each in wrote))
        reads = Step(f"warp{w} reads", mine < left[w], there, {mine: mine + 1})
        for step in (writes, comes, leaves, reads):
            step.prove(context, invariant)
    return (
        Lemma("meetings", "a team's warp goes on only when all have come as often"),
        Lemma("lines", "a line of scratch is written only when all have read what was in it"),
    )


def _prove_ids(context: z3.Context, stream: Stream) -> Lemma:
    """No two uses of a named barrier are the same one, nor the whole block's."""
    slots, one, other, team = z3.Ints("slots one other team", context)
    teams = stream.warps // stream.team if stream.team > 1 else 0
    within = z3.And(one >= 0, one < slots, other >= 0, other < slots)
    distinct = [z3.BoolVal(True, context)]
    if stream.named:
        full, empty = stream.full_id(one), stream.empty_id(one)
        others = [stream.full_id(other), stream.empty_id(other)]
        distinct += [full > 0, empty > 0, full != others[1]]
        distinct += [z3.Implies(one != other, z3.And(full != others[0], empty != others[1]))]
        if teams:
            own = stream.team_id(team)
            apart = z3.And(own > 0, own != full, own != empty)
            distinct += [z3.Implies(z3.And(team >= 0, team < teams), apart)]
    prove(context, "ids", z3.Implies(within, z3.And(*distinct)))
    return Lemma("ids", "every team and every slot has named barriers of its own")
