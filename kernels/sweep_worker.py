"""Rows of one problem timed in one call of a GPU process, each told as soon as it is known.

Operands are laid out once for all of them. Everything of CUDA is imported inside the function, so
that the process that only names it never loads it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol as Interface

from kernels.host import ClockReading
from kernels.process import report
from kernels.protocol import Protocol
from solver.config import Config
from solver.problem import Problem

ROW = "row"
"""The stage of the report that carries a row's figures; ``index`` is its place in the task."""

REST_S, REST_POLL_S = 2.0, 0.02
POWER_CAP = "power_cap"


class Monitor(Interface):
    """What tells the clock: ``kernels.host.ClockMonitor``."""

    def read(self) -> ClockReading:
        """The clock now."""


@dataclass(frozen=True, slots=True)
class RowsTask:
    """Configurations of one problem to time, in this order, unchecked and without a rival."""

    problem: Problem
    configs: tuple[Config, ...]
    device: str
    protocol: Protocol


def rest(monitor: Monitor, most_s: float = REST_S) -> bool:
    """Wait until the power cap no longer holds the clock down for what ran before, so long at most;
    whether it let go."""
    end = time.monotonic() + most_s
    while POWER_CAP in monitor.read().throttle:
        if time.monotonic() >= end:
            return False
        time.sleep(REST_POLL_S)
    return True


def time_rows(task: RowsTask) -> None:
    """Time each configuration and report its figures; nothing of one runs on when it is reported,
    so that a fault is that of the first row without a report.

    Raises as ``kernels.worker.run_task`` does, at the row that it is about.
    """
    from kernels.measure import measure
    from kernels.session import session
    from kernels.sides import input_sets, kernel_of, own_side

    current = session()
    sets, flush = input_sets(current, task.problem, task.protocol)
    rest(current.monitor)
    for index, config in enumerate(task.configs):
        kernel = kernel_of(current, task.problem, config, task.device)
        side = own_side(current, task.problem, config, kernel, None, sets)
        measured = measure(current, [side], task.protocol, flush)
        before, after = measured.clock_before, measured.clock_after
        report(
            ROW,
            index=index,
            median_us=measured.timings[0].median_us,
            p95_us=measured.timings[0].p95_us,
            sm_clock_mhz=after.sm_clock_mhz,
            power_w=after.power_w,
            throttle=list(dict.fromkeys((*before.throttle, *after.throttle))),
        )
