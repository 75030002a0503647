"""What a traced CTA's steps say in the recurrence's words: loads, products, epilogues, MATH wait.

A warp sees a barrier when it comes to it, and a product's end when it waits for it; what lies
between is worked out here, and how: ``docs/trace.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.launch_plan import LaunchPlan
from kernels.trace_records import CtaSteps, Cycles

PASS_CYCLES = 112
"""The most that a full barrier's own passing takes, clock reads included; the least wait of a CTA
is taken for it where that is less. Where a CTA waits for every load this is the guess: of 193 CTAs
traced on an H200 the least was 98, and in the median 110."""
SLACK_CYCLES = 32
"""By how much a wait must exceed that to count as one: in CTAs whose loads are long there, nine of
ten passes take no more."""
USUAL = 0.1
"""Quantile of the steps between products that is taken for a product's own time: products don't
take less, and loads that are late make steps longer."""

Times = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class CtaEvents:
    """One CTA's events in µs from its first load.

    ``unit``, ``iteration`` and the four event times are [K], means over the MATH warpgroups;
    ``load_issue`` is that of the later operand. ``load_end`` is NaN where no warpgroup was waiting
    for it: it came at some time before. ``wait`` is [K], how long MATH stood still before each
    product. ``epilogue_end`` [U]: MATH is ready for its next unit, or after the last has ended.
    ``pass_us`` and ``product_us``: what passing a full barrier, and a product, was found to take.
    """

    unit: Cycles
    iteration: Cycles
    load_issue: Times
    load_end: Times
    math_start: Times
    math_end: Times
    wait: Times
    epilogue_end: Times
    pass_us: float
    product_us: float

    @property
    def wait_us(self) -> float:
        """MATH wait over all products kept, mean over the MATH warpgroups."""
        return float(self.wait.sum())


def events_of(
    plan: LaunchPlan, steps: CtaSteps, clock_mhz: float, product_us: float = np.inf
) -> CtaEvents:
    """The events of a CTA at an SM clock.

    ``product_us`` is what a product takes by the model. It counts only where a split keeps one in
    flight: nobody sees a unit's last product end there, and where loads are late no other either.
    """
    in_flight, split = bool(plan.config.mma_in_flight), plan.config.split_k > 1
    waited = steps.has - steps.asks
    passing = min(PASS_CYCLES, int(waited[:, 1:].min(initial=PASS_CYCLES)))
    product = _product(steps, in_flight, split)
    if in_flight and split:
        product = min(product, product_us * clock_mhz)
    issue = steps.loads.max(axis=0)
    zero = int(issue[0])
    groups = [
        _math(steps, group, zero, passing, product, in_flight, split)
        for group in range(len(steps.has))
    ]
    start, end, wait = (np.mean([group[i] for group in groups], axis=0) for i in range(3))
    was_waiting = waited > passing + SLACK_CYCLES
    arrived = np.where(was_waiting, steps.has, np.inf).min(axis=0)
    ready = steps.asks[:, np.flatnonzero(steps.iteration == 0)[1:]].mean(axis=0)
    if not steps.dropped and steps.closes.shape[1] == steps.units:
        ready = np.append(ready, steps.done.mean())
    return CtaEvents(
        unit=steps.unit,
        iteration=steps.iteration,
        load_issue=(issue - zero) / clock_mhz,
        load_end=np.where(np.isfinite(arrived), arrived - zero, np.nan) / clock_mhz,
        math_start=(start - zero) / clock_mhz,
        math_end=(end - zero) / clock_mhz,
        wait=wait / clock_mhz,
        epilogue_end=(ready - zero) / clock_mhz,
        pass_us=passing / clock_mhz,
        # Between products that are waited for one by one lies a barrier each.
        product_us=(product + (0 if in_flight else passing)) / clock_mhz,
    )


def _product(steps: CtaSteps, in_flight: bool, split: bool) -> float:
    """Cycles that a product takes of a CTA that does nothing but multiply.

    Never less than it takes: from one product's end to the next one's, the usual step; and, where
    the end of a unit is seen, from the last slot's arrival to it.
    """
    inside = steps.iteration[1:] > (2 if in_flight else 0)  # of both steps a product's end is seen
    pace = (steps.asks[:, 1:] - (steps.asks if in_flight else steps.has)[:, :-1])[:, inside]
    found = []
    if pace.size:
        found.append(float(np.quantile(pace, USUAL)) if in_flight else float(np.median(pace)))
    if not split or not pace.size:
        last = np.flatnonzero(np.append(steps.iteration[1:] == 0, True))[: steps.closes.shape[1]]
        if last.size:
            found.append(float(np.median(steps.closes - steps.has[:, last])))
    return min(found, default=0.0)


def _issue(steps: CtaSteps) -> float:
    """Cycles from passing a barrier to coming to the next one, with no product left to wait for: of
    a unit's first, which follows none. As long as issuing takes where tensor cores queue few."""
    first = np.flatnonzero(steps.iteration[:-1] == 0)
    first = first[steps.iteration[first + 1] == 1]
    return float(np.median(steps.asks[:, first + 1] - steps.has[:, first])) if first.size else 0.0


def _math(
    steps: CtaSteps,
    group: int,
    zero: int,
    passing: int,
    product: float,
    in_flight: bool,
    split: bool,
) -> tuple[Times, Times, Times]:
    """(start, end, wait) of a MATH warpgroup's products, in cycles."""
    asks, has = (row.tolist() for row in (steps.asks[group], steps.has[group]))
    closes, iteration, unit = steps.closes[group].tolist(), steps.iteration, steps.unit
    count, issue = len(has), _issue(steps) if in_flight else 0.0
    starts, ends, waits = np.zeros(count), np.zeros(count), np.zeros(count)
    end = 0.0
    for i in range(count):
        ready = float(asks[i] + passing) if i else float(zero)
        if in_flight and iteration[i]:
            ready = max(ready, end)  # the product before, which nobody waited for yet
        waits[i] = max(0.0, has[i] - ready)
        starts[i] = start = max(float(has[i]), ready)
        left = next((j for j in range(1 + in_flight) if _is_last(i + j, iteration)), None)
        if left is None:
            # It has ended when the warp comes to the slot after the next product's, or the next.
            seen = asks[i + 1 + in_flight] - issue
            stood = not in_flight or seen - has[i + 1] > product / 4 + SLACK_CYCLES
        elif unit[i] < len(closes) and not split:
            seen, stood = float(closes[unit[i]]), left == 0
        else:
            seen, stood = np.inf, False
        ends[i] = end = seen if stood else min(start + product, seen)
    return starts, ends, waits


def _is_last(i: int, iteration: Cycles) -> bool:
    """Whether a product is its unit's last, or the last that was kept."""
    return i + 1 >= len(iteration) or not iteration[i + 1]
