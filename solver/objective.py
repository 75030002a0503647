"""What "best" means: rankings (lexicographic, weighted) and Pareto fronts, over integers.

A configuration has five values: time and wait in ticks, shared memory in bytes, registers
per thread, energy in ticks of its own. Whatever the objective, less of a value is never worse,
so that a lower bound on each value bounds a whole group of configurations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from solver.errors import InvalidInput
from solver.limits import check_choice, check_integer, check_number
from solver.units import ENERGY_TICKS_PER_MJ, TICKS_PER_US

ENERGY = "energy"
TIES = ("time", "wait", "smem", "registers")
"""Names of the values that break ties, in that order. Energy is none of them: it counts where it
is named, on devices whose power was measured."""
AXES = (*TIES, ENERGY)
"""Names of a configuration's values."""

UNITS = {
    "time": "µs",
    "wait": "µs",
    "smem": "KiB",
    "registers": "registers per thread",
    "energy": "mJ",
}
PER_UNIT = {
    "time": TICKS_PER_US,
    "wait": TICKS_PER_US,
    "smem": 1024,
    "registers": 1,
    "energy": ENERGY_TICKS_PER_MJ,
}
"""Ticks, bytes or registers in one unit of a weight or a score."""

WEIGHT_MIN, WEIGHT_MAX = 1e-9, 1e9
WITHIN_MAX = 100
CAP_MAX = 256
CAP = 32
WITHIN = 1.25

Values = tuple[int, int, int, int, int]
"""Time, wait, shared memory, registers, energy of one configuration; energy is 0 where the device
has no constants of power."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """A total preorder of configurations: ranks compared one after another, less is better.

    ``weights`` are integer coefficients of a first rank, the score, or None where there is
    none; ``order`` the indices into AXES of the ranks that follow. ``unit`` converts the first
    rank into the user's unit.
    """

    weights: tuple[int, ...] | None
    order: tuple[int, ...]
    unit: Fraction

    @property
    def by_time(self) -> bool:
        """Whether time alone is the first rank."""
        return self.weights is None and self.order[0] == 0

    @property
    def names(self) -> tuple[str, ...]:
        """The ranks' names, in order."""
        score = ("score",) if self.weights is not None else ()
        return (*score, *(AXES[i] for i in self.order))

    def ranks(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The ranks of a configuration's values; works in any algebra of integers."""
        return rank_terms(values, self.order, self.weights)

    def columns(self, values: Any) -> list[Any] | None:
        """Exact ranks of many configurations, [5, R] → [R] each; None where 64 bits don't hold
        the score."""
        if self.weights is not None:
            most = sum(w * int(v.max(initial=0)) for w, v in zip(self.weights, values, strict=True))
            if most >= 2**62:
                return None
        return list(self.ranks(values))

    def approximate(self, values: Any) -> Any:
        """The first rank of many configurations, [5, R] → [R]; a score in floating point."""
        if self.weights is None:
            return values[self.order[0]]
        return sum(float(w) * v for w, v in zip(self.weights, values, strict=True) if w)

    def in_unit(self, first_rank: int) -> float:
        """A first rank in µs, KiB, registers, or as a score."""
        return float(first_rank * self.unit)


def rank_terms(
    values: Sequence[Any], order: Sequence[int], weights: Sequence[Any] | None
) -> tuple[Any, ...]:
    """Ranks of values of any kind that can be multiplied and added; weights alike."""
    ranks = tuple(values[i] for i in order)
    if weights is None:
        return ranks
    return (sum(w * v for w, v in zip(weights, values, strict=True)), *ranks)


@dataclass(frozen=True, slots=True)
class Lexicographic:
    """Ranked by the values named, then by the others of TIES in their order."""

    order: tuple[str, ...] = ("time", "wait")

    def __post_init__(self) -> None:
        _check_names("objective.order", self.order)

    @property
    def named(self) -> tuple[str, ...]:
        """The values that the objective names."""
        return self.order

    @property
    def ranking(self) -> Ranking:
        """The total order this is."""
        named = [AXES.index(name) for name in self.order]
        rest = [i for i in range(len(TIES)) if i not in named]
        return Ranking(None, (*named, *rest), Fraction(1, PER_UNIT[self.order[0]]))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"kind": "lexicographic", "order": list(self.order)}


@dataclass(frozen=True, slots=True)
class Weighted:
    """Ranked by a weighted sum: time and wait per µs, shared memory per KiB, per register, energy
    per mJ.

    Sums are exact: a weight is the decimal number that Python prints for it.
    """

    weights: tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        _check_names("objective.weights", [name for name, _ in self.weights])
        for name, weight in self.weights:
            field = f"objective.weights.{name}"
            if type(weight) not in (int, float) or not (
                weight == 0 or WEIGHT_MIN <= weight <= WEIGHT_MAX
            ):
                raise InvalidInput(
                    field, f"must be 0 or a number between {WEIGHT_MIN:g} and {WEIGHT_MAX:g}"
                )
        if not any(weight for _, weight in self.weights):
            raise InvalidInput("objective.weights", "at least one must be greater than 0")

    @property
    def named(self) -> tuple[str, ...]:
        """The values that the objective names."""
        return tuple(name for name, _ in self.weights)

    @property
    def ranking(self) -> Ranking:
        """The total order this is: score, then time, wait, shared memory, registers."""
        return _weighted_ranking(self)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, with the unit that each weight is per."""
        return {
            "kind": "weighted",
            "weights": dict(self.weights),
            "units": {name: UNITS[name] for name, _ in self.weights},
        }


@lru_cache(maxsize=256)
def _weighted_ranking(weighted: Weighted) -> Ranking:
    exact = {name: exact_decimal(weight) / PER_UNIT[name] for name, weight in weighted.weights}
    scale = math.lcm(*(weight.denominator for weight in exact.values()))
    weights = tuple(int(exact.get(name, Fraction()) * scale) for name in AXES)
    return Ranking(weights, tuple(range(len(TIES))), Fraction(1, scale))


@dataclass(frozen=True, slots=True)
class Pareto:
    """All trade-offs between ``axes`` whose time is at most ``within`` times the least."""

    axes: tuple[str, ...]
    within: float = WITHIN
    cap: int = CAP

    def __post_init__(self) -> None:
        _check_names("objective.axes", self.axes)
        check_number("objective.within", self.within, 1, WITHIN_MAX)
        check_integer("objective.cap", self.cap, 1, CAP_MAX)

    @property
    def named(self) -> tuple[str, ...]:
        """The values that the objective names."""
        return self.axes

    @property
    def columns(self) -> tuple[int, ...]:
        """Indices of the axes into AXES."""
        return tuple(AXES.index(name) for name in self.axes)

    def time_limit(self, best: int) -> int:
        """The most ticks a point may take where the least is ``best``."""
        return math.floor(exact_decimal(self.within) * best)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "kind": "pareto",
            "axes": list(self.axes),
            "within": self.within,
            "cap": self.cap,
        }


Objective = Lexicographic | Weighted | Pareto
KINDS = ("lexicographic", "weighted", "pareto")

_MEMBERS = {
    "lexicographic": ("order",),
    "weighted": ("weights",),
    "pareto": ("axes", "within", "cap"),
}


def objective_from_dict(raw: Any) -> Objective:
    """An objective from its JSON form; InvalidInput names the path that is wrong."""
    if not isinstance(raw, Mapping):
        raise InvalidInput("objective", f"must be a JSON object, got {type(raw).__name__}")
    kind: Any = raw.get("kind")
    check_choice("objective.kind", kind, KINDS)
    for name in raw:
        if name not in ("kind", *_MEMBERS[kind]):
            raise InvalidInput(
                f"objective.{name}", f"is unknown; {kind} has {', '.join(_MEMBERS[kind])}"
            )
    if kind == "lexicographic":
        return Lexicographic(_names("objective.order", raw.get("order")))
    if kind == "weighted":
        weights = raw.get("weights")
        if not isinstance(weights, Mapping):
            raise InvalidInput("objective.weights", "must be a JSON object of names and numbers")
        _check_names("objective.weights", list(weights))
        return Weighted(tuple((name, weights[name]) for name in AXES if name in weights))
    return Pareto(
        _names("objective.axes", raw.get("axes")), raw.get("within", WITHIN), raw.get("cap", CAP)
    )


def exact_decimal(number: float) -> Fraction:
    """A float as the decimal number that Python prints for it."""
    return Fraction(repr(number))


def _names(path: str, raw: Any) -> tuple[str, ...]:
    if not isinstance(raw, list | tuple):
        raise InvalidInput(path, f"must be a list of names: {', '.join(AXES)}")
    return tuple(raw)


def _check_names(path: str, names: Sequence[Any]) -> None:
    known = all(isinstance(name, str) and name in AXES for name in names)
    if not names or not known or len(set(names)) != len(names):
        raise InvalidInput(path, f"must name some of {', '.join(AXES)}, each once")


DEFAULT = Lexicographic()
