"""Plays the event recurrence one event at a time: the independent check of the closed form.

Nothing here knows the closed form; it shares only the parameters with it.
"""

from __future__ import annotations

from dataclasses import dataclass


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
) -> Run:
    """Play ``units`` units of ``iterations`` k-iterations; keep the first ``keep_events``.

    Parameters are those of ``solver.recurrence`` in ticks. Raises ValueError where one is
    out of its range.
    """
    if min(slots, iterations, units) < 1 or min(load, latency, math, early, epilogue) < 0:
        raise ValueError("slots, iterations and units start at 1, times at 0")
    if early > math:
        raise ValueError("a slot can't be released before its MATH has started")
    events: list[Event] = []
    releases = [0] * iterations
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
                issue = max(issue, releases[i - slots])
            elif unit and i == slots - 1:
                issue = max(issue, previous_end - early)
            load_end = issue + latency + load
            start = max(math_ready, load_end)
            wait += start - math_ready
            math_ready = start + math
            releases[i] = math_ready - early
            if len(events) < keep_events:
                events.append(Event(unit, i, i % slots, issue, load_end, start, math_ready))
        unit_end = math_ready
    return Run(unit_end, wait, tuple(events))
