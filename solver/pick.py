"""The pick: the first row of the legal space in the lexicographic order of the claim.

Order: time, MATH wait, shared memory, registers, then the configuration's fields. A work's
bound (its deepest ring, its cheapest set-up) is never above any of its rows, so only works
whose bound reaches the best row are opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.config import Config
from solver.errors import IllegalConfig, InvalidProblem
from solver.recurrence import Ticks, end_ticks, wait_ticks
from solver.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    """One priced configuration; times in ticks."""

    work: int
    kernel: int
    config: Config
    time: int
    wait: int
    smem_bytes: int
    registers: int

    @property
    def order(self) -> tuple[int, int, int, int, Config]:
        """The key by which rows are compared."""
        return (self.time, self.wait, self.smem_bytes, self.registers, self.config)


def work_bounds(table: Table) -> Ticks:
    """For each work, a time (ticks) that none of its rows beats."""
    everything = np.arange(len(table.first))
    end = end_ticks(table.pipeline(everything, table.slots_max))
    return table.launch_ticks(everything, table.setup_min, end)


def price(table: Table, work: Any, kernel: Any) -> tuple[Ticks, Ticks]:
    """(time, wait) in ticks of the given rows."""
    pipeline = table.pipeline(work, table.kernels.slots[kernel])
    end = end_ticks(pipeline)
    time = table.launch_ticks(work, table.kernels.setup[kernel], end)
    return time, table.works.waves[work] * wait_ticks(pipeline, end)


def best_rows(table: Table, count: int = 1) -> tuple[Row, ...]:
    """The first ``count`` rows of the order; fewer where the space is smaller."""
    if not table.size:
        raise InvalidProblem("m", f"no configuration of {table.family} is legal for this problem")
    bounds = work_bounds(table)
    opened = 8 + count
    ranked = np.argsort(bounds, kind="stable") if opened < len(bounds) else np.arange(len(bounds))
    work, kernel = table.rows(ranked[:opened])
    time, _ = price(table, work, kernel)
    kept = min(count, len(time)) - 1
    threshold = np.partition(time, kept)[kept] if len(time) >= count else np.iinfo(np.int64).max
    work, kernel = table.rows(np.flatnonzero(bounds <= threshold))
    time, wait = price(table, work, kernel)
    near = np.flatnonzero(time <= threshold)
    rows = [_row(table, int(work[i]), int(kernel[i]), int(time[i]), int(wait[i])) for i in near]
    return tuple(sorted(rows, key=lambda row: row.order)[:count])


def find_row(table: Table, config: Config) -> Row:
    """The row of one configuration; IllegalConfig where the space does not hold it."""
    values = config.to_dict()
    fixed = [column == values[name] for name, column in table.works.config.items()]
    for work in np.flatnonzero(np.all(fixed, axis=0)):
        _, kernels = table.rows(np.array([work]))
        columns = table.kernels.config.items()
        match = [column[kernels] == values[name] for name, column in columns]
        for kernel in kernels[np.all(match, axis=0)] if match else kernels:
            time, wait = price(table, np.array([work]), np.array([kernel]))
            return _row(table, int(work), int(kernel), int(time[0]), int(wait[0]))
    raise IllegalConfig("config", f"is not in the legal space of {table.family} for this problem")


def _row(table: Table, work: int, kernel: int, time: int, wait: int) -> Row:
    return Row(
        work=work,
        kernel=kernel,
        config=table.config(work, kernel),
        time=time,
        wait=wait,
        smem_bytes=int(table.kernels.smem_bytes[kernel]),
        registers=int(table.kernels.registers[kernel]),
    )
