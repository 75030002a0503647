"""Energy as a value and power as a cap, by constants that are made up, against brute force."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from solver import oracle
from solver.certificate import certificate, digest
from solver.conflict import Unsatisfiable
from solver.constraints import NONE, Bound, Constraints, row_column
from solver.device import (
    PROFILES_VARIABLE,
    DeviceProfile,
    load_profile,
    parse_profile,
    shipped_text,
)
from solver.engine import Answer, Engine
from solver.errors import InvalidInput, InvalidProblem, ProofError, Unsupported
from solver.explain import explain
from solver.families.sm90_gemm_power import TABLE
from solver.objective import DEFAULT, Objective, Pareto, objective_from_dict
from solver.pick import best_rows, pareto_front, price
from solver.problem import Problem
from solver.question import Question
from solver.recheck import recheck
from solver.solution import Proof, Unfinished
from solver.space import Pricing, Space, build_space
from solver.table import Table
from tests.power_profiles import LIMIT_W, powered, powered_raw

PROBLEMS = (
    Problem(512, 1024, 512),
    Problem(16, 4096, 4096),
    Problem(300, 1100, 520),
    Problem(77, 1003, 72),
)
OBJECTIVES: tuple[dict[str, Any], ...] = (
    {"kind": "lexicographic", "order": ["energy"]},
    {"kind": "lexicographic", "order": ["energy", "wait"]},
    {"kind": "lexicographic", "order": ["smem", "energy"]},
    {"kind": "weighted", "weights": {"time": 1, "energy": 2.5}},
    {"kind": "weighted", "weights": {"energy": 1}},
    {"kind": "weighted", "weights": {"time": 0.1, "wait": 0.2, "smem": 0.03, "energy": 7}},
)
FRONTS: tuple[dict[str, Any], ...] = (
    {"kind": "pareto", "axes": ["time", "energy"], "within": 3},
    {"kind": "pareto", "axes": ["energy", "smem"], "within": 2},
    {"kind": "pareto", "axes": ["energy"], "within": 1.5},
    {"kind": "pareto", "axes": ["time", "wait", "smem", "registers", "energy"], "within": 1.1},
)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine()


@pytest.fixture(autouse=True)
def profiles(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An h200 whose power was measured stands in for the one that ships."""
    folder = tmp_path_factory.mktemp("profiles")
    (folder / "h200.json").write_text(json.dumps(powered_raw()), "utf-8")
    monkeypatch.setenv(PROFILES_VARIABLE, str(folder))
    return folder


def ask(
    engine: Engine,
    problem: Problem,
    objective: dict[str, Any] | None = None,
    constraints: dict[str, Any] | None = None,
    **more: Any,
) -> Answer:
    chosen: Objective = objective_from_dict(objective) if objective else DEFAULT
    held = Constraints.from_dict(constraints or {})
    return engine.optimize(Question(problem, objective=chosen, constraints=held, **more))


def space_of(problem: Problem, raw: dict[str, Any] | None = None) -> Space:
    constraints = Constraints.from_dict(raw or {})
    return build_space(problem, load_profile("h200"), Pricing(), constraints)


def watts_of(table: Table) -> np.ndarray[Any, Any]:
    return row_column(table, "power_w", *table.rows(np.arange(len(table.first))))


# What energy and power are.


def test_energy_is_static_power_times_time_and_what_the_work_takes(engine: Engine) -> None:
    solution = ask(engine, PROBLEMS[0], proof="none").solution
    works, best = solution.space.legal.works, solution.pick
    static, dynamic = (works.power[f"power_{n}"][best.work] for n in ("static", "dynamic"))
    assert best.energy == static * best.time + dynamic
    body = ask(engine, PROBLEMS[0], proof="none").body
    held = body["predicted"]["sustained"]
    assert held["energy_j"] == pytest.approx(best.energy * 1e-10)
    assert held["power_w"] * held["time_us"] / 1e6 == pytest.approx(held["energy_j"])
    assert held["time_us"] >= body["predicted"]["time_us"]
    assert held["clock_mhz"] <= body["predicted"]["clock_mhz"]


def test_power_lies_between_the_idle_device_and_its_limit() -> None:
    """The limit is met by the clock of the works, which know their kernels' times but about."""
    for size in (64, 1024, 8192):
        watts = watts_of(space_of(Problem(size, size, size)).legal)
        assert watts.min() > 120
        assert watts.max() <= 1.02 * LIMIT_W


def test_a_lower_limit_slows_the_clock_and_longer_launches_take_less_power() -> None:
    problem = Problem(8192, 8192, 8192)
    table = dict(powered().models[TABLE])

    def held_at(limit_w: float) -> Table:
        table["power_limit_w"] = dataclasses.replace(table["power_limit_w"], value=limit_w)
        models = {**powered().models, TABLE: MappingProxyType(dict(table))}
        device = dataclasses.replace(powered(), models=models)
        return build_space(problem, device, Pricing(), NONE).legal

    free, capped = held_at(2000.0), held_at(400.0)
    assert (free.works.power["power_slowdown"] == 1000).all()
    slowed = capped.works.power["power_slowdown"]
    assert slowed.max() > 1100
    assert watts_of(capped).max() <= 1.02 * 400
    clocks = capped.works.power["power_clock_mhz"]
    assert (clocks[slowed > 1000] < free.works.power["power_clock_mhz"][slowed > 1000]).all()
    assert (capped.works.load == free.works.load).all()  # time by itself is as it was


def test_more_work_takes_more_energy_and_warm_inputs_less(engine: Engine) -> None:
    def least(problem: Problem, cache: str = "cold") -> int:
        return ask(engine, problem, OBJECTIVES[0], proof="none", cache=cache).solution.pick.energy

    assert least(Problem(512, 1024, 512)) < least(Problem(512, 1024, 1024))
    assert least(Problem(512, 1024, 512), "warm") < least(Problem(512, 1024, 512))


# Answers, against brute force over played events, and by Z3.


@pytest.mark.parametrize("raw", OBJECTIVES, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS[:3], ids=str)
def test_rankings_by_energy_are_as_by_brute_force_and_proved(
    raw: dict[str, Any], problem: Problem, engine: Engine
) -> None:
    answer = ask(engine, problem, raw, top_k=3)
    expected = oracle.first_rows(answer.solution.space.allowed, raw, 3)
    found = [(row.values, row.config) for row in answer.solution.rows]
    assert found == [(row.values, row.config) for row in expected]
    assert isinstance(answer.solution.proof, Proof)


@pytest.mark.parametrize("raw", FRONTS, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS[1:], ids=str)
def test_fronts_of_energy_are_as_by_brute_force_and_proved(
    raw: dict[str, Any], problem: Problem, engine: Engine
) -> None:
    solution = ask(engine, problem, raw).solution
    assert solution.front is not None
    expected = oracle.front(solution.space.allowed, raw)
    found = [(row.values, row.config) for row in solution.front.points]
    assert found == [(row.values, row.config) for row in expected]
    assert isinstance(solution.proof, Proof)


def test_z3_plays_the_events_of_an_answer_to_the_energy_that_numpy_has(engine: Engine) -> None:
    """Planted: a finalist whose energy is told one tick less, or more, than it is."""
    space = space_of(PROBLEMS[0])
    ranking = objective_from_dict(OBJECTIVES[0]).ranking  # type: ignore[union-attr]
    (best,) = best_rows(space.allowed, 1, ranking)
    engine.prover.prove(space, [best], ranking)
    for off in (-1, 1):
        wrong = dataclasses.replace(best, energy=best.energy + off)
        with pytest.raises(ProofError):
            engine.prover.prove(space, [wrong], ranking)
    second = best_rows(space.allowed, 2, ranking)[1]
    with pytest.raises(ProofError):
        engine.prover.prove(space, [second], ranking)


def test_a_front_without_one_of_its_points_is_refused(engine: Engine) -> None:
    pareto = objective_from_dict(FRONTS[1])
    assert isinstance(pareto, Pareto)
    space = space_of(PROBLEMS[2])
    front = pareto_front(space.allowed, pareto)
    assert len(front.points) > 1
    for at in range(len(front.points)):
        points = front.points[:at] + front.points[at + 1 :]
        with pytest.raises(ProofError):
            engine.prover.prove_front(space, dataclasses.replace(front, points=points), pareto)


def test_energy_ranks_where_it_is_named_alone(engine: Engine) -> None:
    with_power = ask(engine, PROBLEMS[0], top_k=5).solution
    plain = powered().models
    device = dataclasses.replace(powered(), models={n: t for n, t in plain.items() if n != TABLE})
    space = build_space(PROBLEMS[0], device, Pricing(), NONE)
    expected = [row.config for row in best_rows(space.legal, 5)]
    assert [row.config for row in with_power.rows] == expected


def test_a_time_limit_bounds_energy_too(engine: Engine) -> None:
    answer = ask(engine, Problem(4096, 4096, 4096), OBJECTIVES[0], time_limit_ms=1)
    assert isinstance(answer.solution.proof, Unfinished)
    proof = answer.body["proof"]
    assert proof["gap_in"] == "energy"
    assert 0 <= proof["gap"] < 1


# Power as a cap.


@pytest.mark.parametrize("problem", PROBLEMS[:3], ids=str)
def test_a_cap_leaves_the_rows_that_draw_no_more(problem: Problem, engine: Engine) -> None:
    legal = space_of(problem).legal
    cap = int(np.quantile(watts_of(legal), 0.3))
    raw = {"power_w": {"max": cap}}
    answer = ask(engine, problem, constraints=raw)
    table = answer.solution.space.allowed
    assert table.size == np.count_nonzero(watts_of(legal) <= cap)
    assert watts_of(table).max() <= cap
    (expected,) = oracle.first_rows(legal, DEFAULT.to_dict(), 1, raw)
    assert answer.config == expected.config
    held = answer.body["predicted"]["sustained"]
    assert held["power_w"] < held["power_high_w"] <= cap
    assert any("watts" in given for given in answer.body["proof"]["scope"]["given"])


def test_a_cap_is_held_with_the_margin_and_the_drivers_limit_bounds_that(engine: Engine) -> None:
    """Of the largest cap that a row is within, what is predicted of it is a margin away; no row
    needs a cap above what the driver enforces, but those that are predicted beyond it."""
    margin = powered().constant(TABLE, "power_margin")
    for problem in (*PROBLEMS, Problem(4096, 4096, 4096)):
        for row in ask(engine, problem, top_k=10, proof="none").body["alternatives"]:
            most = min(row["power_w"] * (1 + margin), max(row["power_w"], LIMIT_W))
            assert row["power_high_w"] == math.ceil(most - 1e-6)
    shipped = parse_profile(shipped_text("h200"))
    watts = watts_of(build_space(PROBLEMS[1], shipped, Pricing(), NONE).legal)
    limit_w = shipped.constant(TABLE, "power_limit_w")
    assert (watts == limit_w).any()  # with the whole margin some would be above
    assert watts.max() <= 1.05 * limit_w


def test_a_cap_and_other_constraints_hold_together(engine: Engine) -> None:
    rng = random.Random(5)
    for problem in PROBLEMS:
        for _ in range(4):
            raw: dict[str, Any] = {
                "sms": {"max": rng.randint(8, 132)},
                "smem_bytes": {"max": rng.choice([98304, 150000])},
                "config": {"stages": {"min": rng.choice([2, 3, 4])}},
            }
            allowed = space_of(problem, raw).allowed
            raw["power_w"] = {"max": int(np.quantile(watts_of(allowed), rng.random()))}
            objective = rng.choice(OBJECTIVES)
            answer = ask(engine, problem, objective, raw)
            priced = answer.solution.space.legal
            expected = oracle.first_rows(priced, objective, 1, raw)[0]
            assert answer.config == expected.config, raw


def test_the_least_cap_is_told_where_one_leaves_nothing(engine: Engine) -> None:
    least = int(watts_of(space_of(PROBLEMS[0]).legal).min())
    with pytest.raises(Unsatisfiable) as caught:
        ask(engine, PROBLEMS[0], constraints={"power_w": {"max": least - 1}})
    assert caught.value.core == ("constraints.power_w.max",)
    assert [each["relaxed"] for each in caught.value.relaxations] == [least]
    answer = ask(engine, PROBLEMS[0], constraints={"power_w": {"max": least}})
    assert answer.body["predicted"]["sustained"]["power_w"] <= least


def test_a_cap_that_clashes_with_others_is_told_with_them(engine: Engine) -> None:
    problem, tile = Problem(4096, 4096, 4096), {"tile_m": {"in": [256]}, "tile_n": {"min": 128}}
    least = int(watts_of(space_of(problem, {"config": tile}).allowed).min())
    free = int(watts_of(space_of(problem).legal).min())
    assert free < least
    raw = {"power_w": {"max": least - 1}, "config": tile}
    with pytest.raises(Unsatisfiable) as caught:
        ask(engine, problem, constraints=raw)
    assert caught.value.core[0] == "constraints.power_w.max"
    assert len(caught.value.core) > 1
    table = space_of(problem).legal
    given = [
        (*each["path"].removeprefix("constraints.").rsplit(".", 1), each["given"])
        for each in caught.value.relaxations
    ]
    assert oracle.is_minimal_core(table, given)
    for each in caught.value.relaxations:
        path, relation = each["path"].removeprefix("constraints.").rsplit(".", 1)
        changed: dict[str, Any] = json.loads(json.dumps(raw))
        place = changed["config"] if path.startswith("config.") else changed
        place[path.removeprefix("config.")][relation] = each["relaxed"]
        assert ask(engine, problem, constraints=changed, proof="none").body["config"]


def test_of_sms_under_a_cap_the_nearest_count_that_does_is_told(engine: Engine) -> None:
    problem = Problem(4096, 4096, 4096)
    low, high = (
        int(watts_of(space_of(problem, {"sms": {"in": [count]}}).allowed).min())
        for count in (40, 120)
    )
    assert low < high
    cap = (low + high) // 2
    raw = {"power_w": {"max": cap}, "sms": {"min": 120}}
    with pytest.raises(Unsatisfiable) as caught:
        ask(engine, problem, constraints=raw)
    told = {each["path"]: each["relaxed"] for each in caught.value.relaxations}
    assert "constraints.power_w.max" in told
    if count := told.get("constraints.sms.min"):
        ask(engine, problem, constraints={**raw, "sms": {"min": count}}, proof="none")
        with pytest.raises(Unsatisfiable):
            ask(engine, problem, constraints={**raw, "sms": {"min": count + 1}}, proof="none")


def test_a_cap_that_was_not_applied_as_it_reads_is_noticed(engine: Engine) -> None:
    """Planted: a bound that numpy reads otherwise than Z3 does; a row that breaks it kept."""
    watts = watts_of(space_of(PROBLEMS[0]).legal)
    cap = int(np.median(watts))
    above = int(watts[watts > cap].min()) - cap
    space = space_of(PROBLEMS[0], {"power_w": {"max": cap}})

    class Crooked(Bound):
        def holds(self, column: Any) -> Any:
            return column <= self.values[0] + above

    crooked = Constraints((Crooked("power_w", "max", (cap,)),))
    allowed = crooked.restrict(space.legal)
    assert allowed.size > space.allowed.size
    with pytest.raises(ProofError, match="not applied as it reads"):
        engine.prover.prove(Space(space.legal, allowed, crooked), [best_rows(allowed)[0]])
    with pytest.raises(ProofError, match="not the legal ones"):
        engine.prover.prove(Space(space.legal, allowed, space.constraints), [best_rows(allowed)[0]])


@pytest.mark.parametrize(
    ("raw", "field", "words"),
    [
        ({"power_w": {"min": 300}}, "constraints.power_w.min", "there are max"),
        ({"power_w": {"in": [300]}}, "constraints.power_w.in", "there are max"),
        ({"power_w": {}}, "constraints.power_w", "at least one of max"),
        ({"power_w": {"max": 300.0}}, "constraints.power_w.max", "an integer between 0"),
    ],
)
def test_power_is_capped_and_no_more(raw: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Constraints.from_dict(raw)
    assert (caught.value.field, words in caught.value.message) == (field, True)


# Where nothing was measured.


@pytest.mark.parametrize("raw", [*OBJECTIVES[:4:3], FRONTS[0]], ids=str)
def test_energy_of_a_device_that_was_not_measured_is_refused_with_what_to_do(
    raw: dict[str, Any], engine: Engine
) -> None:
    with pytest.raises(Unsupported, match=r"python -m kernels\.power") as caught:
        ask(engine, PROBLEMS[0], raw, device="h100_sxm")
    assert caught.value.field == "objective"
    with pytest.raises(Unsupported, match=r"docs/energy\.md") as caught:
        ask(engine, PROBLEMS[0], constraints={"power_w": {"max": 500}}, device="h100_sxm")
    assert caught.value.field == "constraints.power_w"
    assert "sustained" not in ask(engine, PROBLEMS[0], device="h100_sxm").body["predicted"]


def test_the_published_model_knows_no_power(engine: Engine) -> None:
    with pytest.raises(InvalidInput, match="no power"):
        ask(engine, PROBLEMS[0], constraints={"power_w": {"max": 500}}, model="paper")
    with pytest.raises(Unsupported, match="paper has no model of power"):
        ask(engine, PROBLEMS[0], OBJECTIVES[0], model="paper")


def test_energies_beyond_what_is_counted_are_refused_and_cost_nobody_else(engine: Engine) -> None:
    large = Problem(2**20, 2**20, 2**20)
    assert "sustained" not in ask(engine, large, proof="none").body["predicted"]
    with pytest.raises(InvalidProblem, match="450 kJ"):
        ask(engine, large, OBJECTIVES[0])
    with pytest.raises(InvalidProblem, match="450 kJ"):
        ask(engine, large, constraints={"power_w": {"max": 500}})


def test_a_profile_may_stand_in_with_constants_of_power_that_none_ships(profiles: Path) -> None:
    device = load_profile("h200")
    assert device.constant(TABLE, "power_limit_w") == LIMIT_W
    raw = powered_raw()
    raw["models"][TABLE]["power_static_w"]["value"] = -1.0
    (profiles / "h200.json").write_text(json.dumps(raw), "utf-8")
    with pytest.raises(InvalidInput, match="power_static_w must be a finite number above 0"):
        load_profile("h200")


# Certificates and explanations.


QUESTIONS: tuple[tuple[dict[str, Any] | None, dict[str, Any], dict[str, Any]], ...] = (
    (None, {}, {"top_k": 4}),
    (OBJECTIVES[1], {}, {"top_k": 3}),
    (OBJECTIVES[5], {"sms": {"max": 77}}, {}),
    (FRONTS[0], {}, {}),
    (None, {"power_w": {"max": 280}}, {"top_k": 2}),
    (FRONTS[1], {"power_w": {"max": 320}, "config": {"stages": {"min": 3}}}, {"cache": "warm"}),
)


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
@pytest.mark.parametrize("problem", PROBLEMS[1:3], ids=str)
def test_certificates_of_energy_hold_and_a_change_is_noticed(
    question: Any, problem: Problem, engine: Engine
) -> None:
    objective, constraints, more = question
    solution = ask(engine, problem, objective, constraints, **more).solution
    document = json.loads(json.dumps(certificate(solution)))
    verdict = recheck(document)
    assert verdict.holds, verdict.reasons
    document["predicted"]["sustained"]["power_w"] *= 1.001
    verdict = recheck(document | {"sha256": digest(document)})
    assert [r.split()[0] for r in verdict.reasons] == ["predicted.sustained.power_w"]


def test_a_certificate_of_energy_holds_by_the_constants_it_names_alone(
    profiles: Path, engine: Engine
) -> None:
    document = json.loads(json.dumps(certificate(ask(engine, PROBLEMS[1], OBJECTIVES[0]).solution)))
    raw = powered_raw()
    del raw["models"][TABLE]
    (profiles / "h200.json").write_text(json.dumps(raw), "utf-8")
    verdict = recheck(document)
    assert not verdict.holds
    assert "no constants to count energy by" in verdict.reasons[-1]


def test_an_explanation_names_the_cap_that_binds_and_moves_constants_of_power(
    engine: Engine,
) -> None:
    problem = Problem(128, 256, 512)
    watts = watts_of(space_of(problem).legal)
    cap = int(np.quantile(watts, 0.1))
    question = Question(
        problem,
        objective=objective_from_dict(OBJECTIVES[3]),
        constraints=Constraints.from_dict({"power_w": {"max": cap}}),
    )
    body = explain(engine, question)
    (binding,) = [flip for flip in body["binding"] if flip["kind"] == "constraint"]
    assert binding["name"] == "constraints.power_w.max"
    assert binding["before"] == cap < binding["after"]
    assert binding["stands_at"] == binding["after"] - 1
    held = body["predicted"]["sustained"]
    assert body["text"][2].startswith(f"Held for seconds it draws {held['power_w']:.0f} W, ")
    assert f" {held['power_high_w']} W with its margin, at " in body["text"][2]


def test_price_and_values_of_rows_are_those_of_the_oracle() -> None:
    for problem in PROBLEMS:
        table = space_of(problem).legal
        played = oracle.values(table)
        time, _ = price(table, played.work, played.kernel)
        assert np.array_equal(table.works.energy(played.work, time), played.energy)
        watts = table.works.watts(played.work, time)
        assert (np.abs(watts - played.watts) < 1 + 1e-9).all()
        assert (watts + 1e-9 >= played.watts).all()


def test_a_device_is_what_its_profile_says() -> None:
    device: DeviceProfile = powered()
    assert {c.unit for c in device.models[TABLE].values()} == {"W", "W/SM", "1"}
