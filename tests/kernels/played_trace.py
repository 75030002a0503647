"""Records as a traced launch leaves them, of CTAs whose every event is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kernels.launch_plan import LaunchPlan
from kernels.launch_units import work_of
from kernels.progress import Place
from kernels.sources import TRACE_RECORDS
from kernels.trace_records import (
    END,
    START_CLOCK,
    START_TIME,
    STEPS,
    WHERE,
    Words,
    dma_warps,
    math_warps,
)

PASS, ISSUE = 40, 30  # cycles: of a full barrier, and of issuing a product
LOW = (1 << 32) - 1


@dataclass
class Truth:
    """What happened, in cycles from the first load; a list has one entry a k-iteration."""

    load_issue: list[int] = field(default_factory=list)
    load_end: list[int] = field(default_factory=list)
    asks: list[int] = field(default_factory=list)
    has: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    wait: list[int] = field(default_factory=list)
    closes: list[int] = field(default_factory=list)
    done: int = 0


@dataclass(frozen=True)
class Pace:
    """Cycles of a CTA's steps; ``spill``: from a split's last product to its barrier. ``queued``:
    tensor cores take so few instructions ahead that issuing a product takes that long."""

    load: int
    latency: int
    math: int
    epilogue: int
    spill: int = 0
    queued: int = 0

    def play(self, plan: LaunchPlan, cta: int) -> Truth:
        """Play a CTA as the kernel goes: slots are given back when a product is known to have
        ended."""
        truth, in_flight = Truth(), bool(plan.config.mma_in_flight)
        released: list[int] = []
        asks = 0
        for unit in work_of(plan, cta):
            end = -(1 << 40)
            for i in range(len(unit.iterations)):
                n = len(truth.has)
                issue = truth.load_issue[-1] + self.load if n else 0
                if n >= plan.config.stages:
                    issue = max(issue, released[n - plan.config.stages])
                arrives = issue + self.latency + self.load
                ready = max(asks + PASS, end) if i else asks + PASS if n else 0
                has = max(asks, arrives) + PASS
                start = max(has, ready)
                before, end = end, start + self.math
                for name, value in (
                    ("load_issue", issue),
                    ("load_end", arrives),
                    ("asks", asks),
                    ("has", has),
                    ("start", start),
                    ("end", end),
                    ("wait", max(0, has - ready)),
                ):
                    getattr(truth, name).append(value)
                asks = end
                if in_flight:
                    asks = max(has + ISSUE, before, (start if self.queued else 0) + self.queued)
                if not in_flight:
                    released.append(end)
                elif i:
                    released.append(asks)
            if in_flight:
                released.append(end)
            truth.closes.append(end + self.spill)
            asks = end + self.spill + self.epilogue
        truth.done = asks
        return truth


def stripes_of(
    plan: LaunchPlan, cta: int, truth: Truth, start: int = 5_000_000_000, sm: int = 7
) -> Words:
    """The records of a CTA that began to set up at clock ``start``, and its first load 2,000
    cycles later."""
    first = start + 2000
    stripes = np.zeros((plan.warps, TRACE_RECORDS), np.uint64)
    split = plan.config.split_k > 1
    lengths = [len(unit.iterations) for unit in work_of(plan, cta)]
    for warp in (*math_warps(plan), *dma_warps(plan)):
        steps: list[tuple[int, int, Place]] = []
        if warp in dma_warps(plan):
            before = 0
            for issue in truth.load_issue:
                steps.append((issue, issue - before, Place.LOADS))
                before = issue
            done = truth.load_issue[-1] + 50
        else:
            at = 0
            for unit, length in enumerate(lengths):
                for i in range(at, at + length):
                    steps.append((truth.has[i], truth.has[i] - truth.asks[i], Place.MULTIPLIES))
                at += length
                close = truth.closes[unit]
                steps.append((close, 5, Place.REDUCES if split else Place.STORES))
                if split and unit % 2 == 0:  # the last of a tile's splits stores it
                    steps.append((close + 100, 100, Place.STORES))
            done = truth.done
        kept = steps[: TRACE_RECORDS - STEPS]
        for place, (clock, waited, where) in enumerate(kept):
            stripes[warp, STEPS + place] = (first + clock & LOW) | (waited << 4 | where) << 32
        after = (cta * plan.warps + warp) * TRACE_RECORDS + STEPS + len(kept)
        stripes[warp, START_CLOCK] = start
        stripes[warp, START_TIME] = 1_000_000 + start // 2
        stripes[warp, END] = (first + done & LOW) | after << 32
        stripes[warp, WHERE] = sm
    return stripes
