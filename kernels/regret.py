"""Configurations of one problem timed against one another to the end, in a GPU process: how much
slower each is, not merely which is the fastest. Everything of CUDA is imported inside the function,
so that the process that only names it never loads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from kernels.protocol import Protocol
from kernels.statistics import ratio_interval
from solver.config import Config
from solver.problem import Problem


@dataclass(frozen=True, slots=True)
class RegretTask:
    """Configurations to race, by their place in the plan's job; ``sms`` as in ``worker.Task``."""

    problem: Problem
    configs: Mapping[int, Config]
    device: str
    protocol: Protocol
    sms: int | None = None


@dataclass(frozen=True, slots=True)
class RegretRun:
    """One configuration's figures, or why there are none.

    ``relative`` is its time over that of the first configuration that ran: the median over rounds,
    each of one replay of both, with its interval.
    """

    median_us: float | None = None
    rounds: int = 0
    relative: float | None = None
    relative_low: float | None = None
    relative_high: float | None = None
    failure: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As a record keeps it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RegretRace:
    """Every configuration's run by its place, and the clock, power and throttle reasons."""

    runs: Mapping[int, RegretRun]
    clocks: Mapping[str, Any] = field(default_factory=dict)


def paired(times_us: Mapping[int, tuple[float, ...]], confidence: float) -> dict[int, RegretRun]:
    """Runs from the times of every round, of as many rounds each; the first is compared with."""
    first = next(iter(times_us.values()))
    runs = {}
    for index, times in times_us.items():
        ratios = [mine / theirs for mine, theirs in zip(times, first, strict=True)]
        interval = ratio_interval(ratios, confidence)
        runs[index] = RegretRun(
            median(times), len(times), interval.ratio, interval.low, interval.high
        )
    return runs


def run_regret(task: RegretTask) -> RegretRace:
    """Race a task's configurations without checking their results; none drops out.

    A configuration that can't be compiled or loaded is a run with its failure. Raises CUDA's own
    error where a kernel faults; memory that runs out is CuPy's OutOfMemoryError.
    """
    from kernels.race import race
    from kernels.session import session
    from kernels.sides import input_sets, loaded_sides

    current, problem = session(), task.problem
    sets, flush = input_sets(current, problem, task.protocol)
    sides, failures = loaded_sides(current, problem, task.configs, task.device, task.sms, sets)
    failed = {index: RegretRun(failure=why) for index, why in failures.items()}
    if not sides:
        return RegretRace(failed)
    before = current.monitor.read()
    raced = race(current, list(sides.values()), task.protocol, flush, drop=False)
    after = current.monitor.read()
    times_us = dict(zip(sides, raced.times_us, strict=True))
    clocks = {
        "sm_clock_before_mhz": before.sm_clock_mhz,
        "sm_clock_mhz": after.sm_clock_mhz,
        "power_w": after.power_w,
        "throttle": list(dict.fromkeys((*before.throttle, *after.throttle))),
        "sets": len(sets),
        "flushed": flush,
    }
    return RegretRace(failed | paired(times_us, task.protocol.confidence), clocks)
