"""What "best" may mean, against brute force, with proofs and with claims that must fail."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction
from typing import Any

import pytest

from solver import oracle
from solver.constraints import Constraints
from solver.device import load_profile
from solver.engine import Engine
from solver.errors import InvalidInput, ProofError
from solver.objective import TIES, Pareto, objective_from_dict
from solver.pick import best_rows, find_row, pareto_front
from solver.problem import Problem
from solver.question import Question
from solver.solution import Proof
from solver.space import Space, tabulate

H200 = load_profile("h200")
PROBLEMS = [
    Problem(16, 4096, 4096),
    Problem(77, 1000, 72),
    Problem(512, 512, 1024),
    Problem(300, 1100, 520),
]
ORDERS = [list(p) for n in (1, 2, 4) for p in itertools.permutations(TIES, n)]
WEIGHTS = [
    {"time": 1},
    {"time": 1, "wait": 0.1},
    {"time": 1, "smem": 0.05},
    {"smem": 3},
    {"wait": 1e-9, "registers": 1e9},
    {"time": 0.1, "wait": 0.2, "smem": 0.3, "registers": 0.4},
    {"time": 1 / 3, "smem": 1 / 7},
]
AXES_SETS = [["time", "wait", "smem"], ["time", "smem"], ["wait", "smem"], ["registers"], [*TIES]]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine()


def space(problem: Problem) -> Space:
    return Space.whole(tabulate(problem, H200, "calibrated"))


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (None, "objective"),
        ({}, "objective.kind"),
        ({"kind": "best"}, "objective.kind"),
        ({"kind": ["pareto"]}, "objective.kind"),
        ({"kind": "lexicographic", "order": []}, "objective.order"),
        ({"kind": "lexicographic"}, "objective.order"),
        ({"kind": "lexicographic", "order": ["time", "time"]}, "objective.order"),
        ({"kind": "lexicographic", "order": ["power"]}, "objective.order"),
        ({"kind": "lexicographic", "order": [["time"]]}, "objective.order"),
        ({"kind": "lexicographic", "order": "time"}, "objective.order"),
        ({"kind": "lexicographic", "order": ["time"], "cap": 3}, "objective.cap"),
        ({"kind": "weighted"}, "objective.weights"),
        ({"kind": "weighted", "weights": {}}, "objective.weights"),
        ({"kind": "weighted", "weights": {"power": 1}}, "objective.weights"),
        ({"kind": "weighted", "weights": {"time": 0}}, "objective.weights"),
        ({"kind": "weighted", "weights": {"time": -1}}, "objective.weights.time"),
        ({"kind": "weighted", "weights": {"time": float("nan")}}, "objective.weights.time"),
        ({"kind": "weighted", "weights": {"time": float("inf")}}, "objective.weights.time"),
        ({"kind": "weighted", "weights": {"time": True}}, "objective.weights.time"),
        ({"kind": "weighted", "weights": {"time": "1"}}, "objective.weights.time"),
        ({"kind": "weighted", "weights": {"time": 10**400}}, "objective.weights.time"),
        ({"kind": "pareto"}, "objective.axes"),
        ({"kind": "pareto", "axes": ["time"], "within": 0.9}, "objective.within"),
        ({"kind": "pareto", "axes": ["time"], "within": 101}, "objective.within"),
        ({"kind": "pareto", "axes": ["time"], "cap": 0}, "objective.cap"),
        ({"kind": "pareto", "axes": ["time"], "cap": 2.0}, "objective.cap"),
    ],
)
def test_a_wrong_objective_is_named_by_its_path(raw: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        objective_from_dict(raw)
    assert caught.value.field == field


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_every_order_is_answered_as_by_brute_force_and_proved(
    order: list[str], engine: Engine
) -> None:
    raw = {"kind": "lexicographic", "order": order}
    problem = PROBLEMS[len(order) % len(PROBLEMS)]
    solution = engine.optimize(Question(problem, objective=objective_from_dict(raw))).solution
    first = oracle.first_rows(solution.space.allowed, raw)[0]
    assert solution.pick.config == first.config
    assert isinstance(solution.proof, Proof)


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS[:2], ids=str)
def test_weighted_sums_are_exact_and_proved(
    weights: dict[str, float], problem: Problem, engine: Engine
) -> None:
    raw = {"kind": "weighted", "weights": weights}
    answer = engine.optimize(Question(problem, objective=objective_from_dict(raw), top_k=3))
    expected = oracle.first_rows(answer.solution.space.allowed, raw, 3)
    assert [row.config for row in answer.solution.rows] == [row.config for row in expected]
    assert answer.body["score"] == float(expected[0].score or 0)
    units = {"time": "µs", "wait": "µs", "smem": "KiB", "registers": "registers per thread"}
    assert answer.body["objective"]["units"] == {name: units[name] for name in weights}


def test_a_score_is_the_sum_a_user_works_out_by_hand(engine: Engine) -> None:
    raw = {"kind": "weighted", "weights": {"time": 1, "wait": 0.1, "smem": 0.05}}
    body = engine.optimize(
        Question(Problem(512, 512, 512), objective=objective_from_dict(raw))
    ).body
    by_hand = (
        Fraction(str(body["predicted"]["time_us"]))
        + Fraction("0.1") * Fraction(str(body["predicted"]["wait_us"]))
        + Fraction("0.05") * Fraction(body["kernel"]["smem_bytes"], 1024)
    )
    assert body["score"] == float(by_hand)


@pytest.mark.parametrize("axes", AXES_SETS, ids="-".join)
@pytest.mark.parametrize("within", [1, 1.25, 2])
def test_fronts_are_whole_and_proved(axes: list[str], within: float, engine: Engine) -> None:
    problem = PROBLEMS[(len(axes) + int(within)) % len(PROBLEMS)]
    raw = {"kind": "pareto", "axes": axes, "within": within, "cap": 7}
    answer = engine.optimize(Question(problem, objective=objective_from_dict(raw)))
    expected = oracle.front(answer.solution.space.allowed, raw)
    assert answer.solution.front is not None
    assert [row.config for row in answer.solution.front.points] == [row.config for row in expected]
    body = answer.body
    assert body["front_size"] == len(expected)
    assert body["complete"] is (len(expected) <= 7)
    assert [point["config"] for point in body["front"]] == [
        row.config.to_dict() for row in expected[:7]
    ]
    assert body["config"] == body["front"][0]["config"]


def test_a_front_is_bounded_by_constraints(engine: Engine) -> None:
    raw = {"kind": "pareto", "axes": ["time", "smem"], "within": 2}
    held = {"smem_bytes": {"max": 98304}, "sms": {"max": 90}}
    answer = engine.optimize(
        Question(
            Problem(512, 4096, 4096),
            objective=objective_from_dict(raw),
            constraints=Constraints.from_dict(held),
        )
    )
    expected = oracle.front(answer.solution.space.legal, raw, held)
    assert answer.solution.front is not None
    assert [row.config for row in answer.solution.front.points] == [row.config for row in expected]
    assert all(point["smem_bytes"] <= 98304 for point in answer.body["front"])


def test_memory_as_a_penalty_meets_memory_as_a_limit(engine: Engine) -> None:
    """A heavier weight never buys more memory; the light end is the unconstrained pick."""
    problem = Problem(4096, 4096, 4096)
    used = []
    for weight in (0, 0.01, 0.1, 1, 10, 100):
        raw = {"kind": "weighted", "weights": {"time": 1, "smem": weight}}
        used.append(
            engine.optimize(Question(problem, objective=objective_from_dict(raw))).solution.pick
        )
    smem = [row.smem_bytes for row in used]
    assert smem == sorted(smem, reverse=True)
    assert smem[0] > smem[-1]
    assert used[0].config == engine.optimize(Question(problem)).config


def test_alternatives_are_the_next_ones_and_proved_to_be(engine: Engine) -> None:
    problem = Problem(512, 4096, 4096)
    asked = space(problem)
    rows = best_rows(asked.allowed, 8)
    engine.prover.prove(asked, rows)
    for wrong in (
        (*rows[:3], *rows[4:]),
        (rows[1], rows[0]),
        (rows[0], rows[0]),
        (rows[0], dataclasses.replace(rows[1], wait=rows[1].wait + 1)),
        rows[1:],
    ):
        with pytest.raises(ProofError):
            engine.prover.prove(asked, wrong)


@pytest.mark.parametrize("kind", ["lexicographic", "weighted"])
def test_no_other_row_passes_as_the_first(kind: str, engine: Engine) -> None:
    raw = {
        "lexicographic": {"kind": "lexicographic", "order": ["smem", "time"]},
        "weighted": {"kind": "weighted", "weights": {"time": 1, "smem": 0.05}},
    }[kind]
    objective = objective_from_dict(raw)
    assert not isinstance(objective, Pareto)
    asked = space(Problem(64, 4096, 4096))
    for row in best_rows(asked.allowed, 30, objective.ranking)[1:]:
        with pytest.raises(ProofError):
            engine.prover.prove(asked, [row], objective.ranking)


@pytest.mark.parametrize("axes", [("time", "wait", "smem"), ("wait", "smem")])
def test_a_front_that_is_not_the_front_is_refused(axes: tuple[str, ...], engine: Engine) -> None:
    pareto = Pareto(axes)
    asked = space(Problem(512, 4096, 4096))
    front = pareto_front(asked.allowed, pareto)
    points = front.points
    assert isinstance(engine.prover.prove_front(asked, front, pareto), Proof)
    assert len(points) > 1
    on_it = {row.config for row in points}
    beaten = next(row for row in best_rows(asked.allowed, 64) if row.config not in on_it)
    slower = best_rows(asked.allowed, 40)[-1]
    assert slower.time > front.fastest.time
    quicker = dataclasses.replace(front.fastest, time=front.fastest.time * 9 // 10)
    for change in (
        *({"points": points[:at] + points[at + 1 :]} for at in range(len(points))),
        {"points": (*points, beaten)},
        {"points": (beaten, *points)},
        {"points": (*points, points[-1])},
        {"points": (points[1], points[0], *points[2:])},
        {"points": (dataclasses.replace(points[0], smem_bytes=0), *points[1:])},
        {"points": (dataclasses.replace(points[0], config=beaten.config), *points[1:])},
        {"fastest": slower},
        {"fastest": slower, "time_limit": pareto.time_limit(slower.time)},
        {"fastest": quicker},
        {"fastest": quicker, "time_limit": pareto.time_limit(quicker.time)},
        {"time_limit": front.fastest.time},
        {"time_limit": front.time_limit + 1},
    ):
        with pytest.raises(ProofError):
            engine.prover.prove_front(asked, dataclasses.replace(front, **change), pareto)


@pytest.mark.parametrize("factor", [0.85, 0.95, 1.1])
def test_a_front_cut_at_another_time_is_refused(factor: float, engine: Engine) -> None:
    """Planted: the whole front, but of what lies within a factor of another time."""
    pareto = Pareto(("wait", "smem"), within=2)
    asked = space(Problem(512, 4096, 4096))
    front = pareto_front(asked.allowed, pareto)
    limit = int(front.time_limit * factor)
    other = pareto_front(
        asked.allowed, dataclasses.replace(pareto, within=limit / front.fastest.time)
    )
    claimed = dataclasses.replace(other, time_limit=limit)
    with pytest.raises(ProofError):
        engine.prover.prove_front(asked, claimed, pareto)


def test_a_row_under_another_rows_configuration_is_refused(engine: Engine) -> None:
    asked = space(Problem(512, 4096, 4096))
    first, second, third = best_rows(asked.allowed, 3)
    for wrong in (
        [dataclasses.replace(first, config=second.config)],
        [first, dataclasses.replace(first, config=second.config)],
        [first, dataclasses.replace(second, config=third.config)],
        [dataclasses.replace(first, kernel=len(asked.allowed.kernels.slots) - 1)],
    ):
        with pytest.raises(ProofError):
            engine.prover.prove(asked, wrong)


def test_top_k_and_a_front_exclude_each_other() -> None:
    with pytest.raises(InvalidInput, match="cap bounds the points"):
        Question(Problem(8, 8, 8), objective=Pareto(("time",)), top_k=2)


def test_gaps_are_in_what_is_ranked_first(engine: Engine) -> None:
    problem = Problem(512, 512, 512)
    for order, value in (("smem", "smem_bytes"), ("time", "time_us"), ("wait", "wait_us")):
        objective = objective_from_dict({"kind": "lexicographic", "order": [order]})
        answer = engine.optimize(Question(problem, objective=objective, top_k=5))
        first = find_row(answer.solution.space.allowed, answer.config)
        base = {"smem_bytes": first.smem_bytes, "time_us": first.time, "wait_us": first.wait}
        for row, other in zip(answer.body["alternatives"], answer.solution.rows[1:], strict=True):
            mine = {"smem_bytes": other.smem_bytes, "time_us": other.time, "wait_us": other.wait}
            assert row["gap"] == mine[value] / base[value] - 1 >= 0
