"""Wrong objectives, constraints and time limits: each is named by its path, with what it takes."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from fastapi.testclient import TestClient

from app.problem_documents import FAULTS_SHOWN
from app.schemas.objectives import Axis, BoundRequest, ConfigBounds, ConstraintsRequest, Weights
from solver.constraints import CONFIG_FIELDS, RELATIONS, RESOURCES
from solver.objective import AXES
from tests.app.test_bad_input import GOOD, problem

NAMES = "time, wait, smem, registers, energy"
WEIGHT = "0 or a number between 1e-09 and 1e+09"
BETWEEN = "between 0 and 2147483647"
VALUE = f"an integer {BETWEEN}"
ROUTES = ("/v1/optimize", "/v1/explain")
KINDS = {
    "/v1/optimize": "lexicographic, pareto, weighted",
    "/v1/explain": "lexicographic, weighted",
}


def lexicographic(order: Any) -> dict[str, Any]:
    return {"kind": "lexicographic", "order": order}


def weighted(**weights: Any) -> dict[str, Any]:
    return {"kind": "weighted", "weights": weights}


def pareto(**members: Any) -> dict[str, Any]:
    return {"kind": "pareto", "axes": ["time", "smem"], **members}


def test_the_edges_names_are_the_solvers() -> None:
    assert get_args(Axis) == tuple(Weights.__annotations__) == AXES
    assert tuple(ConfigBounds.__annotations__) == CONFIG_FIELDS
    assert tuple(ConstraintsRequest.__annotations__) == (*RESOURCES, "config")
    assert tuple(BoundRequest.__annotations__) == RELATIONS


def named(client: TestClient, route: str, body: dict[str, Any], field: str, words: str) -> None:
    """Post what is wrong in one place; the document names it and says what it takes."""
    content = json.dumps({**GOOD, **body})
    response = client.post(route, content=content, headers={"content-type": "application/json"})
    (error,) = problem(response, 422)["errors"]
    assert error["field"] == field
    assert words in error["message"]
    assert len(error["message"]) < 250


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("objective", "field", "words"),
    [
        *((value, "", "must be a JSON object") for value in (None, [], "time", 1, True)),
        ({}, ".kind", "is required and must be one of KINDS"),
        *(
            ({"kind": kind, "order": ["time"]}, ".kind", "one of KINDS")
            for kind in (
                "fastest",
                "",
                None,
                1,
                ["weighted"],
                {"weighted": 1},
                "x" * 5000,
                "WEIGHTED",
            )
        ),
        (
            {"kind": "lexicographic"},
            ".order",
            f"is required and must be a list of 1 to 5 names: {NAMES}",
        ),
        *((lexicographic(order), ".order", NAMES) for order in (None, "time", {"time": 1}, [], 7)),
        (lexicographic(["time", "speed"]), ".order.1", f"must be one of {NAMES}, got str 'speed'"),
        (lexicographic([1]), ".order.0", NAMES),
        (lexicographic([["time"]]), ".order.0", NAMES),
        (lexicographic(["time", "time"]), ".order", "each once"),
        (lexicographic(["speed"] * 4000), ".order.0", NAMES),
        ({**lexicographic(["time"]), "weights": {}}, ".weights", "there are kind, order"),
        ({"kind": "weighted"}, ".weights", "is required and must be a JSON object"),
        *(
            ({"kind": "weighted", "weights": w}, ".weights", "JSON object")
            for w in (None, [1], "1")
        ),
        (weighted(), ".weights", NAMES),
        (weighted(speed=1), ".weights.speed", f"there are {NAMES}"),
        (weighted(time=1, Wait=1), ".weights.Wait", f"there are {NAMES}"),
        *(
            (weighted(time=weight), ".weights.time", "a number between 0 and 1e+09, got")
            for weight in ("1", True, None, [1], {})
        ),
        *(
            (weighted(time=1, smem=weight), ".weights.smem", WEIGHT)
            for weight in (-1, 1e10, 1e-10, -1e-300, 10**59, float("nan"), float("inf"))
        ),
        (weighted(time=0, wait=0.0), ".weights", "at least one must be greater than 0"),
        ({**weighted(time=1), "units": {}}, ".units", "there are kind, weights"),
    ],
)
def test_a_wrong_objective_is_named_by_its_path(
    client: TestClient, route: str, objective: Any, field: str, words: str
) -> None:
    words = words.replace("KINDS", KINDS[route])
    named(client, route, {"objective": objective}, f"objective{field}", words)


@pytest.mark.parametrize(
    ("objective", "field", "words"),
    [
        ({"kind": "pareto"}, ".axes", "is required and must be a list of 1 to 5 names"),
        (pareto(axes=[]), ".axes", NAMES),
        (pareto(axes=["time", "tflops"]), ".axes.1", NAMES),
        (pareto(axes=["time", "smem", "time"]), ".axes", "each once"),
        *((pareto(within=w), ".within", "a number between 1 and 100") for w in ("2", True, None)),
        *(
            (pareto(within=w), ".within", f"must be between 1 and 100, got {w}")
            for w in (0.99, 0, -1, 101, float("nan"), float("-inf"))
        ),
        *(
            (pareto(cap=cap), ".cap", "an integer between 1 and 256")
            for cap in ("2", True, None, 2.0)
        ),
        *(
            (pareto(cap=cap), ".cap", f"must be between 1 and 256, got {cap}")
            for cap in (0, 257, -1)
        ),
        (pareto(within=10**59), ".within", "got 1e+59"),
        (pareto(cap=10**59), ".cap", "got an integer of 196 bits"),
        (pareto(order=["time"]), ".order", "there are kind, axes, within, cap"),
    ],
)
def test_a_wrong_front_is_named_by_its_path(
    client: TestClient, objective: Any, field: str, words: str
) -> None:
    named(client, "/v1/optimize", {"objective": objective}, f"objective{field}", words)


def bound(relation: str, value: Any) -> dict[str, Any]:
    return {"smem_bytes": {relation: value}}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("constraints", "field", "words"),
    [
        *((value, "", "must be a JSON object") for value in (None, [], "none", 0)),
        (
            {"smem": {"max": 1}},
            ".smem",
            "there are smem_bytes, registers_per_thread, sms, power_w, config",
        ),
        ({"stages": {"max": 1}}, ".stages", "there are smem_bytes"),
        ({"body": {"max": 1}}, ".body", "there are smem_bytes"),
        *(({"sms": value}, ".sms", "JSON object") for value in (None, 5, [5], "5")),
        ({"sms": {}}, ".sms", "at least one of min, max, in"),
        (bound("most", 1), ".smem_bytes.most", "there are min, max, in"),
        *(
            (bound("max", value), ".smem_bytes.max", f"{VALUE}, got")
            for value in ("64", True, 64.0, None, [64], {}, float("nan"))
        ),
        *(
            (bound("min", value), ".smem_bytes.min", f"must be {BETWEEN}")
            for value in (-1, 2**31, 10**59, -(10**59))
        ),
        *(
            (bound("in", value), ".smem_bytes.in", "a list of 1 to 64 integers")
            for value in (None, 64, "64", {}, [], list(range(65)), [1] * 20_000)
        ),
        (bound("in", [64, 128, "64"]), ".smem_bytes.in.2", VALUE),
        (bound("in", ["64"] * 9000), ".smem_bytes.in.0", VALUE),
        (bound("in", [64, True]), ".smem_bytes.in.1", VALUE),
        (bound("in", [64.0]), ".smem_bytes.in.0", VALUE),
        (bound("in", [64, -1]), ".smem_bytes.in.1", BETWEEN),
        *(({"config": value}, ".config", "JSON object") for value in (None, [], "x", 1)),
        ({"config": {"tile": {"max": 1}}}, ".config.tile", "there are tile_m, tile_n, tile_k"),
        ({"config": {"family": {"in": [1]}}}, ".config.family", "there are tile_m"),
        ({"config": {"stages": {}}}, ".config.stages", "at least one of min, max, in"),
        ({"config": {"stages": 4}}, ".config.stages", "JSON object"),
        ({"config": {"tile_m": {"in": [64, 128, "64"]}}}, ".config.tile_m.in.2", VALUE),
        ({"config": {"split_k": {"max": "1"}}}, ".config.split_k.max", VALUE),
    ],
)
def test_a_wrong_constraint_is_named_by_its_path(
    client: TestClient, route: str, constraints: Any, field: str, words: str
) -> None:
    named(client, route, {"constraints": constraints}, f"constraints{field}", words)


@pytest.mark.parametrize("value", ["1", True, 1.0, [1], 0, -1, 60_001, 10**59])
def test_a_wrong_time_limit_is_named(client: TestClient, value: Any) -> None:
    named(client, ROUTES[0], {"time_limit_ms": value}, "time_limit_ms", "between 1 and 60000")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *((value, "a number between 1 and 32, got") for value in ("1", True, None, [1])),
        *((value, f"be between 1 and 32, got {value}") for value in (0.5, 33, float("nan"))),
    ],
)
def test_a_wrong_divergence_is_told_its_range(client: TestClient, value: Any, words: str) -> None:
    body = {"model": "paper", "device": "a6000", "divergence": value}
    named(client, ROUTES[0], body, "divergence", words)


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"objective": pareto(), "top_k": 2}, "top_k", "must be 1 with a pareto objective"),
        (
            {"model": "paper", "constraints": {"registers_per_thread": {"max": 9}}},
            "constraints.registers_per_thread",
            "the published model has no registers",
        ),
    ],
)
def test_what_does_not_go_together_is_named(
    client: TestClient, body: dict[str, Any], field: str, words: str
) -> None:
    named(client, ROUTES[0], body, field, words)


NOT_EXPLAINED = [
    ({"objective": pareto()}, "objective.kind", "must be one of lexicographic, weighted"),
    ({"top_k": 2}, "top_k", "is no field of this request"),
    ({"time_limit_ms": 9}, "time_limit_ms", "is no field of this request"),
]


@pytest.mark.parametrize(("body", "field", "words"), NOT_EXPLAINED)
def test_what_an_explanation_does_not_take_is_named(
    client: TestClient, body: dict[str, Any], field: str, words: str
) -> None:
    named(client, ROUTES[1], body, field, words)


def test_the_openapi_document_says_by_shape_what_an_explanation_does_not_take(
    client: TestClient,
) -> None:
    document = client.get("/openapi.json").json()
    operation = document["paths"]["/v1/explain"]["post"]
    (content,) = operation["requestBody"]["content"].values()
    shapes = document["components"]["schemas"]
    shape = shapes[content["schema"]["$ref"].rpartition("/")[2]]
    assert shape["additionalProperties"] is False
    others = {"top_k", "time_limit_ms", "model_only"}
    taken = set(shapes["OptimizeRequest"]["properties"]) - others
    assert set(shape["properties"]) == taken
    kinds = shape["properties"]["objective"]["discriminator"]["mapping"]
    assert set(kinds) == {"lexicographic", "weighted"}
    assert len(shape["properties"]["objective"]["oneOf"]) == 2


def test_wrong_places_are_named_together(client: TestClient) -> None:
    body = {
        "objective": weighted(time="1", speed=1),
        "constraints": {"sms": {"max": "1"}, "config": {"stages": {"in": [1.5]}, "x": 1}},
    }
    errors = problem(client.post("/v1/optimize", json={**GOOD, **body}), 422)["errors"]
    assert [error["field"] for error in errors] == [
        "objective.weights.time",
        "objective.weights.speed",
        "constraints.sms.max",
        "constraints.config.stages.in.0",
        "constraints.config.x",
    ]


def test_many_wrong_members_are_counted_not_listed(client: TestClient) -> None:
    body = {**GOOD, **{f"x{i}": 1 for i in range(900)}}
    answer = problem(client.post("/v1/optimize", json=body), 422)
    assert len(answer["errors"]) == FAULTS_SHOWN
    assert answer["detail"].endswith(f"; and {900 - FAULTS_SHOWN} more")


@pytest.mark.parametrize("route", [*ROUTES, "/v1/simulate", "/v1/optimize/batch"])
def test_an_object_of_thousands_of_members_is_refused_unread(
    client: TestClient, route: str
) -> None:
    body = {**GOOD, "objective": {f"x{i}": 1 for i in range(5000)}}
    detail = problem(client.post(route, json=body), 400)["detail"]
    assert detail.endswith("an object has too many members: it may have 1000, got 5000")
