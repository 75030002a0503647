"""The ring's protocol by induction: safe for every number of visits, and never stuck.

What ``solver.ring.explore`` tries for a few iterations is shown here for all of them.

One slot, in each CTA of a cluster. Counters stand for where each warp is: a DMA warp has passed
``waited`` waits, ``announced`` as many visits and ``started`` their copies, of which ``landed`` are
there, in each CTA that they fill; a MATH warp has read ``read`` visits and given back ``freed``, to
each CTA; ``full`` and ``empty`` count the barriers' completed phases. Waits are guarded by parity
alone, as the hardware has them, and a copy from the peer may land before its visit is announced. An
invariant ties the counters; Z3 shows that it holds at the start, that each step keeps it, and that
it makes every step safe: no wait passes on another phase than the one meant, no arrival and no
byte comes to another phase than its own, a slot is loaded only when every MATH warp has given back
what was in it, and read only when all of this visit is there, none of the next.

The whole ring, of any depth: each warp walks the slots in order, so that counters of iterations
say who waits for whom. Z3 shows that no state within their bounds has every unfinished warp
waiting, for every depth above the lag with which MATH warps give slots back. A MATH warp may also
wait at a barrier of the epilogue, for one of its CTA that is still at the ring.

Split-K: the counter of a tile makes one CTA the last, after all others have counted, for every
number of splits and in whatever order they come.

Launches of a stream: each may begin while others run, and waits for the one before it. A warp that
waits there waits for nothing of its own launch, so that the ring's steps are the same from then on;
that the one before has ended means, by induction over launches, that all before it have.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import z3

from solver.ring.program import Ring
from solver.z3_induction import Lemma, Step, prove


class _Slot:
    """Counters of one slot: by CTA and warp; of copies and of slots given back, by the CTA that
    they concern and the (CTA, warp) that they come from."""

    def __init__(self, context: z3.Context, ring: Ring) -> None:
        def counter(name: str, *where: int) -> Any:
            return z3.Int("_".join((name, *map(str, where))), context)

        self.ctas = range(ring.ctas)
        self.dma = [(c, x) for c in self.ctas for x in range(ring.dma_warps)]
        self.math = [(c, y) for c in self.ctas for y in range(ring.math_warps)]
        self.waited = {w: counter("waited", *w) for w in self.dma}
        self.announced = {w: counter("announced", *w) for w in self.dma}
        self.started = {w: counter("started", *w) for w in self.dma}
        self.landed = {
            d: {w: counter("landed", d, *w) for w in self.dma if ring.fills(w[1], w[0] ^ d)}
            for d in self.ctas
        }
        self.read = {w: counter("read", *w) for w in self.math}
        self.freed = {
            d: {w: counter("freed", d, *w) for w in self.math if ring.frees(w[0] ^ d)}
            for d in self.ctas
        }
        self.full = [counter("full", c) for c in self.ctas]
        self.empty = [counter("empty", c) for c in self.ctas]

    def all(self) -> list[Any]:
        """Every counter, in one order."""
        by_warp = (self.waited, self.announced, self.started, self.read)
        by_cta = (*self.landed.values(), *self.freed.values())
        return [x for each in (*by_warp, *by_cta) for x in each.values()] + self.full + self.empty

    def invariant(self) -> z3.BoolRef:
        """What holds between all steps."""
        parts = []
        for c, x in self.dma:
            waited, announced, started = (
                of[c, x] for of in (self.waited, self.announced, self.started)
            )
            full, empty = self.full[c], self.empty[c]
            parts += [full <= announced, started <= announced, announced <= waited]
            parts += [waited <= started + 1, waited <= empty + 1]
        for d in self.ctas:
            full, empty = self.full[d], self.empty[d]
            for w, landed in self.landed[d].items():
                parts += [full <= landed, landed <= full + 1, landed <= self.started[w]]
                parts += [self.started[w] <= landed + 1]
            for w, freed in self.freed[d].items():
                parts += [empty <= freed, freed <= empty + 1]
                parts += [freed <= self.read[w], self.read[w] <= freed + 1]
            parts += [self.read[d, y] <= full for c, y in self.math if c == d]
            # A phase that is complete has ended: someone is behind in the one that runs.
            own = [self.announced[w] for w in self.dma if w[0] == d]
            parts += [z3.Or(*(at == full for at in (*self.landed[d].values(), *own)))]
            parts += [z3.Or(*(freed == empty for freed in self.freed[d].values()))]
            parts += [empty >= 0]
        return z3.And(*parts)


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
    now = _Slot(context, ring)
    invariant = now.invariant()
    start = z3.And(*(counter == 0 for counter in now.all()))
    prove(context, "start", z3.Implies(start, invariant))
    yield Lemma("start", "the invariant holds before the first step")
    for step in (*_dma_steps(now, ring), *_math_steps(now, ring)):
        step.prove(context, invariant)
    yield Lemma("waits", "no wait passes on another phase than the one it means")
    yield Lemma("arrivals", "no warp arrives twice in one phase of a barrier")
    yield Lemma("bytes", "a copy lands in the phase it belongs to, in every CTA it fills")
    yield Lemma("loads", "a slot is loaded only after every MATH warp has given it back")
    yield Lemma("reads", "a slot is read only with all loads of its visit landed, none of the next")


def _dma_steps(now: _Slot, ring: Ring) -> Iterator[Step]:
    """Every step of the DMA warps of CTA 0; those of its peer are the same."""
    for warp in (w for w in now.dma if w[0] == 0):
        waited, announced, started = (of[warp] for of in (now.waited, now.announced, now.started))
        full, empty = now.full[0], now.empty[0]
        # A wait passes while the phase that runs has another parity than the one waited for.
        yield Step(
            name=f"dma{warp[1]} waits",
            guard=z3.And(waited == started, empty % 2 != ring.freed_parity(waited)),
            safe=waited == empty,
            after={waited: waited + 1},
        )
        yield Step(
            name=f"dma{warp[1]} announces",
            guard=announced < waited,
            safe=announced == full,
            after={announced: announced + 1, full: _full_after(now, 0, announced)},
        )
        filled = [d for d in now.ctas if warp in now.landed[d]]
        yield Step(
            name=f"dma{warp[1]} loads",
            guard=started < announced,
            safe=z3.And(
                *(now.full[d] == started for d in filled),
                *(now.landed[d][warp] == started for d in filled),
                *(now.read[w] == started for w in now.math if w[0] in filled),
                *(freed == started for w, freed in now.freed[0].items() if w[0] in filled),
            ),
            after={started: started + 1},
        )
        for d in filled:
            landed = now.landed[d][warp]
            yield Step(
                name=f"dma{warp[1]} lands in CTA {d}",
                guard=landed < started,
                safe=landed == now.full[d],
                after={landed: landed + 1, now.full[d]: _full_after(now, d, landed)},
            )


def _full_after(now: _Slot, cta: int, counted: Any) -> Any:
    """A full barrier's phases once ``counted`` has gone up: one more where all the others have.

    The phase ends with as many bytes delivered as announced. What all DMA warps of a CTA
    announce is what lands in a slot of it, so that this is when all have announced and all copies
    have landed.
    """
    own = [now.announced[w] for w in now.dma if w[0] == cta]
    others = [at for at in (*now.landed[cta].values(), *own) if not at.eq(counted)]
    full = now.full[cta]
    ends = z3.And(counted == full, *(at == full + 1 for at in others))
    return z3.If(ends, full + 1, full)


def _math_steps(now: _Slot, ring: Ring) -> Iterator[Step]:
    """Every step of one MATH warp; all others' are the same."""
    me = (0, 0)
    read, full = now.read[me], now.full[0]
    freed_all = {d: now.freed[d][me] for d in now.ctas if me in now.freed[d]}
    yield Step(
        name="math reads",
        guard=z3.And(
            *(freed == read for freed in freed_all.values()), full % 2 != ring.filled_parity(read)
        ),
        safe=z3.And(
            full == read + 1,
            *(at == read + 1 for at in now.landed[0].values()),
            *(now.started[w] == read + 1 for w in now.landed[0]),
        ),
        after={read: read + 1},
    )
    for d, freed in freed_all.items():
        empty = now.empty[d]
        ends = z3.And(*(f == empty + 1 for w, f in now.freed[d].items() if w != me))
        yield Step(
            name=f"math frees in CTA {d}",
            guard=freed < read,
            safe=freed == empty,
            after={freed: freed + 1, empty: z3.If(ends, empty + 1, empty)},
        )


def _prove_progress(context: z3.Context, ring: Ring) -> Lemma:
    """Some unfinished warp can go on in every state, for every depth above the lag."""
    slots, total = z3.Ints("slots total", context)
    dma = [(c, x) for c in range(ring.ctas) for x in range(ring.dma_warps)]
    math = [(c, y) for c in range(ring.ctas) for y in range(ring.math_warps)]
    loaded = {w: z3.Int(f"loaded_{w}", context) for w in dma}
    read = {w: z3.Int(f"read_{w}", context) for w in math}
    freed = {w: z3.Int(f"freed_{w}", context) for w in math}
    # At a barrier of the epilogue, all slots given back.
    stores = {w: z3.Bool(f"stores_{w}", context) for w in math}
    sources = {c: [loaded[w] for w in dma if ring.fills(w[1], w[0] ^ c)] for c in range(ring.ctas)}
    lag = ring.lag
    bounds = [slots > lag]
    for w in math:
        bounds += [read[w] >= freed[w], read[w] <= freed[w] + lag, read[w] <= total]
        bounds += [read[w] <= n for n in sources[w[0]]]
        # MATH warps of a CTA come to the same barriers in the same order: the first of those
        # that are not at its barrier yet is at the ring, in the same unit or before.
        behind = [
            z3.And(z3.Not(stores[z]), read[z] <= read[w], read[z] < total)
            for z in math
            if z != w and z[0] == w[0]
        ]
        bounds += [z3.Implies(stores[w], z3.And(freed[w] == read[w], z3.Or(*behind)))]
    for n in loaded.values():
        bounds += [n <= total, *(n <= f + slots for f in freed.values())]
    stuck = [
        # Every copy has landed; a DMA warp waits for the slot of slots iterations before, a MATH
        # warp for the loads of the iteration it is at. Giving a slot back waits for nothing.
        *(z3.Or(n == total, *(f + slots <= n for f in freed.values())) for n in loaded.values()),
        *(z3.Or(stores[w], read[w] == total, *(n <= read[w] for n in sources[w[0]])) for w in math),
    ]
    unfinished = z3.Or(*(at < total for at in (*loaded.values(), *read.values())))
    prove(context, "progress", z3.Not(z3.And(*bounds, *stuck, unfinished)))
    return Lemma("progress", f"a ring of more than {lag} slots always has a warp that can go on")


def prove_split() -> Lemma:
    """Prove that the counter of a tile makes the last CTA to count, and no other, the last.

    For every number of splits, from any launch to the next. Raises ProofError.
    """
    context = z3.Context()
    splits, counter, counted, lasts = z3.Ints("splits counter counted lasts", context)
    invariant = z3.And(
        splits >= 2,
        counted >= 0,
        counted <= splits,
        counter == z3.If(counted == splits, 0, counted),
        lasts == z3.If(counted == splits, 1, 0),
    )
    fresh = z3.And(splits >= 2, counter == 0, counted == 0, lasts == 0)
    prove(context, "split-K, start", z3.Implies(fresh, invariant))
    last = splits - 1
    can = z3.And(invariant, counted < splits)
    is_last = counter == last
    after = {
        counter: z3.If(counter >= last, 0, counter + 1),
        counted: counted + 1,
        lasts: z3.If(is_last, lasts + 1, lasts),
    }
    prove(context, "split-K, safe", z3.Implies(can, is_last == (counted + 1 == splits)))
    moved = z3.substitute(invariant, *after.items())
    prove(context, "split-K, kept", z3.Implies(can, moved))
    prove(context, "split-K, end", z3.Implies(z3.And(invariant, counted == splits), counter == 0))
    return Lemma("split", "one CTA is the last of a tile, and all others have counted before it")


def prove_launches() -> Lemma:
    """Prove that a launch that has waited for the one before it runs after all before it.

    Of the launches of a stream, numbered from 0, ``running`` is the first that has not ended. A
    launch ends only when all of its warps have, and in each of its CTAs some have waited. By
    induction over the launches, for any number of them. Raises ProofError.
    """
    context = z3.Context()
    launch, running = z3.Ints("launch running", context)
    waited, waited_before, ended_before = z3.Bools("waited waited_before ended_before", context)
    rules = z3.And(
        running >= 0,
        z3.Implies(waited, ended_before),
        z3.Implies(ended_before, z3.And(waited_before, launch - 1 != running)),
    )
    prove(context, "launches, start", z3.Implies(z3.And(rules, launch == 0), launch <= running))
    before = z3.Implies(waited_before, launch - 1 <= running)
    after = z3.Implies(waited, launch <= running)
    prove(context, "launches, kept", z3.Implies(z3.And(rules, launch > 0, before), after))
    return Lemma("launches", "a launch touches memory after all launches before it have ended")
