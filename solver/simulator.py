"""Plays the event recurrence one event at a time: the independent check of the closed form.

Nothing here knows the closed form; it shares only the parameters with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.recurrence import Pipeline, Ticks


@dataclass(frozen=True, slots=True)
class Event:
    """Times of one k-iteration of one unit, in ticks from the CTA's first load."""

    unit: int
    iteration: int
    slot: int
    load_issue: int
    load_end: int
    math_start: int
    math_end: int


@dataclass(frozen=True, slots=True)
class Run:
    """What a simulated CTA did: its end, its MATH wait (ticks) and the events asked for."""

    end: int
    wait: int
    events: tuple[Event, ...]


def simulate(
    *,
    load: int,
    latency: int,
    math: int,
    early: int,
    epilogue: int,
    slots: int,
    iterations: int,
    units: int,
    keep_events: int = 0,
    stop_after_kept: bool = False,
) -> Run:
    """Play ``units`` units of ``iterations`` k-iterations; keep the first ``keep_events``.

    With ``stop_after_kept`` the run ends with the last event kept: a timeline whose cost does
    not grow with the problem. Parameters are those of ``solver.recurrence`` in ticks. Raises
    ValueError where one is out of its range.
    """
    if min(slots, iterations, units) < 1 or min(load, latency, math, early, epilogue) < 0:
        raise ValueError("slots, iterations and units start at 1, times at 0")
    if early > math:
        raise ValueError("a slot can't be released before its MATH has started")
    events: list[Event] = []
    releases = [0] * slots
    issue = -load
    math_ready = 0
    wait = 0
    unit_end = 0
    for unit in range(units):
        previous_end = unit_end
        if unit:
            math_ready += epilogue
        for i in range(iterations):
            issue += load
            if i >= slots:
                issue = max(issue, releases[i % slots])
            elif unit and i == slots - 1:
                issue = max(issue, previous_end - early)
            load_end = issue + latency + load
            start = max(math_ready, load_end)
            wait += start - math_ready
            math_ready = start + math
            releases[i % slots] = math_ready - early
            if len(events) < keep_events:
                events.append(Event(unit, i, i % slots, issue, load_end, start, math_ready))
            elif stop_after_kept:
                return Run(math_ready, wait, tuple(events))
        unit_end = math_ready
    return Run(unit_end, wait, tuple(events))


def simulate_rows(pipeline: Pipeline) -> tuple[Ticks, Ticks]:
    """(end, wait) of every row, [R] ticks: the events of all rows played in lockstep.

    The same events as ``simulate``, one k-iteration of every row at a time, so that a whole
    legal space can be played without the closed form.
    """
    total = pipeline.units * pipeline.iterations
    longest_first = np.argsort(-total, kind="stable")
    p = pipeline.take(longest_first)
    total = total[longest_first]
    rows = len(total)
    every = np.arange(rows)
    releases = np.zeros((rows, int(np.max(p.slots))), dtype=np.int64)
    issue, ready, wait = -p.load, np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    in_unit = np.zeros(rows, dtype=np.int64)
    slot = np.zeros(rows, dtype=np.int64)
    unit_end = np.zeros(rows, dtype=np.int64)
    alive = rows
    for step in range(int(total[0])):
        while alive and total[alive - 1] <= step:
            alive -= 1
        a = slice(0, alive)
        slots, load, math = p.slots[a], p.load[a], p.math[a]
        local = in_unit[a]
        boundary = (local == 0) & (step > 0)
        unit_end[a] = np.where(boundary, ready[a], unit_end[a])
        ready[a] += np.where(boundary, p.epilogue[a], 0)
        issue[a] += load
        held = np.where(local >= slots, releases[every[a], slot[a]], issue[a])
        closes = (local == slots - 1) & (step >= p.iterations[a])
        held = np.where(closes, unit_end[a] - p.early[a], held)
        issue[a] = np.maximum(issue[a], held)
        start = np.maximum(ready[a], issue[a] + p.latency[a] + load)
        wait[a] += start - ready[a]
        ready[a] = start + math
        releases[every[a], slot[a]] = ready[a] - p.early[a]
        last = local + 1 == p.iterations[a]
        in_unit[a] = np.where(last, 0, local + 1)
        slot[a] = np.where(last | (slot[a] + 1 == slots), 0, slot[a] + 1)
    back = np.empty(rows, dtype=np.int64)
    back[longest_first] = every
    return ready[back], wait[back]
