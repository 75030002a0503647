"""POST /v1/optimize and POST /v1/simulate."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.schemas.answers import OptimizeAnswer, SimulateAnswer

SQUARE = {"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16"}


def test_a_problem_gets_a_proven_configuration(client: TestClient) -> None:
    response = client.post("/v1/optimize", json=SQUARE)
    assert response.status_code == 200
    answer = OptimizeAnswer.model_validate_json(response.content)
    assert answer.proof.status == "optimal"
    assert answer.proof.scope is not None
    assert answer.proof.scope.configurations == answer.proof.space.configurations
    assert answer.kernel.id is not None
    assert answer.kernel.id.startswith("bf16_")
    assert answer.device.name == "h200"


def test_the_breakdown_adds_up_to_the_time(client: TestClient) -> None:
    predicted = client.post("/v1/optimize", json=SQUARE).json()["predicted"]
    assert sum(predicted["breakdown"].values()) == pytest.approx(predicted["time_us"])


def test_the_same_question_gets_the_same_bytes(client: TestClient) -> None:
    first, second = (client.post("/v1/optimize", json=SQUARE) for _ in range(2))
    assert first.content == second.content


def test_timings_travel_in_a_header(client: TestClient) -> None:
    timing = client.post("/v1/optimize", json=SQUARE).headers["server-timing"]
    names = [part.split(";dur=")[0] for part in timing.split(", ")]
    assert names == ["pick", "proof", "queue", "total"]


def test_an_answer_without_proof_says_so(client: TestClient) -> None:
    answer = client.post("/v1/optimize", json={**SQUARE, "proof": "none"}).json()
    assert answer["proof"]["status"] == "not_requested"
    assert answer["config"] == client.post("/v1/optimize", json=SQUARE).json()["config"]


def test_alternatives_come_in_order_and_without_the_pick(client: TestClient) -> None:
    answer = client.post("/v1/optimize", json={**SQUARE, "top_k": 5}).json()
    times = [answer["predicted"]["time_us"], *(row["time_us"] for row in answer["alternatives"])]
    assert len(times) == 5
    assert times == sorted(times)
    assert answer["config"] not in [row["config"] for row in answer["alternatives"]]


def test_the_papers_model_answers_without_a_kernel(client: TestClient) -> None:
    response = client.post(
        "/v1/optimize",
        json={"m": 512, "n": 512, "k": 512, "model": "paper", "device": "a6000"},
    )
    answer = OptimizeAnswer.model_validate_json(response.content)
    assert answer.kernel.id is None
    assert answer.proof.status == "optimal"


def test_the_pick_simulates_to_the_time_it_was_picked_for(client: TestClient) -> None:
    answer = client.post("/v1/optimize", json=SQUARE).json()
    response = client.post("/v1/simulate", json={**SQUARE, "config": answer["config"]})
    assert response.status_code == 200
    simulation = SimulateAnswer.model_validate_json(response.content)
    assert simulation.predicted.model_dump(exclude_unset=True) == answer["predicted"]
    assert simulation.gap_to_optimum == 0
    assert simulation.timeline
    assert "simulate;dur=" in response.headers["server-timing"]


LAID_OUT = {
    "m": 30,
    "n": 50,
    "k": 77,
    "dtype": "fp16",
    "layout": "tt",
    "out_dtype": "fp32",
    "lda": 80,
    "ldb": 56,
    "ldc": 50,
    "a_offset": 1,
    "b_offset": 0,
    "c_offset": 3,
}


@pytest.mark.parametrize("route", ["/v1/optimize", "/v1/simulate", "/v1/explain"])
def test_an_answer_repeats_how_the_operands_lie(client: TestClient, route: str) -> None:
    config = client.post("/v1/optimize", json=LAID_OUT).json()["config"]
    more = {"config": config} if route == "/v1/simulate" else {}
    body = client.post(route, json={**LAID_OUT, **more}).json()
    assert body["problem"] == LAID_OUT
    assert body["copied_operands"] == ["a"]
    assert body["kernel"]["id"].startswith("fp16_tt_")


def test_what_is_left_out_is_packed_and_of_one_type(client: TestClient) -> None:
    for layout, lda, ldb in (("tn", 777, 777), ("nn", 300, 777), ("nt", 300, 500)):
        question = {"m": 300, "n": 500, "k": 777, "layout": layout}
        null = dict.fromkeys(("out_dtype", "lda", "ldb", "ldc"))
        body = client.post("/v1/optimize", json={**question, "proof": "none"}).json()
        assert body["problem"] == {
            **question,
            "dtype": "bf16",
            "out_dtype": "bf16",
            "lda": lda,
            "ldb": ldb,
            "ldc": 500,
            **dict.fromkeys(("a_offset", "b_offset", "c_offset"), 0),
        }
        again = client.post("/v1/optimize", json={**question, **null, "proof": "none"})
        assert again.json() == body


@pytest.mark.parametrize(
    ("change", "copied"),
    [
        ({}, []),
        ({"k": 4100}, ["a", "b"]),
        ({"k": 4100, "layout": "tt"}, ["a"]),
        ({"m": 4100, "layout": "nn"}, ["a"]),
        ({"lda": 4100}, ["a"]),
        ({"b_offset": 4}, ["b"]),
        ({"n": 4100, "ldc": 4101, "c_offset": 1}, []),
        ({"k": 4100, "model": "paper"}, []),
    ],
)
def test_operands_that_tma_can_not_take_are_named(
    client: TestClient, change: dict[str, Any], copied: list[str]
) -> None:
    body = client.post("/v1/optimize", json={**SQUARE, **change, "proof": "none"}).json()
    assert body["copied_operands"] == copied


def test_gaps_and_copies_count_against_the_devices_memory(client: TestClient) -> None:
    def fits(**change: Any) -> bool:
        body = client.post("/v1/optimize", json={**SQUARE, "proof": "none", **change}).json()
        assert body["operand_bytes"] == 2 * 3 * 4096**2
        fitting: bool = body["fits_device_memory"]
        return fitting

    memory_bytes = client.post("/v1/optimize", json=SQUARE).json()["device"]["memory_bytes"]
    widest = (memory_bytes - 2**27) // (2 * 4095) // 8 * 8
    assert fits(lda=widest)
    assert not fits(lda=2 * widest)
    assert not fits(lda=widest + 2**15)
    assert not fits(lda=widest, ldb=widest)


def test_an_illegal_configuration_names_its_field_and_the_limit(client: TestClient) -> None:
    config = {
        "family": "sm90_gemm",
        "tile_m": 128,
        "tile_n": 256,
        "tile_k": 128,
        "stages": 12,
        "math_warpgroups": 2,
    }
    response = client.post("/v1/simulate", json={**SQUARE, "config": config})
    assert response.status_code == 422
    (error,) = response.json()["errors"]
    assert error["field"] == "config.stages"
    assert "232448 bytes" in error["message"]
