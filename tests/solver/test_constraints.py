"""The user's limits: how they read, what they leave, and why nothing may be left."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest

from solver import oracle
from solver.bench_constraints import are_least, is_minimal, random_constraints
from solver.conflict import Unsatisfiable, find_conflict
from solver.constraints import NONE, Bound, Constraints
from solver.device import load_profile
from solver.engine import Engine
from solver.errors import InvalidInput, InvalidProblem, ProofError
from solver.objective import DEFAULT
from solver.pick import best_rows
from solver.problem import Problem
from solver.proof import Prover
from solver.question import Question
from solver.space import Pricing, Space, build_space, tabulate

H200 = load_profile("h200")
PROBLEMS = [
    Problem(16, 4096, 4096),
    Problem(512, 1024, 512),
    Problem(100, 100, 104),
    Problem(3, 5, 8),
]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine()


def space_of(problem: Problem, raw: dict[str, Any]) -> Space:
    return build_space(problem, H200, Pricing(), Constraints.from_dict(raw))


@pytest.mark.parametrize(
    ("raw", "field", "words"),
    [
        ([], "constraints", "JSON object"),
        ({"speed": {"max": 1}}, "constraints.speed", "smem_bytes, registers_per_thread, sms"),
        ({"config": {"family": {"in": [1]}}}, "constraints.config.family", "tile_m"),
        ({"config": {"tile_q": {"max": 1}}}, "constraints.config.tile_q", "tile_m"),
        ({"config": 5}, "constraints.config", "JSON object"),
        ({"smem_bytes": 5}, "constraints.smem_bytes", "JSON object"),
        ({"smem_bytes": {}}, "constraints.smem_bytes", "at least one of min, max, in"),
        ({"smem_bytes": {"below": 5}}, "constraints.smem_bytes.below", "min, max, in"),
        ({"smem_bytes": {"max": "5"}}, "constraints.smem_bytes.max", "an integer between 0"),
        ({"smem_bytes": {"max": True}}, "constraints.smem_bytes.max", "an integer between 0"),
        ({"smem_bytes": {"max": 5.0}}, "constraints.smem_bytes.max", "an integer between 0"),
        ({"smem_bytes": {"max": -1}}, "constraints.smem_bytes.max", "between 0 and 2147483647"),
        ({"sms": {"min": 2**31}}, "constraints.sms.min", "2147483647"),
        ({"config": {"stages": {"in": []}}}, "constraints.config.stages.in", "1 to 64 integers"),
        ({"config": {"stages": {"in": 3}}}, "constraints.config.stages.in", "1 to 64 integers"),
        ({"config": {"stages": {"in": [3, "4"]}}}, "constraints.config.stages.in.1", "an integer"),
    ],
)
def test_a_wrong_constraint_is_named_by_its_path(raw: Any, field: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Constraints.from_dict(raw)
    assert caught.value.field == field
    assert words in caught.value.message


def test_constraints_have_one_canonical_form() -> None:
    raw = {
        "config": {"stages": {"max": 6, "min": 3}, "tile_m": {"in": [128, 64, 128]}},
        "smem_bytes": {"max": 98304},
    }
    canonical = {
        "smem_bytes": {"max": 98304},
        "config": {"tile_m": {"in": [64, 128]}, "stages": {"min": 3, "max": 6}},
    }
    assert Constraints.from_dict(raw).to_dict() == canonical
    assert list(Constraints.from_dict(raw).to_dict()) == list(canonical)
    assert Constraints.from_dict({}).to_dict() == {}


def test_random_constraint_sets_are_answered_as_by_brute_force(engine: Engine) -> None:
    """A sample of what `warpwright bench constraints` does 500 times."""
    rng = random.Random(11)
    seen = {"answered": 0, "refused": 0}
    for _ in range(30):
        problem = rng.choice(PROBLEMS)
        free = tabulate(problem, H200, "calibrated")
        raw = random_constraints(rng, free)
        constraints = Constraints.from_dict(raw)
        priced = tabulate(problem, H200, "calibrated", grids=constraints.grids(132))
        expected = oracle.first_rows(priced, DEFAULT.to_dict(), 1, raw)
        if expected:
            seen["answered"] += 1
            answer = engine.optimize(Question(problem, constraints=constraints))
            assert answer.config == expected[0].config, raw
            continue
        seen["refused"] += 1
        with pytest.raises(Unsatisfiable) as caught:
            engine.optimize(Question(problem, constraints=constraints))
        assert is_minimal(free, caught.value), raw
        assert are_least(free, raw, caught.value), raw
    assert min(seen.values()) >= 5


def test_fewer_sms_change_the_pick_and_its_grid(engine: Engine) -> None:
    problem = Problem(4096, 4096, 4096)
    free = engine.optimize(Question(problem)).body
    held = engine.optimize(
        Question(problem, constraints=Constraints.from_dict({"sms": {"max": 100}}))
    ).body
    assert free["kernel"]["grid"] == 132
    assert held["kernel"]["grid"] <= 100
    assert held["config"] != free["config"]
    assert held["predicted"]["time_us"] > free["predicted"]["time_us"]


def test_a_launch_takes_the_most_ctas_that_are_allowed_and_have_work() -> None:
    raw = {"sms": {"in": [8, 64, 100, 500]}}
    table = space_of(Problem(1024, 1024, 1024), raw).allowed
    tiles = -(-1024 // table.works.config["tile_m"]) * -(-1024 // table.works.config["tile_n"])
    units = tiles * table.works.config["split_k"]
    expected = [max(g for g in (8, 64, 100) if g <= u) for u in units.tolist()]
    assert table.works.active.tolist() == expected
    assert (table.works.units == -(-units // table.works.active)).all()


def test_a_launch_has_whole_clusters() -> None:
    problem = Problem(1024, 1024, 1024)
    for raw in ({}, {"sms": {"max": 101}}, {"sms": {"in": [3, 8, 77]}}):
        works = space_of(problem, raw).allowed.works
        assert set(works.cluster.tolist()) == {1, 2}
        assert (works.active % works.cluster == 0).all()
    assert works.active[works.cluster == 2].max() == 8
    assert works.active[works.cluster == 1].max() == 77
    alone = space_of(problem, {"sms": {"in": [7]}}).allowed
    assert (alone.works.cluster == 1).all()


def test_a_restricted_table_has_its_own_extremes_and_rows() -> None:
    space = space_of(
        Problem(512, 4096, 4096), {"config": {"stages": {"max": 4}, "tile_m": {"max": 128}}}
    )
    table = space.allowed
    work, kernel = table.rows(np.arange(len(table.first)))
    assert table.kernels.config["stages"][kernel].max() == 4
    assert table.works.config["tile_m"].max() == 128
    for w in range(0, len(table.first), 97):
        mine = kernel[work == w]
        assert table.slots_max[w] == table.kernels.slots[mine].max()
        assert table.setup_min[w] == table.kernels.setup[mine].min()
    assert space.excluded == space.legal.size - table.size > 0
    configs = {table.config(int(w), int(k)) for w, k in zip(work, kernel, strict=True)}
    assert len(configs) == table.size


def test_what_is_legal_does_not_depend_on_constraints() -> None:
    problem = Problem(2048, 2048, 2048)
    sizes = {
        space_of(problem, raw).legal.size
        for raw in ({}, {"sms": {"max": 3}}, {"config": {"stages": {"min": 4}}})
    }
    assert len(sizes) == 1


@pytest.mark.parametrize(
    ("raw", "core", "relaxed"),
    [
        ({"config": {"tile_m": {"in": [77]}}}, ["config.tile_m.in"], [[64, 77]]),
        ({"sms": {"min": 200}}, ["sms.min"], [132]),
        ({"sms": {"max": 0}}, ["sms.max"], [1]),
        (
            {"sms": {"max": 1}, "config": {"cluster_m": {"in": [2]}}},
            ["sms.max", "config.cluster_m.in"],
            [2, [1, 2]],
        ),
        (
            {"sms": {"in": [5, 133]}, "config": {"cluster_n": {"min": 2}}},
            ["sms.in", "config.cluster_n.min"],
            [[4, 5, 133], 1],
        ),
        ({"sms": {"min": 90, "max": 80}}, ["sms.min", "sms.max"], [80, 90]),
        (
            {"config": {"stages": {"min": 5, "max": 4}}},
            ["config.stages.min", "config.stages.max"],
            [4, 5],
        ),
    ],
)
def test_a_contradiction_is_told_by_its_members_and_the_least_change_of_each(
    raw: dict[str, Any], core: list[str], relaxed: list[Any]
) -> None:
    with pytest.raises(Unsatisfiable) as caught:
        space_of(Problem(4096, 4096, 4096), raw)
    assert list(caught.value.core) == [f"constraints.{path}" for path in core]
    assert [each["relaxed"] for each in caught.value.relaxations] == relaxed


def test_two_separate_contradictions_leave_no_single_change() -> None:
    raw = {"config": {"stages": {"min": 13}, "tile_n": {"min": 300}}}
    with pytest.raises(Unsatisfiable) as caught:
        space_of(Problem(4096, 4096, 4096), raw)
    assert len(caught.value.core) == 1
    assert [each["relaxed"] for each in caught.value.relaxations] == [None]
    assert "other constraints clash too" in caught.value.message


def test_a_core_that_is_too_large_or_does_not_clash_is_refused() -> None:
    """Planted: conflicts told of other bounds than those that clash."""
    held = Constraints.from_dict({"config": {"stages": {"min": 13}, "split_k": {"max": 2}}})
    free = tabulate(Problem(512, 4096, 4096), H200, "calibrated")
    prover = Prover()
    stages, other = "constraints.config.stages.min", "constraints.config.split_k.max"
    prover.refute(free, free, held, Unsatisfiable((stages,), ()))
    for core in ((other,), (stages, other), ("constraints.sms.max",)):
        with pytest.raises(ProofError, match="no minimal core"):
            prover.refute(free, free, held, Unsatisfiable(core, ()))


def test_a_conflict_of_a_bound_that_was_not_read_as_it_is_is_refused() -> None:
    """Planted: numpy takes "at most" for "less than"."""

    class Crooked(Bound):
        def holds(self, column: Any) -> Any:
            return column < self.values[0]

    crooked = Constraints((Crooked("config.dma_warps", "max", (1,)),))
    free = tabulate(Problem(512, 4096, 4096), H200, "calibrated")
    conflict = find_conflict(free, free, crooked, lambda _: free)
    with pytest.raises(ProofError, match="not applied as it reads"):
        Prover().refute(free, free, crooked, conflict)


def test_the_published_model_knows_no_registers(engine: Engine) -> None:
    held = Constraints.from_dict({"registers_per_thread": {"max": 100}})
    with pytest.raises(InvalidInput, match="registers_per_thread") as caught:
        engine.optimize(
            Question(Problem(512, 512, 512), device="a6000", model="paper", constraints=held)
        )
    assert caught.value.field == "constraints.registers_per_thread"


def test_the_published_model_is_constrained_too(engine: Engine) -> None:
    held = Constraints.from_dict({"config": {"dma_warps": {"in": [1]}}, "sms": {"max": 20}})
    body = engine.optimize(
        Question(Problem(512, 512, 512), device="a6000", model="paper", constraints=held)
    ).body
    assert body["config"]["dma_warps"] == 1
    assert body["kernel"]["grid"] == 16
    assert body["predicted"]["pipeline"]["waves"] == 1


@pytest.mark.parametrize("change", ["drops a row", "keeps a row"])
def test_a_constraint_that_was_not_applied_as_it_reads_is_noticed(change: str) -> None:
    """Planted: a bound that numpy reads otherwise than Z3 does."""
    space = space_of(Problem(512, 4096, 4096), {"smem_bytes": {"max": 98304}})
    step = 2**14 if change == "keeps a row" else -(2**14)

    class Crooked(Bound):
        def holds(self, column: Any) -> Any:
            return column <= self.values[0] + step

    bound = space.constraints.bounds[0]
    crooked = Constraints((Crooked(bound.variable, bound.relation, bound.values),))
    allowed = crooked.restrict(space.legal)
    with pytest.raises(ProofError, match="not applied as it reads"):
        Prover().prove(Space(space.legal, allowed, crooked), [best_rows(allowed)[0]])


@pytest.mark.parametrize(
    ("raw", "change"),
    [
        (raw, change)
        for raw in ({}, {"smem_bytes": {"max": 98304}}, {"config": {"dma_warps": {"in": [1]}}})
        for change in ("drops the best work", "drops kernels", "adds rows", "moves")
        if raw or change != "adds rows"  # without constraints nothing is left out
    ],
)
def test_rows_allowed_that_are_not_the_legal_ones_within_bounds_are_noticed(
    raw: dict[str, Any], change: str
) -> None:
    """Planted: the table that competed is not what the constraints leave of the legal one."""
    space = space_of(Problem(512, 4096, 4096), raw)
    works = np.ones(len(space.allowed.first), dtype=bool)
    kernels = np.ones(len(space.allowed.kernels.slots), dtype=bool)
    if change == "drops the best work":
        works[best_rows(space.allowed)[0].work] = False
        allowed = space.allowed.restrict(works, kernels)
    elif change == "drops kernels":
        kernels[best_rows(space.allowed)[0].kernel] = False
        allowed = space.allowed.restrict(works, kernels)
    elif change == "adds rows":
        allowed = space.legal
    else:
        slower = dataclasses.replace(space.allowed.works, load=space.allowed.works.load + 1)
        allowed = dataclasses.replace(space.allowed, works=slower)
    with pytest.raises(ProofError, match="not the legal ones"):
        Prover().prove(Space(space.legal, allowed, space.constraints), [best_rows(allowed)[0]])


def test_without_constraints_nothing_is_excluded() -> None:
    space = build_space(Problem(512, 512, 512), H200, Pricing(), NONE)
    assert space.allowed is space.legal
    assert space.excluded == 0


def test_times_beyond_64_bits_are_refused_not_wrapped(engine: Engine) -> None:
    one = Constraints.from_dict({"sms": {"max": 1}})
    for question in (
        Question(
            Problem(2**31 - 1, 2**29, 1),
            device="a6000",
            model="paper",
            divergence=32,
            constraints=one,
            proof="none",
        ),
        Question(Problem(1, 2**31 - 1, 2**29), device="h20", constraints=one, proof="none"),
    ):
        with pytest.raises(InvalidProblem, match="times are counted up to"):
            engine.optimize(question)
        free = dataclasses.replace(question, constraints=NONE)
        assert engine.optimize(free).body["predicted"]["time_us"] > 0
