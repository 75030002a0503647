"""The records that a traced build keeps: where they lie, and one CTA's steps read from them.

The layout is that of ``kernels/cuda/traced/progress.cuh``. Clocks are an SM's own: cycles of one
CTA's warps can be compared with each other, and with no other SM's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.errors import TraceUnreadable
from kernels.launch_plan import LaunchPlan
from kernels.progress import Place
from kernels.sources import TRACE_RECORDS
from kernels.waits import Walk
from solver.families import sm90_gemm as family

START_CLOCK, START_TIME, END, WHERE, STEPS = range(5)
"""Records of a warp's head, by index; its steps follow."""
STEP_ROOM = TRACE_RECORDS - STEPS
_LOW = np.uint64((1 << 32) - 1)
_HIGH = np.uint64(32)
_PLACE_BITS = 4
_HALF = 1 << 31

Words = np.ndarray[Any, np.dtype[np.uint64]]
Cycles = np.ndarray[Any, np.dtype[np.int64]]


def math_warps(plan: LaunchPlan) -> list[int]:
    """The warps that keep records for the MATH warpgroups: the first of each."""
    return [w * family.WARPGROUP // family.WARP for w in range(plan.config.math_warpgroups)]


def dma_warps(plan: LaunchPlan) -> list[int]:
    """The DMA warps of a CTA that load."""
    first = plan.config.math_warpgroups * family.WARPGROUP // family.WARP
    return [first + w for w in range(plan.config.dma_warps)]


def low(words: Words) -> Cycles:
    """The low halves of records."""
    return (words & _LOW).astype(np.int64)


def high(words: Words) -> Cycles:
    """The high halves of records."""
    return (words >> _HIGH).astype(np.int64)


def since(clock: Cycles, start: Cycles | int) -> Cycles:
    """Cycles from ``start`` to clocks of which the low 32 bits were kept: less than 2^31, a second,
    before or after."""
    return ((clock - start + _HALF) & int(_LOW)) - _HALF


@dataclass(frozen=True, slots=True)
class Heads:
    """What each CTA of a launch kept of its whole run: [grid] arrays. ``span`` are the cycles from
    its first load to the end of its last warp, ``clock`` and ``time_ns`` its SM's clock and the
    device's timer when its first warp came to its first unit of work; ``room`` records of each warp
    hold all that was kept."""

    sm: Cycles
    clock: Cycles
    time_ns: Cycles
    span: Cycles
    room: Cycles


def read_heads(plan: LaunchPlan, heads: Words) -> Heads:
    """``heads``: (grid, warps, STEPS + 1) records, the first of each warp's.

    Raises TraceUnreadable where a warp left none: the launch was none of a traced build.
    """
    kept = [*math_warps(plan), *dma_warps(plan)]
    ends = heads[:, kept, END]
    stripes = (np.arange(plan.grid)[:, None] * plan.warps + kept) * TRACE_RECORDS
    steps = high(ends) - stripes - STEPS
    if (steps < 1).any() or (steps > STEP_ROOM).any():
        raise TraceUnreadable("a warp of the launch has left no records")
    first_load = low(heads[:, dma_warps(plan)[0], STEPS])
    return Heads(
        sm=low(heads[:, 0, WHERE]),
        clock=heads[:, 0, START_CLOCK].astype(np.int64),
        time_ns=heads[:, 0, START_TIME].astype(np.int64),
        span=since(low(ends), first_load[:, None]).max(axis=1),
        room=steps.max(axis=1) + STEPS,
    )


def clock_mhz(before: Heads, after: Heads) -> float | None:
    """The SMs' clock between two launches: the median over SMs that had a CTA of both; None where
    no SM had, as small grids find others free.

    Raises TraceUnreadable where no time went by.
    """
    at = {int(sm): place for place, sm in enumerate(before.sm)}
    pairs = [(at[int(sm)], place) for place, sm in enumerate(after.sm) if int(sm) in at]
    if not pairs:
        return None
    first, last = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    cycles = after.clock[last] - before.clock[first]
    nanoseconds = after.time_ns[last] - before.time_ns[first]
    if (nanoseconds <= 0).any():
        raise TraceUnreadable("the device's timer stood still between two launches")
    return float(np.median(cycles / nanoseconds) * 1e3)


@dataclass(frozen=True, slots=True)
class CtaSteps:
    """When the warps of one CTA got where, in cycles from the first load of its first DMA warp.

    It has ``units`` units of work; ``unit`` and ``iteration`` number the K k-iterations of which
    every warp kept all: those that there was no room for are counted in ``dropped``. ``loads``
    [dma_warps, K]: a slot is free and its loads are issued. ``asks`` and ``has`` [warpgroups, K]:
    a MATH warpgroup comes to a slot's full barrier, and passes it. ``closes`` [warpgroups, U]:
    it has its last product of a unit (and, of a split, has written its part of the sum), of the
    units whose end was kept. ``done`` [warpgroups]: it has left its last store.
    """

    cta: int
    units: int
    unit: Cycles
    iteration: Cycles
    loads: Cycles
    asks: Cycles
    has: Cycles
    closes: Cycles
    done: Cycles
    dropped: int


def read_cta(plan: LaunchPlan, cta: int, stripes: Words) -> CtaSteps:
    """``stripes``: (warps, R) records of one CTA of the launch, at least those that it kept.

    Raises TraceUnreadable where they are not what its units of work lead to.
    """
    walk = Walk.of(plan, cta)
    units, total = range(walk.first, walk.units, walk.stride), walk.total
    # A unit has a k-iteration or more: as many units as there is room for steps say all.
    lengths = np.array([walk.length(unit) for unit in units[:STEP_ROOM]])
    first_load = low(stripes[dma_warps(plan)[0], STEPS])
    loads = [_steps(plan, cta, warp, stripes[warp]) for warp in dma_warps(plan)]
    math = [_steps(plan, cta, warp, stripes[warp]) for warp in math_warps(plan)]
    products = [_products(steps, plan, lengths, total) for steps in math]
    for steps in loads:
        if len(steps) != min(total, STEP_ROOM) or (_place(steps) != Place.LOADS).any():
            raise TraceUnreadable(f"CTA {cta} has loads of {len(steps)} slots, not of {total}")
    for steps, warp in zip((*loads, *math), (*dma_warps(plan), *math_warps(plan)), strict=True):
        clocks = np.append(low(steps), low(stripes[warp, END : END + 1]))
        if (since(clocks[1:], clocks[:-1]) < 0).any():
            # A CTA that was interrupted goes on wherever there is room, by another SM's clock.
            raise TraceUnreadable(
                f"the clock of CTA {cta} goes back, as where other processes use the GPU too"
            )
    kept = min(*(len(steps) for steps in loads), *(len(where) for where in products), total)
    whole = np.searchsorted(np.cumsum(lengths), kept, side="right")  # units with all products
    closed = min(int(whole), *(_closed(s, w, lengths) for s, w in zip(math, products, strict=True)))

    unit = np.searchsorted(np.cumsum(lengths), np.arange(kept), side="right")

    def at(steps: Words, where: Any) -> Cycles:
        return since(low(steps[where]), first_load)

    has = np.stack([at(s, w[:kept]) for s, w in zip(math, products, strict=True)])
    # A MATH warp may come to its first barrier before the first load is issued.
    waited = np.stack(
        [high(s[w[:kept]]) >> _PLACE_BITS for s, w in zip(math, products, strict=True)]
    )
    ends = np.cumsum(lengths)[:closed] - 1
    return CtaSteps(
        cta=cta,
        units=len(units),
        unit=unit,
        iteration=np.arange(kept) - (np.cumsum(lengths) - lengths)[unit],
        loads=np.stack([at(steps, slice(0, kept)) for steps in loads]),
        asks=has - waited,
        has=has,
        closes=np.stack([at(s, w[ends] + 1) for s, w in zip(math, products, strict=True)]),
        done=since(low(stripes[math_warps(plan), END]), first_load),
        dropped=total - kept,
    )


def _steps(plan: LaunchPlan, cta: int, warp: int, stripe: Words) -> Words:
    """The steps that a warp kept, in order."""
    first = (cta * plan.warps + warp) * TRACE_RECORDS + STEPS
    count = int(high(stripe[END : END + 1])[0]) - first
    if not 0 <= count <= STEP_ROOM:
        raise TraceUnreadable(f"warp {warp} of CTA {cta} ended at step {count}")
    return stripe[STEPS : STEPS + count]


def _place(steps: Words) -> Cycles:
    return high(steps) & ((1 << _PLACE_BITS) - 1)


def _products(steps: Words, plan: LaunchPlan, lengths: Cycles, total: int) -> Cycles:
    """Which steps are a MATH warp's products, and whether its places come in their order: all
    products of a unit, then what ends the unit."""
    places = _place(steps)
    where = np.flatnonzero(places == Place.MULTIPLIES)
    full = len(steps) == STEP_ROOM
    if len(where) != total and not (full and len(where) < total):
        raise TraceUnreadable(f"{len(where)} products of a warp were kept, its units have {total}")
    closing = Place.STORES if plan.config.split_k == 1 else Place.REDUCES
    ends = np.cumsum(lengths)[: _closed(steps, where, lengths)] - 1
    if (places[where[ends] + 1] != closing).any():
        raise TraceUnreadable("a warp's products are not those of its units")
    return where


def _closed(steps: Words, products: Cycles, lengths: Cycles) -> int:
    """Units of which the step behind the last product was kept."""
    ends = np.cumsum(lengths) - 1
    ends = ends[ends < len(products)]
    return int((products[ends] + 1 < len(steps)).sum())
