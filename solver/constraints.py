"""The user's own limits: bounds and allowed values on what a configuration uses or is.

Each relation of each variable is one Bound with a path in the user's words, so that a
contradiction can be told by naming those that clash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from solver.config import Config
from solver.errors import InvalidInput
from solver.limits import check_integer
from solver.pick import price
from solver.recurrence import Ticks
from solver.table import Mask, Table

POWER = "power_w"
RESOURCES = ("smem_bytes", "registers_per_thread", "sms", POWER)
CONFIG_FIELDS = tuple(f.name for f in fields(Config) if f.name != "family")
VARIABLES = (*RESOURCES, *(f"config.{name}" for name in CONFIG_FIELDS))
RELATIONS = ("min", "max", "in")
RELATIONS_OF = {POWER: ("max",)}
"""Of a variable that takes only some: power is capped, and nobody asks for more of it."""
BOUND_MAX = 2**31 - 1
VALUES_MAX = 64


@dataclass(frozen=True, slots=True)
class Bound:
    """One relation of one variable: at least or at most one value, or one of several."""

    variable: str
    relation: str
    values: tuple[int, ...]

    @property
    def path(self) -> str:
        """The user's own name for it, as ``constraints.config.stages.max``."""
        return f"constraints.{self.variable}.{self.relation}"

    @property
    def given(self) -> int | list[int]:
        """The value as the user writes it."""
        return list(self.values) if self.relation == "in" else self.values[0]

    def holds(self, column: Ticks) -> Mask:
        """Which values of the variable satisfy it."""
        if self.relation == "min":
            return column >= self.values[0]
        if self.relation == "max":
            return column <= self.values[0]
        return np.isin(column, self.values)

    def distance(self, column: Ticks) -> Ticks:
        """How far each value is from satisfying it, 0 where it does."""
        away: Ticks = np.abs(column[..., None] - np.array(self.values)).min(axis=-1)
        return np.where(self.holds(column), 0, away)

    def widened(self, value: int) -> Bound:
        """The bound with the least change that lets ``value`` in."""
        values = tuple(sorted({*self.values, value})) if self.relation == "in" else (value,)
        return Bound(self.variable, self.relation, values)

    def words(self) -> str:
        """The bound in words, as ``smem_bytes at most 65536``."""
        relation = {"min": "at least", "max": "at most", "in": "one of"}[self.relation]
        return f"{self.variable} {relation} {', '.join(map(str, self.values))}"


@dataclass(frozen=True)
class Constraints:
    """All bounds of a question, in the order of VARIABLES and RELATIONS."""

    bounds: tuple[Bound, ...] = ()

    @classmethod
    def from_dict(cls, raw: Any) -> Constraints:
        """From their JSON form; InvalidInput names the path that is wrong and what it takes."""
        given = dict(_members(raw, "constraints", (*RESOURCES, "config")))
        config = _members(given.pop("config", {}), "constraints.config", CONFIG_FIELDS)
        given |= {f"config.{name}": value for name, value in config}
        bounds: list[Bound] = []
        for variable in VARIABLES:
            if variable in given:
                bounds += _bounds(variable, given[variable])
        return cls(tuple(bounds))

    def to_dict(self) -> dict[str, Any]:
        """The canonical JSON form; {} without bounds."""
        result: dict[str, Any] = {}
        for bound in self.bounds:
            place, name = result, bound.variable
            if name.startswith("config."):
                place, name = result.setdefault("config", {}), name.removeprefix("config.")
            place.setdefault(name, {})[bound.relation] = bound.given
        return result

    def replace(self, bound: Bound, by: Bound | None) -> Constraints:
        """These constraints with one bound replaced, or left out."""
        swapped = (by if each == bound else each for each in self.bounds)
        return Constraints(tuple(each for each in swapped if each is not None))

    def adding(self, bound: Bound) -> Constraints:
        """These constraints and one more bound, in place of one of the same path."""
        rest = [each for each in self.bounds if each.path != bound.path]
        order = [(v, r) for v in VARIABLES for r in RELATIONS]
        return Constraints(
            tuple(sorted([*rest, bound], key=lambda b: order.index((b.variable, b.relation))))
        )

    @cached_property
    def _on_sms(self) -> tuple[Bound, ...]:
        return tuple(bound for bound in self.bounds if bound.variable == "sms")

    def grids(self, sms: int) -> Ticks | None:
        """The counts of CTAs a launch may have on a device of ``sms``; None for any."""
        if not self._on_sms:
            return None
        counts = np.arange(1, sms + 1, dtype=np.int64)
        for bound in self._on_sms:
            counts = counts[bound.holds(counts)]
        return counts

    def restrict(self, table: Table) -> Table:
        """The rows of a table, priced for these constraints, that satisfy all of them."""
        if not self.bounds:
            return table
        works = np.ones(len(table.first), dtype=bool)
        kernels = np.ones(len(table.kernels.slots), dtype=bool)
        for bound in self.bounds:
            if bound.variable == POWER:
                continue
            of_works, column = table.column(bound.variable)
            if of_works:
                works &= bound.holds(column)
            else:
                kernels &= bound.holds(column)
        table = table.restrict(works, kernels)
        for bound in self.bounds:
            if bound.variable == POWER:
                rows = table.rows(np.arange(len(table.first)))
                table = table.restrict_rows(bound.holds(row_column(table, POWER, *rows)))
        return table

    @property
    def on_power(self) -> str | None:
        """The path of a bound on power; None without one."""
        return next((bound.path for bound in self.bounds if bound.variable == POWER), None)


NONE = Constraints()


def row_column(table: Table, variable: str, work: Ticks, kernel: Ticks) -> Ticks:
    """What rows have of a variable; the table must have columns of power for POWER. Shape [R]."""
    if variable == POWER:
        watts: Ticks = table.works.watts(work, price(table, work, kernel)[0])
        return watts
    of_works, column = table.column(variable)
    values: Ticks = column[work if of_works else kernel]
    return values


def _members(raw: Any, path: str, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if not isinstance(raw, Mapping):
        raise InvalidInput(path, f"must be a JSON object, got {type(raw).__name__}")
    for name, value in raw.items():
        if name not in names:
            raise InvalidInput(f"{path}.{name}", f"is unknown; there are {', '.join(names)}")
        yield name, value


def _bounds(variable: str, raw: Any) -> Iterator[Bound]:
    path, relations = f"constraints.{variable}", RELATIONS_OF.get(variable, RELATIONS)
    given = dict(_members(raw, path, relations))
    if not given:
        raise InvalidInput(path, f"must have at least one of {', '.join(relations)}")
    for relation in relations:
        if relation not in given:
            continue
        here, value = f"{path}.{relation}", given[relation]
        if relation != "in":
            yield Bound(variable, relation, (_integer(value, here),))
        elif not isinstance(value, list | tuple) or not 1 <= len(value) <= VALUES_MAX:
            raise InvalidInput(here, f"must be a list of 1 to {VALUES_MAX} integers")
        else:
            values = {_integer(item, f"{here}.{i}") for i, item in enumerate(value)}
            yield Bound(variable, relation, tuple(sorted(values)))


def _integer(value: Any, path: str) -> int:
    check_integer(path, value, 0, BOUND_MAX, high_words=f"{BOUND_MAX} (2^31 - 1)")
    return int(value)
