"""The ring's protocol by induction: safe for every number of visits, and never stuck.

What ``solver.ring.explore`` tries for a few iterations is shown here for all of them.

One slot. Counters stand for where each warp is: a DMA warp x has started ``started[x]`` visits and
``landed[x]`` of its loads are there; a MATH warp y has read ``read[y]`` visits and given back
``freed[y]``; ``full`` and ``empty`` count the barriers' completed phases. Waits are guarded by
parity alone, as the hardware has them. An invariant ties the counters; Z3 shows that it holds at
the start, that each step keeps it, and that it makes every step safe: no wait passes on another
phase than the one meant, no arrival exceeds its phase, a slot is loaded only when every MATH warp
has given back what was in it, and read only when all of this visit is there, none of the next.

The whole ring, of any depth: each warp walks the slots in order, so that counters of iterations
say who waits for whom. Z3 shows that no state within their bounds has every unfinished warp
waiting, for every depth above the lag with which MATH warps give slots back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from solver.errors import ProofError
from solver.ring.program import Ring


@dataclass(frozen=True, slots=True)
class Lemma:
    """One statement that Z3 proved, in words."""

    name: str
    words: str


class _Slot:
    """Counters of one slot."""

    def __init__(self, context: z3.Context, dma_warps: int, math_warps: int) -> None:
        def counters(name: str, count: int) -> list[Any]:
            return [z3.Int(f"{name}_{i}", context) for i in range(count)]

        self.started = counters("started", dma_warps)
        self.landed = counters("landed", dma_warps)
        self.read = counters("read", math_warps)
        self.freed = counters("freed", math_warps)
        self.full, self.empty = z3.Ints("full empty", context)

    def all(self) -> list[Any]:
        """Every counter, in one order."""
        each = [*self.started, *self.landed, *self.read, *self.freed]
        return [*each, self.full, self.empty]

    def invariant(self) -> z3.BoolRef:
        """What holds between all steps."""
        dma = [
            z3.And(
                self.full <= s,
                s <= self.full + 1,
                s <= self.empty + 1,
                self.full <= at,
                at <= s,
            )
            for s, at in zip(self.started, self.landed, strict=True)
        ]
        math = [
            z3.And(
                self.empty <= f,
                f <= self.empty + 1,
                f <= r,
                r <= f + 1,
                r <= self.full,
            )
            for r, f in zip(self.read, self.freed, strict=True)
        ]
        # A phase that is complete has ended: someone is behind in the one that runs.
        running = [
            z3.Or(*(at == self.full for at in self.landed)),
            z3.Or(*(f == self.empty for f in self.freed)),
        ]
        order = z3.And(self.empty >= 0, self.empty <= self.full, self.full <= self.empty + 1)
        return z3.And(*dma, *math, *running, order)


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of one warp: when it can be taken, what must hold then, and what it changes."""

    name: str
    guard: z3.BoolRef
    safe: z3.BoolRef
    after: dict[Any, Any]


def prove_ring(ring: Ring) -> tuple[Lemma, ...]:
    """Prove the protocol for a ring's warps, whatever the number of iterations and units.

    Raises ProofError naming the statement that does not hold.
    """
    context = z3.Context()
    return (
        *_prove_slot(context, ring),
        _prove_progress(context, ring),
    )


def _prove_slot(context: z3.Context, ring: Ring) -> Iterator[Lemma]:
    now = _Slot(context, ring.dma_warps, ring.math_warps)
    invariant = now.invariant()
    start = z3.And(*(counter == 0 for counter in now.all()))
    _prove(context, "start", z3.Implies(start, invariant))
    yield Lemma("start", "the invariant holds before the first step")
    for step in _steps(now, ring):
        _prove(context, f"{step.name}, safe", z3.Implies(z3.And(invariant, step.guard), step.safe))
        moved = z3.substitute(invariant, *step.after.items())
        _prove(context, f"{step.name}, kept", z3.Implies(z3.And(invariant, step.guard), moved))
    yield Lemma("waits", "no wait passes on another phase than the one it means")
    yield Lemma("arrivals", "no warp arrives twice in one phase of a barrier")
    yield Lemma("loads", "a slot is loaded only after every MATH warp has given it back")
    yield Lemma("reads", "a slot is read only with all loads of its visit landed, none of the next")


def _steps(now: _Slot, ring: Ring) -> Iterator[_Step]:
    """Every step on one slot. By symmetry among equal warps one of each kind is enough; all are
    listed, since Z3 decides each in milliseconds."""
    for x, (started, landed) in enumerate(zip(now.started, now.landed, strict=True)):
        # A wait passes while the phase that runs has another parity than the one waited for.
        yield _Step(
            name=f"dma{x} loads",
            guard=now.empty % 2 != ring.freed_parity(started),
            safe=z3.And(
                started == now.empty,
                started == now.full,
                *(freed >= started for freed in now.freed),
                *(read == freed for read, freed in zip(now.read, now.freed, strict=True)),
            ),
            after={started: started + 1},
        )
        others = [at == now.full + 1 for i, at in enumerate(now.landed) if i != x]
        ends = z3.And(*others, *(s == now.full + 1 for s in now.started))
        yield _Step(
            name=f"dma{x} lands",
            guard=landed < started,
            safe=landed == now.full,
            after={landed: landed + 1, now.full: z3.If(ends, now.full + 1, now.full)},
        )
    for y, (read, freed) in enumerate(zip(now.read, now.freed, strict=True)):
        yield _Step(
            name=f"math{y} reads",
            guard=z3.And(read == freed, now.full % 2 != ring.filled_parity(read)),
            safe=z3.And(
                now.full == read + 1,
                *(at == read + 1 for at in now.landed),
                *(s == read + 1 for s in now.started),
            ),
            after={read: read + 1},
        )
        ends = z3.And(*(f == now.empty + 1 for i, f in enumerate(now.freed) if i != y))
        yield _Step(
            name=f"math{y} frees",
            guard=freed < read,
            safe=freed == now.empty,
            after={freed: freed + 1, now.empty: z3.If(ends, now.empty + 1, now.empty)},
        )


def _prove_progress(context: z3.Context, ring: Ring) -> Lemma:
    """Some unfinished warp can go on in every state, for every depth above the lag."""
    slots, total = z3.Ints("slots total", context)
    loaded = [z3.Int(f"loaded_{x}", context) for x in range(ring.dma_warps)]
    read = [z3.Int(f"read_{y}", context) for y in range(ring.math_warps)]
    freed = [z3.Int(f"freed_{y}", context) for y in range(ring.math_warps)]
    lag = ring.lag
    bounds = [
        slots > lag,
        *(z3.And(r >= f, r <= f + lag, r <= total) for r, f in zip(read, freed, strict=True)),
        *(z3.And(n <= total, *(n <= f + slots for f in freed)) for n in loaded),
        *(r <= n for r in read for n in loaded),
    ]
    stuck = [
        # Every copy has landed; a DMA warp waits for the slot of slots iterations before, a MATH
        # warp for the loads of the iteration it is at. Giving a slot back waits for nothing.
        *(z3.Or(n == total, *(f + slots <= n for f in freed)) for n in loaded),
        *(z3.Or(r == total, *(n <= r for n in loaded)) for r in read),
    ]
    unfinished = z3.Or(*(n < total for n in loaded), *(r < total for r in read))
    _prove(context, "progress", z3.Not(z3.And(*bounds, *stuck, unfinished)))
    return Lemma("progress", f"a ring of more than {lag} slots always has a warp that can go on")


def _prove(context: z3.Context, name: str, claim: z3.BoolRef) -> None:
    solver = z3.Solver(ctx=context)
    solver.add(z3.Not(claim))
    verdict = solver.check()
    if verdict == z3.sat:
        raise ProofError(f"ring protocol: {name} does not hold: {_state(solver.model())}")
    if verdict != z3.unsat:
        raise ProofError(f"ring protocol: {name}: Z3 could not decide")


def _state(model: z3.ModelRef) -> str:
    names: Sequence[str] = sorted(f"{d.name()} = {model[d]}" for d in model.decls())
    return ", ".join(names)
