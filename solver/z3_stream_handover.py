"""How a slot of a norm_activation ring is handed over: by mbarriers or by named barriers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import z3

from solver.ring.stream import Stream
from solver.z3_induction import Step
from solver.z3_stream_slot import Slot


class Mbarriers(Slot):
    """A slot with a full and an empty mbarrier."""

    def __init__(self, context: z3.Context, stream: Stream, group: int) -> None:
        super().__init__(context, stream)
        self._group = group
        self.landed = self.each("landed", self.loaders)

    def all(self) -> list[Any]:
        return [*super().all(), *self.landed]

    def invariant(self) -> z3.BoolRef:
        parts = list(self.common())
        for x in self.loaders:
            arrived, landed = self.arrived[x], self.landed[x]
            order = self._in_order(x)
            parts += [low <= high for low, high in pairwise(order)]
            parts += [self.claimed[x] <= self._ready(x) + 1]
            parts += [self.full <= at for at in (arrived, landed)]
            parts += [at <= self.full + 1 for at in (arrived, landed)]
            if self.stream.copies != "bulk":
                parts += [landed == (arrived if self.stream.copies == "async" else self.started[x])]
        for y in self.consumers:
            parts += [self.empty <= self.freed[y], self.freed[y] <= self.empty + 1]
        parts += [z3.Not(self._is_full()), z3.Not(self._is_empty())]
        return z3.And(*parts)

    def _in_order(self, x: int) -> list[Any]:
        """A loader's counters from the last of its steps to the first."""
        claimed, started = self.claimed[x], self.started[x]
        if self.stream.copies == "bulk":
            return [self.landed[x], started, self.arrived[x], claimed]
        return [self.arrived[x], started, claimed]

    def _ready(self, x: int) -> Any:
        """Visits after which a loader goes on to its next."""
        return self.arrived[x] if self.stream.copies == "vector" else self.started[x]

    def _arrivals(self) -> Any:
        each = self.stream.arrivals
        return z3.Sum(*(each * (arrived - self.full) for arrived in self.arrived))

    def _is_full(self) -> z3.BoolRef:
        """The running phase has all its arrivals, and of the bytes announced none is missing."""
        there = self._arrivals() == self.stream.full_count
        if self.stream.copies != "bulk":
            return there
        return z3.And(there, *(a == b for a, b in zip(self.arrived, self.landed, strict=True)))

    def _is_empty(self) -> z3.BoolRef:
        given = z3.Sum(*(freed - self.empty for freed in self.freed))
        return given == self.stream.empty_count

    def _ends(self, ends: z3.BoolRef, phase: Any, *moved: Any) -> dict[Any, Any]:
        """Counters that go up by one, and with them a phase if they end it."""
        after = {counter: counter + 1 for counter in moved}
        return {**after, phase: z3.If(z3.substitute(ends, *after.items()), phase + 1, phase)}

    def steps(self) -> Iterator[Step]:
        for x in self.loaders:
            yield self._claim(x)
            if self.stream.arrives(x):
                yield from getattr(self, f"_{self.stream.copies}")(x)
        for y in self.consumers:
            yield from self._consumer(y)

    def _claim(self, x: int) -> Step:
        claimed = self.claimed[x]
        return Step(
            f"loader{x} waits",
            z3.And(claimed == self._ready(x), self.empty % 2 != self.stream.freed_parity(claimed)),
            z3.And(claimed == self.empty, self.full == claimed, self.given_back(claimed)),
            {claimed: claimed + 1},
        )

    def _fill(self, x: int, guard: z3.BoolRef, *moved: Any) -> Step:
        started = self.started[x]
        safe = z3.And(self.full == started, self.given_back(started))
        return Step(f"loader{x} fills", guard, safe, {counter: counter + 1 for counter in moved})

    def _arrive(self, x: int, name: str, guard: z3.BoolRef, *moved: Any) -> Step:
        room = self._arrivals() + self.stream.arrivals <= self.stream.full_count
        safe = z3.And(self.arrived[x] == self.full, room)
        return Step(name, guard, safe, self._ends(self._is_full(), self.full, *moved))

    def _bulk(self, x: int) -> Iterator[Step]:
        claimed, started, arrived, landed = (
            of[x] for of in (self.claimed, self.started, self.arrived, self.landed)
        )
        yield self._arrive(x, f"loader{x} announces", arrived < claimed, arrived)
        yield self._fill(x, started < arrived, started)
        ends = self._ends(self._is_full(), self.full, landed)
        yield Step("a copy lands", landed < started, landed == self.full, ends)

    def _async(self, x: int) -> Iterator[Step]:
        started, arrived, landed = (of[x] for of in (self.started, self.arrived, self.landed))
        yield self._fill(x, started < self.claimed[x], started)
        yield self._arrive(x, f"loader{x}'s copies land", arrived < started, arrived, landed)

    def _vector(self, x: int) -> Iterator[Step]:
        started, arrived, landed = (of[x] for of in (self.started, self.arrived, self.landed))
        yield self._fill(x, started < self.claimed[x], started, landed)
        yield self._arrive(x, f"loader{x} arrives", arrived < started, arrived)

    def _consumer(self, y: int) -> Iterator[Step]:
        read, freed = self.read[y], self.freed[y]
        visit = self.stream.visit_read(self._group, read)
        yield Step(
            f"consumer{y} reads",
            z3.And(read == freed, self.full % 2 != self.stream.filled_parity(visit)),
            z3.And(
                self.full == visit + 1,
                *(at == visit + 1 for at in (*self.landed, *self.started)),
            ),
            {read: read + 1},
        )
        yield from self.stores(y)
        room = z3.Sum(*(each - self.empty for each in self.freed)) < self.stream.empty_count
        ends = self._ends(self._is_empty(), self.empty, freed)
        yield Step(
            f"consumer{y} gives back", self.may_free(y), z3.And(freed == self.empty, room), ends
        )


class Named(Slot):
    """A slot with two named barriers, filled ``total`` times. ``entered`` counts how often each
    loader has come to the empty one, ``came`` each consumer to the full one, ``gave`` how often it
    has arrived at the empty one."""

    def __init__(self, context: z3.Context, stream: Stream) -> None:
        super().__init__(context, stream)
        self.entered = self.each("entered", self.loaders)
        self.came, self.gave = (self.each(name, self.consumers) for name in ("came", "gave"))
        self.total = z3.Int("total", context)

    def all(self) -> list[Any]:
        return [*super().all(), *self.entered, *self.came, *self.gave]

    def begun(self) -> z3.BoolRef:
        return z3.And(super().begun(), self.total >= 0)

    def invariant(self) -> z3.BoolRef:
        parts, total = [*self.common(), self.total >= 0], self.total
        for x in self.loaders:
            claimed, started, arrived = self.claimed[x], self.started[x], self.arrived[x]
            entered = self.entered[x]
            parts += [arrived <= started, started <= claimed, claimed <= arrived + 1]
            parts += [claimed <= total, entered >= 0, entered <= claimed, claimed <= entered + 1]
            parts += [z3.Implies(entered == claimed, z3.Or(claimed == 0, arrived == claimed))]
            parts += [z3.Implies(z3.And(entered == claimed, claimed > 0), claimed < total)]
            parts += [self.full <= arrived, arrived <= self.full + 1]
            parts += [self.empty <= entered, entered <= self.empty + 1]
        for y in self.consumers:
            came, read, freed, gave = self.came[y], self.read[y], self.freed[y], self.gave[y]
            parts += [self.full <= came, came <= self.full + 1, came <= total]
            parts += [read <= came, came <= read + 1, z3.Implies(came > read, freed == read)]
            last = z3.And(freed == total, total > 0)
            parts += [gave == z3.If(last, freed - 1, freed)]
            parts += [self.empty <= gave, gave <= self.empty + 1]
        parts += [z3.Not(self._is(self._full_here())), z3.Not(self._is(self._empty_here()))]
        return z3.And(*parts)

    def _full_here(self) -> Any:
        return z3.Sum(*(at - self.full for at in (*self.arrived, *self.came)))

    def _empty_here(self) -> Any:
        return z3.Sum(*(at - self.empty for at in (*self.entered, *self.gave)))

    def _is(self, here: Any) -> z3.BoolRef:
        is_: z3.BoolRef = here == self.stream.named_warps
        return is_

    def _comes(self, name: str, guard: Any, counter: Any, *, full: bool, more: Any = None) -> Step:
        """A warp arrives at a barrier; ``more`` is whether it really does."""
        phase = self.full if full else self.empty
        here = self._full_here() if full else self._empty_here()
        comes = z3.BoolVal(True, self.context) if more is None else more
        moved = {counter: z3.If(comes, counter + 1, counter)}
        ends = z3.substitute(self._is(here), *moved.items())
        safe = z3.Implies(comes, z3.And(counter == phase, here < self.stream.named_warps))
        return Step(name, guard, safe, {**moved, phase: z3.If(ends, phase + 1, phase)})

    def steps(self) -> Iterator[Step]:
        for x in self.loaders:
            yield from self._loader(x)
        for y in self.consumers:
            yield from self._consumer(y)

    def _loader(self, x: int) -> Iterator[Step]:
        claimed, started, arrived = self.claimed[x], self.started[x], self.arrived[x]
        entered = self.entered[x]
        free = self.given_back(claimed)
        first = z3.And(claimed == 0, self.total > 0)
        yield Step(f"loader{x} begins", first, free, {claimed: claimed + 1})
        again = z3.And(claimed > 0, claimed == arrived, claimed < self.total, entered < claimed)
        yield self._comes(f"loader{x} comes", again, entered, full=False)
        leaves = z3.And(claimed > 0, entered == claimed, self.empty >= entered)
        safe = z3.And(self.empty == claimed, free)
        yield Step(f"loader{x} leaves", leaves, safe, {claimed: claimed + 1})
        yield Step(
            f"loader{x} fills",
            started < claimed,
            z3.And(self.full == started, self.given_back(started)),
            {started: started + 1},
        )
        if self.stream.arrives(x):
            yield self._comes(f"loader{x} arrives", arrived < started, arrived, full=True)

    def _consumer(self, y: int) -> Iterator[Step]:
        came, read, freed = self.came[y], self.read[y], self.freed[y]
        waits = z3.And(came == read, read == freed, read < self.total)
        yield self._comes(f"consumer{y} comes", waits, came, full=True)
        filled = (at == read + 1 for at in self.started)
        yield Step(
            f"consumer{y} reads",
            z3.And(came == read + 1, self.full >= came),
            z3.And(self.full == read + 1, *filled),
            {read: read + 1},
        )
        yield from self.stores(y)
        again = self.stream.gives_back(freed + 1 < self.total)
        again = z3.BoolVal(again, self.context) if isinstance(again, bool) else again
        gives = self._comes(
            f"consumer{y} gives back", self.may_free(y), self.gave[y], full=False, more=again
        )
        yield Step(gives.name, gives.guard, gives.safe, {**gives.after, freed: freed + 1})

    def ends_even(self) -> z3.BoolRef:
        """Once all is done, no barrier has arrivals of a phase that has not ended."""
        done = [at == self.total for at in (*self.arrived, *self.freed)]
        even = [at == self.full for at in (*self.arrived, *self.came)]
        even += [at == self.empty for at in (*self.entered, *self.gave)]
        return z3.Implies(z3.And(*done), z3.And(*even))
