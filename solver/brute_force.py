"""The pick by brute force: every legal configuration through the event simulator."""

from __future__ import annotations

import numpy as np

from solver.config import Config
from solver.simulator import simulate_rows
from solver.table import Table


def brute_force(table: Table) -> tuple[int, int, Config]:
    """(time, wait, configuration) of the first row of the order, times in ticks.

    Shares nothing with the pick but the table: rows with the same parameters are played
    once, event by event, and all rows are compared.
    """
    work, kernel = table.rows(np.arange(len(table.first)))
    slots = table.kernels.slots[kernel]
    runs, run_of = np.unique(np.stack([work, slots], axis=1), axis=0, return_inverse=True)
    end, wait = simulate_rows(table.pipeline(runs[:, 0], runs[:, 1]))
    w, k = table.works, table.kernels
    time = w.fixed[work] + k.setup[kernel] + w.waves[work] * end[run_of] + w.store[work]
    waited = w.waves[work] * wait[run_of]
    order = np.lexsort((k.registers[kernel], k.smem_bytes[kernel], waited, time))
    first = order[0]

    def key(i: int) -> tuple[int, int, int, int]:
        return (
            int(time[i]),
            int(waited[i]),
            int(k.smem_bytes[kernel[i]]),
            int(k.registers[kernel[i]]),
        )

    tied = []
    for i in order:
        if key(i) != key(first):
            break
        tied.append(table.config(int(work[i]), int(kernel[i])))
    return int(time[first]), int(waited[first]), min(tied)
