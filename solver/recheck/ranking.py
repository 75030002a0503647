"""Which configurations come first: rankings and fronts, opened only as far as needed.

Every row starts with a bound on its end (``events.path_bound``), which bounds its time and its
wait; memory and registers are known. Rows wait in a heap under their key, which less of a
value never raises. A row that comes up with a bound goes back with its true key; one that
comes up with its true key is the next of the order.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter, mul

from solver.recheck.events import Pipeline, last_math_end, math_wait, path_bound
from solver.recheck.question import TIES, VALUES, Objective
from solver.recheck.space import (
    ENERGY_TICKS_PER_MJ,
    TICKS_PER_US,
    Kernel,
    Space,
    Work,
    config_values,
)

Values = tuple[int, int, int, int, int]
"""Time and wait in ticks, shared memory in bytes, registers per thread, energy in ticks."""
Key = tuple[int, ...]
UNIT = {
    "time": TICKS_PER_US,
    "wait": TICKS_PER_US,
    "smem": 1024,
    "registers": 1,
    "energy": ENERGY_TICKS_PER_MJ,
}
"""Ticks, bytes or registers in one unit of a weight."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One configuration with its true values."""

    work: Work
    kernel: Kernel
    values: Values

    @property
    def time(self) -> int:
        """Ticks of the whole launch."""
        return self.values[0]

    @property
    def wait(self) -> int:
        """Ticks for which the MATH warps of the critical CTA are idle."""
        return self.values[1]


def _late(work: Work, slots: int) -> int:
    """What a load takes longer in the mean because some come late, where the ring is used again."""
    if work.iterations * work.units <= slots or not work.jitter:
        return 0
    ramp = work.latency + work.load + work.math - work.early
    late = abs(ramp - slots * max(work.load, work.math))
    return round(work.jitter / 2 * math.exp(-late / work.jitter) / slots)


def pipeline(work: Work, slots: int) -> Pipeline:
    """The recurrence of a work at a ring depth."""
    return Pipeline(
        load=work.load + _late(work, slots),
        latency=work.latency,
        math=work.math,
        early=work.early,
        epilogue=work.epilogue,
        slots=slots,
        iterations=work.iterations,
        units=work.units,
    )


def values_at(work: Work, kernel: Kernel, end: int) -> Values:
    """A configuration's values if its critical CTA's last MATH ends at ``end``."""
    idle = math_wait(pipeline(work, kernel.slots), end)
    time = work.fixed + kernel.setup + work.waves * end + work.store
    resources = (kernel.smem_bytes, kernel.registers)
    return (time, work.waves * idle, *resources, work.energy(time))


def true_row(work: Work, kernel: Kernel) -> Row:
    """One configuration, priced by its events."""
    end = last_math_end(pipeline(work, kernel.slots))
    return Row(work, kernel, values_at(work, kernel, end))


class Ranked:
    """Rows of a space in ascending order of a key, as an iterator.

    ``played`` counts the runs whose true end was needed. ``drop``, asked of each row when it
    comes up with the values its bound gives, takes it out for good.
    """

    def __init__(
        self,
        space: Space,
        key: Callable[[Values], Key],
        drop: Callable[[Values], bool] = lambda values: False,
    ) -> None:
        self.played = 0
        self._key, self._drop = key, drop
        self._rows = list(space.rows())
        self._ends: dict[tuple[int, int], int] = {}
        bounds: dict[tuple[int, int], int] = {}
        self._heap: list[tuple[Key, Key, int, Values]] = []
        for at, (work, kernel) in enumerate(self._rows):
            ring = (id(work), kernel.slots)
            if ring not in bounds:
                bounds[ring] = path_bound(pipeline(work, kernel.slots))
            values = values_at(work, kernel, bounds[ring])
            # An empty tuple comes before every configuration: a bound before a true key.
            self._heap.append((key(values), (), at, values))
        heapq.heapify(self._heap)

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        while self._heap:
            _, config, at, values = heapq.heappop(self._heap)
            work, kernel = self._rows[at]
            if config:
                return Row(work, kernel, values)
            if self._drop(values):
                continue
            values = values_at(work, kernel, self._end(work, kernel.slots))
            entry = (self._key(values), config_values(work, kernel), at, values)
            heapq.heappush(self._heap, entry)
        raise StopIteration

    def _end(self, work: Work, slots: int) -> int:
        ring = (id(work), slots)
        if ring not in self._ends:
            self._ends[ring] = last_math_end(pipeline(work, slots))
            self.played += 1
        return self._ends[ring]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """How an objective ranks: the key of a configuration's values, and its first rank's unit.

    ``score`` turns a first rank into the objective's score; None where there is none.
    """

    key: Callable[[Values], Key]
    score: Fraction | None


def ranking(objective: Objective) -> Ranking:
    """The ranking of a lexicographic or weighted objective; ties go by the order of VALUES."""
    if objective.kind == "weighted":
        per_value = {
            name: weight / UNIT[name]
            for name, weight in zip(objective.names, objective.weights, strict=True)
        }
        scale = math.lcm(*(weight.denominator for weight in per_value.values()))
        weights = [int(per_value.get(name, 0) * scale) for name in VALUES]

        def weighted(v: Values) -> Key:
            return (sum(map(mul, weights, v)), *v[: len(TIES)])

        return Ranking(weighted, Fraction(1, scale))
    named = [VALUES.index(name) for name in objective.names]
    order = (*named, *(i for i in range(len(TIES)) if i not in named))
    return Ranking(itemgetter(*order), None)


@dataclass(frozen=True, slots=True, eq=False)
class Front:
    """All of a front's points in ascending order, and the least time allowed, in ticks."""

    points: tuple[Row, ...]
    least_time: int
    played: int


def _by_default(values: Values) -> Key:
    return values[: len(TIES)]


def front(space: Space, objective: Objective) -> Front:
    """The Pareto front of a space that is not empty.

    In ascending order of the axes' vector, ties by all values and the configuration, a row
    comes after all that dominate it and after the row that stands for its vector.
    """
    by_time = Ranked(space, _by_default)
    least_time = next(by_time).time
    time_limit = math.floor(objective.within * least_time)
    axes = [VALUES.index(name) for name in objective.names]
    vectors: list[tuple[int, ...]] = []

    def is_covered(values: Values) -> bool:
        vector = [values[axis] for axis in axes]
        return values[0] > time_limit or any(
            all(p <= v for p, v in zip(point, vector, strict=True)) for point in vectors
        )

    def key(values: Values) -> Key:
        return (*(values[axis] for axis in axes), *_by_default(values))

    points = []
    rows = Ranked(space, key, is_covered)
    for row in rows:
        if not is_covered(row.values):
            points.append(row)
            vectors.append(tuple(row.values[axis] for axis in axes))
    return Front(tuple(points), least_time, by_time.played + rows.played)
