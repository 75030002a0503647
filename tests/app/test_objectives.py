"""Objectives and constraints over HTTP: what is asked is what is answered."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.problem_documents import ProblemDocument
from app.schemas.answers import OptimizeAnswer
from tests.app.test_bad_input import problem

SMALL = {"m": 256, "n": 512, "k": 512}
PAPER = {"model": "paper", "device": "a6000"}
VALUES = {"time": "time_us", "wait": "wait_us", "smem": "smem_bytes"}
PER_UNIT = {"time": 1, "wait": 1, "smem": 1024, "registers": 1}


def answered(client: TestClient, **members: Any) -> dict[str, Any]:
    """The answer to a question, of its documented shape."""
    response = client.post("/v1/optimize", json={**SMALL, **members})
    assert response.status_code == 200, response.text
    OptimizeAnswer.model_validate_json(response.content)
    body: dict[str, Any] = response.json()
    assert body["proof"]["status"] == "optimal"
    return body


def values_of(row: dict[str, Any]) -> dict[str, float]:
    """Time, wait, shared memory and registers of a listed row, or of an answer's pick."""
    flat = {**row, **row.get("kernel", {}), **row.get("predicted", {})}
    return {
        "time": flat["time_us"],
        "wait": flat["wait_us"],
        "smem": flat["smem_bytes"],
        "registers": flat["registers_per_thread"] or 0,
    }


def test_the_default_objective_is_repeated_in_full(client: TestClient) -> None:
    body = answered(client)
    assert body["objective"] == {"kind": "lexicographic", "order": ["time", "wait"]}
    assert body["constraints"] == {}
    assert not {"score", "front", "front_size", "complete"} & set(body)
    asked = answered(client, objective={"kind": "lexicographic", "order": ["time"]})
    assert asked["config"] == body["config"]


@pytest.mark.parametrize("order", [["smem", "time"], ["registers"], ["wait", "smem"]])
def test_a_lexicographic_order_is_followed(client: TestClient, order: list[str]) -> None:
    body = answered(client, objective={"kind": "lexicographic", "order": order}, top_k=20)
    rows = [values_of(row) for row in (body, *body["alternatives"])]
    rest = [name for name in ("time", "wait", "smem", "registers") if name not in order]
    ranked = [tuple(row[name] for name in (*order, *rest)) for row in rows]
    assert ranked == sorted(ranked)
    assert len(ranked) == 20
    assert values_of(body)["time"] >= values_of(answered(client))["time"]


@pytest.mark.parametrize("more", [{}, PAPER])
def test_a_weighted_answer_has_its_score_and_the_units(
    client: TestClient, more: dict[str, str]
) -> None:
    weights = {"time": 1, "wait": 0.1, "smem": 0.02}
    body = answered(client, objective={"kind": "weighted", "weights": weights}, top_k=5, **more)
    assert body["objective"]["weights"] == weights
    assert body["objective"]["units"] == {"time": "µs", "wait": "µs", "smem": "KiB"}
    rows = [body, *body["alternatives"]]
    for row in rows:
        values = values_of(row)
        terms = (Fraction(repr(w)) * Fraction(values[n]) / PER_UNIT[n] for n, w in weights.items())
        assert row["score"] == pytest.approx(float(sum(terms)), rel=1e-9)
    assert [row["score"] for row in rows] == sorted(row["score"] for row in rows)
    for row in body["alternatives"]:
        assert row["gap"] == pytest.approx(row["score"] / body["score"] - 1, abs=1e-9)


def test_an_integer_weight_is_the_number_it_is(client: TestClient) -> None:
    one, same = (
        client.post("/v1/optimize", json={**SMALL, "objective": {"kind": "weighted", "weights": w}})
        for w in ({"time": 1}, {"time": 1.0})
    )
    assert one.content == same.content


@pytest.mark.parametrize("axes", [["time", "smem"], ["smem", "wait"], ["registers", "time"]])
def test_a_front_lists_what_is_not_dominated(client: TestClient, axes: list[str]) -> None:
    body = answered(client, objective={"kind": "pareto", "axes": axes, "within": 1.5})
    vectors = [tuple(values_of(row)[axis] for axis in axes) for row in body["front"]]
    assert vectors == sorted(set(vectors))
    for vector in vectors:
        others = (other for other in vectors if other != vector)
        assert not any(all(o <= v for o, v in zip(other, vector, strict=True)) for other in others)
    assert len(vectors) == body["front_size"] <= 32
    assert body["complete"] is True
    assert body["config"] == body["front"][0]["config"]
    assert body["alternatives"] == []
    assert body["objective"]["cap"] == 32
    assert all(0 <= row["gap"] <= 0.5 for row in body["front"])


def test_a_front_is_cut_at_its_cap_and_says_so(client: TestClient) -> None:
    objective = {"kind": "pareto", "axes": ["time", "smem", "registers"]}
    whole = answered(client, objective=objective)
    cut = answered(client, objective={**objective, "cap": 2})
    assert cut["front"] == whole["front"][:2]
    assert (cut["front_size"], cut["complete"]) == (whole["front_size"], False)


def test_constraints_are_kept_counted_and_repeated_in_order(client: TestClient) -> None:
    given = {
        "config": {"stages": {"max": 5, "min": 3}, "tile_m": {"in": [128, 64, 64]}},
        "sms": {"max": 60},
        "smem_bytes": {"max": 98304},
    }
    body = answered(client, constraints=given, top_k=50)
    assert list(body["constraints"]) == ["smem_bytes", "sms", "config"]
    assert body["constraints"]["config"] == {
        "tile_m": {"in": [64, 128]},
        "stages": {"min": 3, "max": 5},
    }
    for row in (body, *body["alternatives"]):
        assert row["config"]["tile_m"] in (64, 128)
        assert 3 <= row["config"]["stages"] <= 5
        assert values_of(row)["smem"] <= 98304
    assert body["kernel"]["grid"] <= 60
    space = body["proof"]["space"]
    assert space["legal"] - space["excluded_by_constraints"] == space["configurations"] > 0
    assert body["proof"]["scope"]["excluded_by_constraints"] == space["excluded_by_constraints"]
    assert "allowed" in body["proof"]["scope"]["claim"]


def conflict(client: TestClient, constraints: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The problem document of constraints that clash, of its documented shape."""
    response = client.post("/v1/optimize", json={**SMALL, **more, "constraints": constraints})
    body = problem(response, 422)
    assert body["type"] == "urn:warpwright:problem:unsatisfiable"
    ProblemDocument.model_validate(body)
    assert [each["path"] for each in body["relaxations"]] == body["core"]
    for path in body["core"]:
        assert path in body["detail"]
    return body


@pytest.mark.parametrize(
    "more", [{}, {"proof": "none"}, {"objective": {"kind": "pareto", "axes": ["time"]}}]
)
def test_what_can_not_be_had_names_what_clashes_and_what_would_do(
    client: TestClient, more: dict[str, Any]
) -> None:
    body = conflict(client, {"smem_bytes": {"max": 1000}, "sms": {"max": 100}}, **more)
    assert body["core"] == ["constraints.smem_bytes.max"]
    (relaxation,) = body["relaxations"]
    assert relaxation["given"] == 1000
    relaxed = {"smem_bytes": {"max": relaxation["relaxed"]}, "sms": {"max": 100}}
    assert answered(client, constraints=relaxed)["kernel"]["smem_bytes"] == relaxation["relaxed"]


def test_a_clash_of_two_has_both_and_none_besides(client: TestClient) -> None:
    constraints = {
        "smem_bytes": {"max": 40000},
        "sms": {"max": 100},
        "config": {"tile_m": {"in": [256]}, "stages": {"min": 6}},
    }
    body = conflict(client, constraints)
    assert "constraints.sms.max" not in body["core"]
    assert len(body["core"]) > 1
    for relaxation in body["relaxations"]:
        assert isinstance(relaxation["given"], int | list)


def test_values_beyond_every_configuration_clash_alone(client: TestClient) -> None:
    body = conflict(client, {"config": {"tile_m": {"in": [63, 65]}}}, **PAPER)
    assert body["core"] == ["constraints.config.tile_m.in"]
    assert body["relaxations"][0]["relaxed"] == [63, 64, 65]


def test_the_same_question_with_everything_gets_the_same_bytes(client: TestClient) -> None:
    question = {
        **SMALL,
        "objective": {"kind": "weighted", "weights": {"time": 1, "registers": 0.01}},
        "constraints": {"config": {"stages": {"min": 3}}},
        "top_k": 10,
        "time_limit_ms": 60_000,
    }
    first, second = (client.post("/v1/optimize", json=question) for _ in range(2))
    assert first.status_code == 200
    assert first.content == second.content
