"""Which configurations of given problems a sweep measures: the caller's own, the model's first
ones, and further ones that cover the legal space. Pure, and seeded.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from solver.config import Config
from solver.device import DeviceProfile
from solver.errors import InvalidInput
from solver.limits import check_integer
from solver.pick import best_rows, find_row
from solver.problem import CACHES, Problem
from solver.space import tabulate
from solver.sweep_design import SweepRow, Visit, covering
from solver.units import us_from_ticks

GIVEN, TOP, COVERING = "given", "top", "covering"
ROLES = (GIVEN, TOP, COVERING)
SUITE = "asked"

PROBLEMS_MAX = 64
CONFIGS_MAX = 256
TOP_MAX = 256
COVERING_MAX = 1000
ROWS_MAX = 2000
"""Of all problems together: some ten minutes of a GPU, which other jobs wait for."""
SEED_MAX = 2**31 - 1
TOP_ROWS, COVERING_ROWS, SEED = 20, 0, 1


@dataclass(frozen=True, slots=True)
class ProblemSweep:
    """What is to be measured of each problem: ``configs``, the model's first ``top_k`` and
    ``covering`` further ones, each configuration once.

    Raises InvalidInput for a value out of its limits, or nothing to measure.
    """

    problems: tuple[Problem, ...]
    configs: tuple[Config, ...] = ()
    top_k: int = TOP_ROWS
    covering: int = COVERING_ROWS
    cache: str = "cold"
    seed: int = SEED

    def __post_init__(self) -> None:
        _check_list("problems", self.problems, 1, PROBLEMS_MAX)
        _check_list("configs", self.configs, 0, CONFIGS_MAX)
        check_integer("top_k", self.top_k, 0, TOP_MAX)
        check_integer("covering", self.covering, 0, COVERING_MAX)
        check_integer("seed", self.seed, 0, SEED_MAX)
        if self.cache not in CACHES:
            raise InvalidInput("cache", f"must be {' or '.join(CACHES)}, got {self.cache!r}")
        each = len(self.configs) + self.top_k + self.covering
        if not each:
            raise InvalidInput("top_k", "must be at least 1 without configs and covering")
        rows = each * len(self.problems)
        if rows > ROWS_MAX:
            raise InvalidInput(
                "problems",
                f"must come to at most {ROWS_MAX} rows, got {len(self.problems)} problems of "
                f"{each} (configs, top_k and covering together): {rows}",
            )


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A row to measure: the place of its problem, its predicted time, whether it is the pick."""

    problem: int
    row: SweepRow
    predicted_us: float
    pick: bool


def planned_rows(sweep: ProblemSweep, profile: DeviceProfile) -> tuple[PlannedRow, ...]:
    """The rows of a sweep, in order; a row's id is its index. Of a problem whose space is smaller
    than was asked for, there are fewer.

    Raises IllegalConfig where a given configuration is not legal for a problem.
    """
    rows: list[PlannedRow] = []
    for place, problem in enumerate(sweep.problems):
        table = tabulate(problem, profile, "calibrated", cache=sweep.cache)
        ranked = best_rows(table, max(1, sweep.top_k))
        top = [row.config for row in ranked[: sweep.top_k]]
        taken = dict.fromkeys([*sweep.configs, *top])
        rng = random.Random(f"sweep {sweep.seed} {problem}")
        further = covering(table, sweep.covering, rng, list(taken))
        roles = dict.fromkeys(further, COVERING) | dict.fromkeys(top, TOP)
        roles |= dict.fromkeys(sweep.configs, GIVEN)
        rows += [
            PlannedRow(
                place,
                SweepRow(SUITE, sweep.cache, roles[config], problem, config),
                us_from_ticks(find_row(table, config).time),
                config == ranked[0].config,
            )
            for config in (*taken, *further)
        ]
    return tuple(rows)


def visits_of(rows: Sequence[PlannedRow], seed: int, done: frozenset[int]) -> list[Visit]:
    """In which order rows are measured that are not ``done``: one problem after another, the rows
    of each in a seeded order, so that the clock's drift favours none."""
    by_problem: dict[int, list[int]] = {}
    for number, planned in enumerate(rows):
        by_problem.setdefault(planned.problem, []).append(number)
    visits = []
    for place, numbers in by_problem.items():
        random.Random(f"order {seed} {place}").shuffle(numbers)
        left = tuple(number for number in numbers if number not in done)
        if left:
            visits.append(Visit(0, left))
    return visits


def _check_list(field: str, values: Sequence[object], low: int, high: int) -> None:
    if not low <= len(values) <= high:
        raise InvalidInput(field, f"must have {low} to {high} members, got {len(values)}")
    first: dict[object, int] = {}
    for place, value in enumerate(values):
        if value in first:
            raise InvalidInput(f"{field}.{place}", f"is {field}.{first[value]} again")
        first[value] = place
