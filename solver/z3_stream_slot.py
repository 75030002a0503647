"""What is counted of one slot of a norm_activation ring, however it is handed over.

Of each warp that works a slot counters say how often it has done what. Waits are guarded by what
the hardware knows: an mbarrier's parity, or that a named barrier's phase has ended. A phase ends
when as many have arrived as the barrier was made for, whoever they are. The 32 lanes of a loading
warp count together: a phase that takes them all does not end between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import z3

from solver.ring.stream import Stream
from solver.z3_induction import Step


class Slot:
    """What both kinds of barriers have: ``full`` and ``empty`` count the phases that have ended;
    ``storing`` is 1 while a warp's bulk store may read the slot."""

    def __init__(self, context: z3.Context, stream: Stream) -> None:
        self.stream = stream
        self.context = context
        self.loaders, self.consumers = range(stream.loaders), range(stream.group_warps)
        self.claimed, self.started, self.arrived = (
            self.each(name, self.loaders) for name in ("claimed", "started", "arrived")
        )
        self.read, self.freed, self.storing = (
            self.each(name, self.consumers) for name in ("read", "freed", "storing")
        )
        self.full, self.empty = z3.Ints("full empty", context)

    def each(self, name: str, of: range) -> list[Any]:
        return [z3.Int(f"{name}_{i}", self.context) for i in of]

    def all(self) -> list[Any]:
        return [
            *self.claimed,
            *self.started,
            *self.arrived,
            *self.read,
            *self.freed,
            *self.storing,
            self.full,
            self.empty,
        ]

    def begun(self) -> z3.BoolRef:
        return z3.And(*(counter == 0 for counter in self.all()))

    def given_back(self, visit: Any) -> z3.BoolRef:
        """All of the group have read all visits before this one, and no store does."""
        return z3.And(
            *(self.freed[y] == visit for y in self.consumers),
            *(self.read[y] == visit for y in self.consumers),
            *(self.storing[y] == 0 for y in self.consumers),
        )

    def stores(self, y: int) -> Iterator[Step]:
        """Bulk stores of a consumer, as many as it likes while it has the slot."""
        if not self.stream.bulk_stores:
            return
        storing, has_it = self.storing[y], self.freed[y] < self.read[y]
        true = z3.BoolVal(True, self.context)
        yield Step(
            f"consumer{y} stores", z3.And(has_it, storing == 0), true, {storing: storing + 1}
        )
        yield Step(f"consumer{y}'s store has read", storing == 1, true, {storing: storing - 1})

    def may_free(self, y: int) -> z3.BoolRef:
        """A consumer goes on after its bulk stores have read the slot."""
        stored = self.storing[y] == 0 if self.stream.drains else z3.BoolVal(True, self.context)
        return z3.And(self.freed[y] < self.read[y], stored)

    def common(self) -> Iterator[z3.BoolRef]:
        for y in self.consumers:
            read, freed, storing = self.read[y], self.freed[y], self.storing[y]
            yield from (freed <= read, read <= freed + 1, read <= self.full)
            yield from (storing >= 0, storing <= 1, z3.Implies(storing == 1, freed < read))
        for x in self.loaders:
            yield self.claimed[x] <= self.empty + 1
        yield self.empty >= 0
