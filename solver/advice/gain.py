"""What dividing the warps, or copying deep with like warps, would gain; with its uncertainty."""

from __future__ import annotations

from math import inf

from solver.advice import thresholds as given
from solver.advice.figures import MIN_TIME_US
from solver.advice.finding import NO, YES, Outcome
from solver.advice.situation import Situation
from solver.advice.thresholds import Overlap, Range


def overlapped_us(overlap: Overlap, load_us: Range, compute_us: float) -> Range:
    """Time of two stages that overlap as measured kernels did."""

    def time(whole: float, lesser: float, load: float) -> float:
        return whole * max(load, compute_us) + lesser * min(load, compute_us)

    return Range(
        time(overlap.whole.low, overlap.lesser.low, load_us.low),
        time(overlap.whole.expected, overlap.lesser.expected, load_us.expected),
        time(overlap.whole.high, overlap.lesser.high, load_us.high),
    )


def present_us(s: Situation, waits: Outcome) -> Range:
    """What the kernel takes: measured, else by its stages and by what it has in flight."""
    if s.figures.time_us is not None:
        return Range(s.figures.time_us, s.figures.time_us, s.figures.time_us)
    overlap = {YES: given.WAITING, NO: given.HIDDEN}.get(waits, given.UNCLEAR)
    return _by_stages(s, overlap)


def unexplained(s: Situation) -> bool:
    """Whether the launch takes longer than its stages do where every load is waited for, and what
    its warps wait for was not measured: nobody knows what the rest is."""
    if s.figures.time_us is None or s.figures.long_scoreboard_fraction is not None:
        return False
    return s.figures.time_us > given.EXPLAINED.value * _by_stages(s, given.WAITING).high


def _by_stages(s: Situation, overlap: Overlap) -> Range:
    """Time of both stages, loads at the pace of what is in flight."""
    flights = s.in_flight_bytes
    loads = [
        max(s.load_us, s.figures.read_bytes * s.rates.latency_us / s.sms / in_flight)
        for in_flight in (flights.high, flights.expected, flights.low)
    ]
    return overlapped_us(overlap, Range(*loads), s.compute_us or 0.0)


def gain_over(present: Range, overlap: Overlap, s: Situation) -> Range | None:
    """Present time over that of kernels that overlap so, at most what leaves out all measured
    waiting for loads; None where a stage is not known, or does not tell what takes the time."""
    if s.compute_us is None or not s.loads_known or s.roof_us < MIN_TIME_US or unexplained(s):
        return None
    then = overlapped_us(overlap, Range(s.load_us, s.load_us, s.load_us), s.compute_us)
    most = _most_gain(s)
    return Range(
        min(most, present.low / then.high),
        min(most, present.expected / then.expected),
        min(most, present.high / then.low),
    )


def _most_gain(s: Situation) -> float:
    """Of a launch whose warps wait for loads no more."""
    waiting = s.figures.long_scoreboard_fraction
    if s.figures.time_us is None or waiting is None:
        return inf
    busy = 1 - waiting - (s.figures.barrier_fraction or 0.0)
    return 1 / busy if busy > 0 else inf
