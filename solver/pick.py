"""The pick: the first row of the space in the ranking asked for, and Pareto fronts.

Default ranking: time, MATH wait, shared memory, registers, then the configuration's fields. A
work's bound (its deepest ring, no load late, its cheapest set-up) is never above any of its rows'
times, so that where time comes first only works whose bound reaches the best row are opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.config import Config
from solver.deadline import NEVER, Deadline
from solver.errors import IllegalConfig, InvalidProblem
from solver.objective import DEFAULT, Pareto, Ranking, Values
from solver.recurrence import Pipeline, Ticks, end_ticks, wait_ticks
from solver.table import Table

SLACK = 1e-9
"""Relative width within which floating-point scores are compared exactly."""


@dataclass(frozen=True, slots=True)
class Row:
    """One priced configuration; times and energy in ticks."""

    work: int
    kernel: int
    config: Config
    time: int
    wait: int
    smem_bytes: int
    registers: int
    energy: int

    @property
    def values(self) -> Values:
        """Time, wait, shared memory, registers, energy."""
        return (self.time, self.wait, self.smem_bytes, self.registers, self.energy)

    @property
    def order(self) -> tuple[Any, ...]:
        """The key of the default ranking."""
        return self.key(DEFAULT.ranking)

    def key(self, ranking: Ranking) -> tuple[Any, ...]:
        """The key by which rows are compared in a ranking."""
        return (*ranking.ranks(self.values), self.config)


@dataclass(frozen=True, slots=True)
class Front:
    """Every trade-off: one row for each vector of axes values that no candidate dominates.

    ``fastest`` takes the least time of the space and ``time_limit`` is the most ticks that a
    candidate may take. Points are sorted by their vectors; where a deadline came before all were
    found, ``whole`` is false and they are the first ones.
    """

    points: tuple[Row, ...]
    fastest: Row
    time_limit: int
    whole: bool = True


def work_bounds(table: Table) -> Ticks:
    """For each work, a time (ticks) that none of its rows beats."""
    everything = np.arange(len(table.first))
    w = table.works
    # Without what late loads add: tick for tick, a deeper ring is not sure to wait less for them.
    least = Pipeline(
        load=w.load,
        latency=w.latency,
        math=w.math,
        early=w.early,
        epilogue=w.epilogue,
        slots=table.slots_max,
        iterations=w.iterations,
        units=w.units,
    )
    return table.launch_ticks(everything, table.setup_min, end_ticks(least))


def price(table: Table, work: Any, kernel: Any) -> tuple[Ticks, Ticks]:
    """(time, wait) in ticks of the given rows."""
    pipeline = table.pipeline(work, table.kernels.slots[kernel])
    end = end_ticks(pipeline)
    time = table.launch_ticks(work, table.kernels.setup[kernel], end)
    return time, table.works.waves[work] * wait_ticks(pipeline, end)


def row_values(table: Table, work: Ticks, kernel: Ticks) -> Ticks:
    """Time, wait, shared memory, registers and energy of rows. Shape [5, R]."""
    time, wait = price(table, work, kernel)
    resources = (table.kernels.smem_bytes[kernel], table.kernels.registers[kernel])
    return np.stack([time, wait, *resources, table.works.energy(work, time)])


def best_rows(table: Table, count: int = 1, ranking: Ranking = DEFAULT.ranking) -> tuple[Row, ...]:
    """The first ``count`` rows of a ranking; fewer where the space is smaller."""
    if not table.size:
        raise InvalidProblem("m", f"no configuration of {table.family} is legal for this problem")
    works = _works_within_reach(table, count) if ranking.by_time else np.arange(len(table.first))
    work, kernel = table.rows(works)
    values = row_values(table, work, kernel)
    near = _foremost(ranking, values, count)
    rows = _rows(table, work[near], kernel[near], values[:, near])
    return tuple(sorted(rows, key=lambda row: row.key(ranking))[:count])


def _foremost(ranking: Ranking, values: Ticks, count: int) -> Ticks:
    """Indices among which the first ``count`` rows are, those that tie with the last included."""
    first = ranking.approximate(values)
    kept = min(count, len(first)) - 1
    threshold = np.partition(first, kept)[kept]
    near = np.flatnonzero(first <= threshold + abs(threshold) * SLACK)
    columns = ranking.columns(values[:, near])
    if columns is None or len(near) <= count:
        return near
    order = np.lexsort(columns[::-1])
    last = order[kept]
    ties = np.ones(len(near), dtype=bool)
    for column in columns:
        ties &= column == column[last]
    ties[order[: kept + 1]] = True
    return near[ties]


def rows_before(table: Table, row: Row, ranking: Ranking) -> tuple[Ticks, Ticks]:
    """(work, kernel) of all rows that come before a row, which may be another table's."""
    work, kernel = table.rows(np.arange(len(table.first)))
    values = row_values(table, work, kernel)
    first = ranking.approximate(values)
    mine = float(ranking.ranks(row.values)[0])
    before = first < mine * (1 - SLACK)
    key = row.key(ranking)
    near = np.flatnonzero(~before & (first <= mine * (1 + SLACK)))
    close = _rows(table, work[near], kernel[near], values[:, near])
    before[near] = [other.key(ranking) < key for other in close]
    return work[before], kernel[before]


def pareto_front(table: Table, pareto: Pareto, deadline: Deadline = NEVER) -> Front:
    """The whole front of a table that is not empty, or what of it was found by the deadline.

    Each point is the first of its vector in the default order.
    """
    fastest = best_rows(table)[0]
    limit = pareto.time_limit(fastest.time)
    work, kernel = table.rows(np.flatnonzero(work_bounds(table) <= limit))
    values = row_values(table, work, kernel)
    within = values[0] <= limit
    work, kernel, values = work[within], kernel[within], values[:, within]
    vectors = values[list(pareto.columns)]
    order = np.lexsort(vectors[::-1])
    ranked = vectors[:, order]
    differs = (ranked[:, 1:] != ranked[:, :-1]).any(axis=0)
    first = np.concatenate([[0], np.flatnonzero(differs) + 1])
    stop = np.append(first[1:], len(order))
    # Distinct vectors in lexicographic order: none that is left dominates the first of them.
    left, at = np.ascontiguousarray(ranked[:, first]), np.arange(len(first))
    points: list[Row] = []
    while at.size and not (points and deadline.passed):
        equal = order[first[at[0]] : stop[at[0]]]
        rows = _rows(table, work[equal], kernel[equal], values[:, equal])
        points.append(min(rows, key=lambda row: row.order))
        kept = (left < left[:, :1]).any(axis=0)
        left, at = left[:, kept], at[kept]
    return Front(tuple(points), fastest, limit, whole=not at.size)


def find_row(table: Table, config: Config) -> Row:
    """The row of one configuration; IllegalConfig where the space does not hold it."""
    values = config.to_columns()
    fixed = [column == values[name] for name, column in table.works.config.items()]
    for work in np.flatnonzero(np.all(fixed, axis=0)):
        _, kernels = table.rows(np.array([work]))
        columns = table.kernels.config.items()
        match = [column[kernels] == values[name] for name, column in columns]
        for kernel in kernels[np.all(match, axis=0)] if match else kernels:
            at = (np.array([work]), np.array([kernel]))
            return _rows(table, *at, row_values(table, *at))[0]
    raise IllegalConfig("config", f"is not in the legal space of {table.family} for this problem")


def _works_within_reach(table: Table, count: int) -> Ticks:
    """Works among which the ``count`` fastest rows are."""
    bounds = work_bounds(table)
    opened = 8 + count
    if opened >= len(bounds):
        return np.arange(len(bounds))
    # Argpartition's order among equals may differ: it decides what is opened, not what is best.
    ranked = np.argpartition(bounds, opened)[:opened]
    time, _ = price(table, *table.rows(ranked))
    if len(time) < count:
        return np.arange(len(bounds))
    return np.flatnonzero(bounds <= np.partition(time, count - 1)[count - 1])


def _rows(
    table: Table, work: Sequence[int] | Ticks, kernel: Sequence[int] | Ticks, values: Ticks
) -> list[Row]:
    return [
        Row(int(w), int(k), table.config(int(w), int(k)), *numbers)
        for w, k, numbers in zip(work, kernel, values.T.tolist(), strict=True)
    ]
