"""POST /v1/explain: the words and the figures that they are made of."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.schemas.explanations import ExplainAnswer
from tests.app.test_bad_input import problem

SQUARE = {"m": 1024, "n": 1024, "k": 1024}
CONSTRAINTS = {"smem_bytes": {"max": 65536}, "config": {"stages": {"max": 3}}}
QUESTIONS = [
    SQUARE,
    {**SQUARE, "constraints": CONSTRAINTS},
    {"m": 300, "n": 512, "k": 777, "layout": "tt", "c_offset": 1},
    {**SQUARE, "model": "paper", "device": "a6000", "proof": "none"},
    {
        "m": 128,
        "n": 256,
        "k": 256,
        "objective": {"kind": "weighted", "weights": {"time": 1, "smem": 0.1}},
    },
]


def explained(client: TestClient, question: dict[str, Any]) -> dict[str, Any]:
    """The explanation, of its documented shape."""
    response = client.post("/v1/explain", json=question)
    assert response.status_code == 200, response.text
    ExplainAnswer.model_validate_json(response.content)
    assert "explain;dur=" in response.headers["server-timing"]
    body: dict[str, Any] = response.json()
    return body


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_explanation_is_of_the_pick_and_in_words(
    client: TestClient, question: dict[str, Any]
) -> None:
    body = explained(client, question)
    answer = client.post("/v1/optimize", json=question).json()
    for name in ("config", "kernel", "predicted", "objective", "constraints"):
        assert body[name] == answer[name]
    assert all(paragraph.strip() for paragraph in body["text"])
    assert f"{answer['predicted']['time_us']:.2f} µs" in " ".join(body["text"])


def test_a_constraint_that_binds_is_named_with_the_value_that_frees(client: TestClient) -> None:
    question = {**SQUARE, "constraints": CONSTRAINTS}
    body = explained(client, question)
    assert body["binding"]
    for flip in body["binding"]:
        *path, relation = flip["name"].removeprefix("constraints.").split(".")
        assert flip["kind"] == "constraint"
        freed: dict[str, Any] = {relation: flip["after"]}
        for name in reversed(path):
            freed = {name: freed}
        moved = client.post(
            "/v1/optimize", json={**question, "constraints": {**CONSTRAINTS, **freed}}
        ).json()
        assert moved["config"] == flip["config"] != body["config"]
        assert moved["predicted"]["time_us"] == flip["time_us"]


def test_the_same_question_is_explained_in_the_same_bytes(client: TestClient) -> None:
    first, second = (client.post("/v1/explain", json=QUESTIONS[3]) for _ in range(2))
    assert first.content == second.content


def test_what_can_not_be_had_can_not_be_explained(client: TestClient) -> None:
    question = {**SQUARE, "constraints": {"smem_bytes": {"max": 1}}}
    body = problem(client.post("/v1/explain", json=question), 422)
    assert body["core"] == ["constraints.smem_bytes.max"]
