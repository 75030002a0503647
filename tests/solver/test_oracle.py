"""Brute force over every objective and constraint: right itself, and equal to the solver."""

from __future__ import annotations

import random
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from solver import oracle
from solver.conflict import Unsatisfiable
from solver.constraints import Constraints
from solver.device import load_profile
from solver.objective import Pareto, objective_from_dict
from solver.pick import best_rows, pareto_front
from solver.problem import Problem
from solver.simulator import simulate
from solver.space import Pricing, build_space, tabulate
from solver.table import Table

H200 = load_profile("h200")
SMS = H200.limit("sms")
PROBLEM = Problem(300, 1100, 520)
RESTRICTED = (
    {},
    {"smem_bytes": {"max": 98304}},
    {"registers_per_thread": {"min": 100, "max": 168}, "config": {"dma_warps": {"in": [2]}}},
    {"sms": {"max": 100}},
    {"sms": {"in": [5, 16, 77], "min": 10}, "config": {"stages": {"min": 3, "max": 5}}},
    {"config": {"tile_m": {"in": [64, 192]}, "tile_n": {"max": 64}, "split_k": {"min": 2}}},
)
RANKED = (
    {"kind": "lexicographic", "order": ["time", "wait"]},
    {"kind": "lexicographic", "order": ["smem"]},
    {"kind": "lexicographic", "order": ["registers", "wait", "smem"]},
    {"kind": "lexicographic", "order": ["wait", "time"]},
    {"kind": "weighted", "weights": {"time": 1, "wait": 0.1}},
    {"kind": "weighted", "weights": {"smem": 0.3, "registers": 1e-9}},
    {"kind": "weighted", "weights": {"time": 2.5, "wait": 0, "smem": 0.01, "registers": 0.07}},
)
FRONTS = (
    {"kind": "pareto", "axes": ["time", "wait", "smem"], "within": 1.25},
    {"kind": "pareto", "axes": ["registers", "time"], "within": 3},
    {"kind": "pareto", "axes": ["smem"], "within": 1.1},
    {"kind": "pareto", "axes": ["wait", "smem", "registers", "time"], "within": 1},
)


@cache
def whole() -> Table:
    return tabulate(PROBLEM, H200, "calibrated")


def small(rows: int) -> Table:
    """Some works of the whole table, of few rows each."""
    table = whole()
    keep = np.zeros(len(table.first), dtype=bool)
    keep[random.Random(rows).sample(range(len(keep)), rows)] = True
    kernels = np.arange(len(table.kernels.slots)) % 7 == 0
    return table.restrict(keep, kernels)


def within(given: Any) -> Table:
    """The legal space priced for the numbers of CTAs that constraints allow."""
    allowed = [g for g in range(1, SMS + 1) if holds(given.get("sms", {}), g)]
    grids = np.array(allowed, dtype=np.int64) if "sms" in given else None
    return tabulate(PROBLEM, H200, "calibrated", grids=grids)


def holds(bound: Any, value: int) -> bool:
    low, high = bound.get("min", value), bound.get("max", value)
    return low <= value <= high and value in bound.get("in", [value])


def units_of(config: Any) -> int:
    """Units of work of a launch, from the problem alone."""
    tiles = -(-PROBLEM.m // config.tile_m) * -(-PROBLEM.n // config.tile_n)
    return tiles * config.split_k


def test_every_row_is_played_as_one_run_would_be() -> None:
    table = whole()
    rows = oracle.values(table)
    assert len(rows.time) == table.size
    w, k = table.works, table.kernels
    for i in random.Random(1).sample(range(table.size), 60):
        work, kernel = int(rows.work[i]), int(rows.kernel[i])
        slots = int(k.slots[kernel])
        run = simulate(
            load=int(w.load_at(work, slots)),
            latency=int(w.latency[work]),
            math=int(w.math[work]),
            early=int(w.early[work]),
            epilogue=int(w.epilogue[work]),
            slots=slots,
            iterations=int(w.iterations[work]),
            units=int(w.units[work]),
        )
        frame = int(w.fixed[work] + k.setup[kernel] + w.store[work])
        assert rows.time[i] == frame + run.end * w.waves[work]
        assert rows.wait[i] == run.wait * w.waves[work]
        assert (rows.smem[i], rows.registers[i]) == (k.smem_bytes[kernel], k.registers[kernel])


@pytest.mark.parametrize("given", RESTRICTED, ids=str)
def test_a_row_satisfies_what_its_configuration_and_its_launch_satisfy(given: Any) -> None:
    table = within(given)
    work, kernel = table.rows(np.arange(len(table.first)))
    mask = oracle.satisfies(table, work, kernel, given)
    allowed = [g for g in range(1, SMS + 1) if holds(given.get("sms", {}), g)]
    for i in random.Random(2).sample(range(len(work)), 300):
        config = table.config(int(work[i]), int(kernel[i]))
        cluster = config.cluster_m * config.cluster_n
        fitting = [g for g in allowed if g <= units_of(config) and g % cluster == 0]
        grid = max(fitting, default=None)
        if grid is not None:
            assert table.works.active[work[i]] == grid
        registers = int(table.kernels.registers[kernel[i]])
        right = (
            grid is not None
            and holds(given.get("smem_bytes", {}), int(table.kernels.smem_bytes[kernel[i]]))
            and holds(given.get("registers_per_thread", {}), registers)
            and all(holds(b, getattr(config, n)) for n, b in given.get("config", {}).items())
        )
        assert mask[i] == right
    assert mask.any()


def test_a_score_is_exact_where_floating_point_is_not() -> None:
    table = small(20)
    weights = {"time": 0.1, "wait": 0.2, "smem": 0.3}
    for row in oracle.first_rows(table, {"kind": "weighted", "weights": weights}, 10):
        tenths = Fraction(row.time + 2 * row.wait, 10_000) + Fraction(3 * row.smem, 1024)
        assert row.score == tenths / 10


def test_equal_values_are_ranked_by_the_configurations_fields() -> None:
    table = whole()
    rows = oracle.first_rows(table, {"kind": "lexicographic", "order": ["smem"]}, table.size)
    assert len({row.config for row in rows}) == table.size
    keys = [(row.smem, row.time, row.wait, row.registers, row.config) for row in rows]
    assert keys == sorted(keys)
    assert len({key[:-1] for key in keys}) < table.size


@pytest.mark.parametrize("objective", FRONTS, ids=str)
def test_a_front_is_what_no_candidate_dominates(objective: Any) -> None:
    table = small(120)
    everything = oracle.first_rows(table, RANKED[0], table.size)
    limit = Fraction(repr(objective["within"])) * everything[0].time
    candidates = [row for row in everything if row.time <= limit]

    def vector(row: oracle.PlayedRow) -> tuple[int, ...]:
        return tuple(getattr(row, axis) for axis in objective["axes"])

    def dominates(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        return a != b and all(x <= y for x, y in zip(a, b, strict=True))

    vectors = {vector(row) for row in candidates}
    kept = sorted(v for v in vectors if not any(dominates(other, v) for other in vectors))
    front = oracle.front(table, objective)
    assert [vector(row) for row in front] == kept
    # Ranked by time, wait, shared memory, registers, configuration: the first of each vector.
    assert front == [next(row for row in candidates if vector(row) == v) for v in kept]


@pytest.mark.parametrize("given", RESTRICTED, ids=str)
@pytest.mark.parametrize("objective", RANKED, ids=str)
def test_the_pick_and_its_alternatives_are_the_first_rows(objective: Any, given: Any) -> None:
    space = build_space(PROBLEM, H200, Pricing(), Constraints.from_dict(given))
    picked = objective_from_dict(objective)
    assert not isinstance(picked, Pareto)
    rows = best_rows(space.allowed, 12, picked.ranking)
    played = oracle.first_rows(within(given), objective, 12, given)
    assert [(r.config, r.values) for r in rows] == [(p.config, p.values) for p in played]
    if objective["kind"] == "weighted":
        first_ranks = [picked.ranking.ranks(row.values)[0] for row in rows]
        assert [rank * picked.ranking.unit for rank in first_ranks] == [p.score for p in played]


@pytest.mark.parametrize("given", RESTRICTED, ids=str)
@pytest.mark.parametrize("objective", FRONTS, ids=str)
def test_the_front_is_the_whole_front(objective: Any, given: Any) -> None:
    space = build_space(PROBLEM, H200, Pricing(), Constraints.from_dict(given))
    pareto = objective_from_dict(objective)
    assert isinstance(pareto, Pareto)
    points = pareto_front(space.allowed, pareto).points
    played = oracle.front(within(given), objective, given)
    assert [(p.config, p.values) for p in points] == [(p.config, p.values) for p in played]


def test_the_published_model_is_played_by_waves() -> None:
    profile = load_profile("a6000")
    table = tabulate(PROBLEM, profile, "paper", grids=np.array([3, 7]))
    rows = best_rows(table, 8)
    played = oracle.first_rows(table, RANKED[0], 8)
    assert [(r.config, r.time, r.wait) for r in rows] == [
        (p.config, p.time, p.wait) for p in played
    ]


def test_a_subset_is_satisfiable_where_the_space_priced_for_it_has_a_row() -> None:
    """Sets of atoms whose every subset is tried, those on SMs with prices of their own."""
    given: tuple[oracle.Atom, ...] = (
        ("sms", "min", 40),
        ("sms", "in", [3, 41, 100]),
        ("sms", "max", 50),
        ("config.tile_m", "in", [256]),
        ("config.tile_n", "min", 208),
        ("smem_bytes", "max", 120_000),
    )
    found = oracle.sat_subsets(whole(), given)
    for size in range(2 ** len(given)):
        subset = [i for i in range(len(given)) if size >> i & 1]
        document: dict[str, Any] = {}
        for path, relation, value in (given[i] for i in subset):
            place, _, field = path.rpartition(".")
            holder = document.setdefault(place, {}) if place else document
            holder.setdefault(field, {})[relation] = value
        table = within(document)
        work, kernel = table.rows(np.arange(len(table.first)))
        some = oracle.satisfies(table, work, kernel, document).any()
        assert (frozenset(subset) in found) == some
    assert frozenset(range(len(given))) not in found
    assert frozenset({0, 1, 2}) in found


CLASHING = (
    {"sms": {"in": [1, 3, 131]}, "config": {"cluster_m": {"min": 2}}},
    {"sms": {"max": 1}, "config": {"cluster_n": {"in": [2]}, "stages": {"max": 4}}},
    {"smem_bytes": {"max": 9000}, "config": {"stages": {"min": 4}, "dma_warps": {"in": [1]}}},
    {"sms": {"min": 60, "max": 59}, "registers_per_thread": {"max": 168}},
    {"sms": {"min": 120}, "config": {"tile_m": {"min": 192}, "tile_n": {"min": 200}}},
    {"sms": {"in": [200]}, "config": {"stages": {"min": 13}}},
    {
        "registers_per_thread": {"max": 90},
        "sms": {"max": 100},
        "config": {
            "tile_m": {"min": 128, "max": 256},
            "tile_n": {"min": 128},
            "stages": {"max": 9},
        },
    },
)


@pytest.mark.parametrize("given", CLASHING, ids=str)
def test_the_core_of_a_conflict_is_minimal(given: Any) -> None:
    with pytest.raises(Unsatisfiable) as caught:
        build_space(PROBLEM, H200, Pricing(), Constraints.from_dict(given))
    by_path = {f"constraints.{p}.{r}": (p, r, v) for p, r, v in oracle.atoms(given)}
    core = [by_path[path] for path in caught.value.core]
    assert oracle.is_minimal_core(whole(), core)
    assert not oracle.is_minimal_core(whole(), list(by_path.values())) or len(core) == len(by_path)


def test_too_many_atoms_are_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        oracle.sat_subsets(whole(), [("sms", "min", 1)] * (oracle.ATOMS_MAX + 1))


def test_an_empty_space_has_neither_first_rows_nor_a_front() -> None:
    table = whole()
    nothing = table.restrict(
        np.zeros(len(table.first), dtype=bool), np.ones(len(table.kernels.slots), dtype=bool)
    )
    for space, given in ((nothing, None), (table, {"config": {"stages": {"min": 13}}})):
        assert oracle.first_rows(space, RANKED[0], 3, given) == []
        assert oracle.front(space, FRONTS[0], given) == []
    assert oracle.sat_subsets(nothing, [("sms", "min", 1)]) == set()
