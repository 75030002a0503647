"""Answers by brute force, for every objective and every set of constraints.

Every configuration of a table is played event by event and all of them are compared.
Constraints and objectives are read from their JSON form; with the pick, the constraints and
the proof this shares nothing but the table, so that it can be held against them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from solver.config import Config
from solver.errors import InvalidInput
from solver.problem import Problem
from solver.recurrence import Pipeline, Ticks
from solver.simulator import simulate_rows
from solver.table import Mask, Table
from solver.units import TICKS_PER_US

AXES = ("time", "wait", "smem", "registers")
"""The values that break ties; energy counts where it is named."""
PER_UNIT = {
    "time": TICKS_PER_US,
    "wait": TICKS_PER_US,
    "smem": 1024,
    "registers": 1,
    "energy": 10_000_000,
}
ATOMS_MAX = 12
"""Atoms of which every subset is tried."""

ITERATIONS_MAX = 2_000_000
"""Most k-iterations of a CTA that are played, a minute or two; the LLM suite has a million."""

Json = Mapping[str, Any]

Atom = tuple[str, str, Any]
"""One constraint: path (``smem_bytes``, ``config.stages``), relation (min, max, in), value."""


@dataclass(frozen=True, slots=True)
class RowValues:
    """What every row of a table comes to. Arrays of shape [R]; time and wait in ticks, energy in
    ticks of 100 pJ, 0 where the table has no columns of power; ``watts`` are those of its
    launches held for seconds, with their margin, not rounded."""

    work: Ticks
    kernel: Ticks
    time: Ticks
    wait: Ticks
    smem: Ticks
    registers: Ticks
    energy: Ticks
    watts: np.ndarray[Any, np.dtype[np.float64]]

    def take(self, rows: Any) -> RowValues:
        """The rows selected by an index or mask."""
        return RowValues(*(getattr(self, name)[rows] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class PlayedRow:
    """One configuration and its values; ``score`` where the objective has weights."""

    config: Config
    time: int
    wait: int
    smem: int
    registers: int
    energy: int
    score: Fraction | None = None

    @property
    def values(self) -> tuple[int, int, int, int, int]:
        """Its values, each axis's in turn."""
        return (self.time, self.wait, self.smem, self.registers, self.energy)


def check_playable(problem: Problem, table: Table) -> None:
    """Raise InvalidInput where brute force would take minutes: its events are too many."""
    longest = int((table.works.units * table.works.iterations).max())
    if longest > ITERATIONS_MAX:
        raise InvalidInput(
            "suite",
            f"{problem.m} x {problem.n} x {problem.k} has CTAs of {longest} k-iterations; brute "
            f"force plays at most {ITERATIONS_MAX}",
        )


def values(table: Table) -> RowValues:
    """Every row of a table, played. Rows with the same parameters are played once."""
    work, kernel = table.rows(np.arange(len(table.first)))
    slots = table.kernels.slots[kernel]
    rows = table.pipeline(work, slots)
    columns = np.stack([getattr(rows, name) for name in Pipeline.__slots__], axis=1)
    runs, run_of = np.unique(columns, axis=0, return_inverse=True)
    end, wait = simulate_rows(Pipeline(*runs.T)) if len(runs) else (slots, slots)
    w, k = table.works, table.kernels
    time = w.fixed[work] + k.setup[kernel] + w.waves[work] * end[run_of] + w.store[work]
    energy, watts = np.zeros_like(time), np.zeros(len(time))
    if w.power:
        energy = w.power["power_static"][work] * time + w.power["power_dynamic"][work]
        drawn = energy / (time * (w.power["power_slowdown"][work] / 1000))
        most = np.maximum(drawn, w.power["power_limit"][work])
        watts = np.minimum(drawn * (w.power["power_high"][work] / 1000), most)
    return RowValues(
        work=work,
        kernel=kernel,
        time=time,
        wait=w.waves[work] * wait[run_of],
        smem=k.smem_bytes[kernel],
        registers=k.registers[kernel],
        energy=energy,
        watts=watts,
    )


def atoms(constraints: Json) -> Iterator[Atom]:
    """The single constraints of a JSON object."""
    given = {name: bound for name, bound in constraints.items() if name != "config"}
    given |= {f"config.{name}": bound for name, bound in constraints.get("config", {}).items()}
    for path, bound in given.items():
        for relation, value in bound.items():
            yield path, relation, value


def satisfies(table: Table, work: Ticks, kernel: Ticks, constraints: Json) -> Mask:
    """Which rows satisfy all constraints. Shape [R].

    ``table`` was priced for them: ``works.active`` are the CTAs they leave a launch.
    """
    mask = np.ones(len(work), dtype=bool)
    for path, relation, value in atoms(constraints):
        mask &= _holds(_column(table, work, kernel, path), relation, value)
    return mask


def first_rows(
    table: Table, objective: Json, count: int = 1, constraints: Json | None = None
) -> list[PlayedRow]:
    """The first ``count`` allowed rows in the ranking of a lexicographic or weighted objective."""
    rows = _allowed(table, constraints)
    keys = _keys(rows, objective)
    if not keys:
        return []
    last = sorted(keys)[:count][-1]
    found = [(keys[i], _config(table, rows, i), i) for i in range(len(keys)) if keys[i] <= last]
    weighted = objective["kind"] == "weighted"
    return [
        _played(table, rows, i, key[0] if weighted else None) for key, _, i in sorted(found)[:count]
    ]


def front(table: Table, objective: Json, constraints: Json | None = None) -> list[PlayedRow]:
    """The whole front of a pareto objective, ``cap`` or not, in its order.

    A vector is kept where no other vector is nowhere worse: each is compared with all.
    """
    rows = _allowed(table, constraints)
    if not rows.time.size:
        return []
    limit = math.floor(_exact(objective.get("within", 1.25)) * int(rows.time.min()))
    rows = rows.take(rows.time <= limit)
    every = np.stack([getattr(rows, axis) for axis in objective["axes"]], axis=1)
    vectors = np.unique(every, axis=0)
    columns = [np.ascontiguousarray(column) for column in vectors.T]
    points = []
    for vector in vectors:
        nowhere_worse = np.ones(len(vectors), dtype=bool)
        for column, value in zip(columns, vector, strict=True):
            nowhere_worse &= column <= value
        if np.count_nonzero(nowhere_worse) == 1:  # itself
            equal = np.flatnonzero((every == vector).all(axis=1))
            played = [_played(table, rows, int(i)) for i in equal]
            first = min(played, key=lambda p: (p.time, p.wait, p.smem, p.registers, p.config))
            points.append((tuple(vector.tolist()), first))
    return [row for _, row in sorted(points, key=lambda point: point[0])]


def sat_subsets(table: Table, given: Sequence[Atom]) -> set[frozenset[int]]:
    """Which subsets of atoms some row satisfies, each subset as indices into ``given``.

    ``table`` is priced without constraints, so that ``works.active`` is the most CTAs a row can
    have: atoms on ``sms`` are satisfied together by a row where they leave some number of whole
    clusters up to that. Raises ValueError for more atoms than ATOMS_MAX.
    """
    if len(given) > ATOMS_MAX:
        raise ValueError(f"at most {ATOMS_MAX} atoms, got {len(given)}")
    work, kernel = table.rows(np.arange(len(table.first)))
    grids = np.arange(1, int(table.works.active.max(initial=0)) + 1)
    holds = [
        _holds(grids if path == "sms" else _column(table, work, kernel, path), relation, value)
        for path, relation, value in given
    ]
    found = set()
    for size in range(len(given) + 1):
        for subset in combinations(range(len(given)), size):
            rows = np.ones(len(work), dtype=bool)
            left = np.ones(len(grids), dtype=bool)
            for i in subset:
                if given[i][0] == "sms":
                    left &= holds[i]
                else:
                    rows &= holds[i]
            if (rows & _launchable(table, work, grids[left])).any():
                found.add(frozenset(subset))
    return found


def _launchable(table: Table, work: Ticks, grids: Ticks) -> Mask:
    """Which rows of a table priced without constraints can have one of so many CTAs. Shape [R].

    A row has up to ``works.active``, in whole clusters.
    """
    most, cluster = table.works.active[work], _cluster(table)[work]
    mask = np.zeros(len(work), dtype=bool)
    for size in set(cluster.tolist()):
        fitting = grids[grids % size == 0]
        if fitting.size:
            mask |= (cluster == size) & (most >= fitting.min())
    return mask


def _cluster(table: Table) -> Ticks:
    """CTAs of a cluster of each work. Shape [W]."""
    return table.works.config["cluster_m"] * table.works.config["cluster_n"]


def is_minimal_core(table: Table, core: Sequence[Atom]) -> bool:
    """Whether no row satisfies all of ``core`` and some row satisfies every proper subset."""
    everything = frozenset(range(len(core)))
    proper = {
        frozenset(s) for size in range(len(core)) for s in combinations(range(len(core)), size)
    }
    return everything not in (found := sat_subsets(table, core)) and proper <= found


def least_change(table: Table, given: Sequence[Atom], index: int) -> Any:
    """The value of one atom, as near as can be to its own, with which some row satisfies all;
    None where none does. ``table`` is priced without constraints, as for ``sat_subsets``."""
    path, relation, value = given[index]
    others = [atom for at, atom in enumerate(given) if at != index]
    work, kernel = table.rows(np.arange(len(table.first)))
    most = table.works.active[work]
    rows = np.ones(len(work), dtype=bool)
    grids = np.arange(1, int(most.max(initial=0)) + 1)
    for other, relation_, value_ in others:
        if other == "sms":
            grids = grids[_holds(grids, relation_, value_)]
        else:
            rows &= _holds(_column(table, work, kernel, other), relation_, value_)
    rows &= _launchable(table, work, grids)
    if not rows.any():
        return None
    if path == "sms":
        launches = set(zip(most[rows].tolist(), _cluster(table)[work[rows]].tolist(), strict=True))
        reachable = [
            g for g in grids.tolist() if any(g <= top and g % size == 0 for top, size in launches)
        ]
    else:
        reachable = sorted(set(_column(table, work[rows], kernel[rows], path).tolist()))
    bounds = value if relation == "in" else [value]
    nearest = min(reachable, key=lambda found: (min(abs(found - b) for b in bounds), found))
    return sorted({*bounds, nearest}) if relation == "in" else nearest


def _column(table: Table, work: Ticks, kernel: Ticks, path: str) -> Ticks:
    """The variable that a path names, of each row. Shape [R]."""
    if path == "smem_bytes":
        return table.kernels.smem_bytes[kernel]
    if path == "registers_per_thread":
        return table.kernels.registers[kernel]
    if path == "sms":
        return table.works.active[work]
    if path == "power_w":
        # A row is within a cap of whole watts where its power, rounded up, is.
        rows = values(table)
        watts = {
            row: math.ceil(value - 1e-9)
            for row, value in zip(
                zip(rows.work.tolist(), rows.kernel.tolist(), strict=True),
                rows.watts.tolist(),
                strict=True,
            )
        }
        pairs = zip(work.tolist(), kernel.tolist(), strict=True)
        return np.array([watts[pair] for pair in pairs], dtype=np.int64)
    field = path.removeprefix("config.")
    if field in table.works.config:
        return table.works.config[field][work]
    return table.kernels.config[field][kernel]


def _holds(column: Ticks, relation: str, value: Any) -> Mask:
    mask = np.zeros(len(column), dtype=bool)
    if relation == "min":
        mask |= column >= value
    elif relation == "max":
        mask |= column <= value
    else:
        for one in value:
            mask |= column == one
    return mask


def _allowed(table: Table, constraints: Json | None) -> RowValues:
    rows = values(table)
    return rows.take(satisfies(table, rows.work, rows.kernel, constraints or {}))


def _keys(rows: RowValues, objective: Json) -> list[tuple[Any, ...]]:
    """What each row is ranked by, the configuration excepted."""
    plain = {axis: getattr(rows, axis).tolist() for axis in PER_UNIT}
    if objective["kind"] == "lexicographic":
        order = [*objective["order"], *(a for a in AXES if a not in objective["order"])]
        return list(zip(*(plain[axis] for axis in order), strict=True))
    weights = {a: _exact(w) / PER_UNIT[a] for a, w in objective["weights"].items()}
    scores = [
        sum((w * plain[axis][i] for axis, w in weights.items()), Fraction())
        for i in range(len(rows.time))
    ]
    return list(zip(scores, *(plain[axis] for axis in AXES), strict=True))


def _exact(number: float) -> Fraction:
    """A number of JSON as the decimal that Python prints for it."""
    return Fraction(repr(number))


def _config(table: Table, rows: RowValues, i: int) -> Config:
    config: Config = table.config(int(rows.work[i]), int(rows.kernel[i]))
    return config


def _played(table: Table, rows: RowValues, i: int, score: Fraction | None = None) -> PlayedRow:
    time, wait, smem, registers, energy = (int(getattr(rows, axis)[i]) for axis in PER_UNIT)
    return PlayedRow(_config(table, rows, i), time, wait, smem, registers, energy, score)
