"""Stands in for the timing of rows in a child process: what a row does depends on its stages."""

from __future__ import annotations

import os
import time

from kernels.process import report
from kernels.sweep_worker import ROW, RowsTask

DIES, HANGS, RAISES = 10, 11, 12


def figures(index: int, stages: int) -> None:
    report(
        ROW,
        index=index,
        median_us=float(stages),
        p95_us=stages + 0.5,
        sm_clock_mhz=1755,
        power_w=412.34,
        throttle=["power_cap", "sw_thermal"],
    )


def time_rows(task: RowsTask) -> None:
    for index, config in enumerate(task.configs):
        report("timing", rounds=8)
        if config.stages == DIES:
            os._exit(3)
        if config.stages == HANGS:
            time.sleep(600)
        if config.stages == RAISES:
            raise ValueError("planted,\nin two lines")
        figures(index, config.stages)
