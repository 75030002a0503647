"""time_limit_ms over HTTP: the answer comes in time and says what is not proved."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.schemas.answers import OptimizeAnswer

LATE_MS = 50
WEIGHTED = {"kind": "weighted", "weights": {"time": 1, "smem": 0.1, "registers": 0.1}}
HARD = {"m": 512, "n": 512, "k": 512, "objective": WEIGHTED}


def timed(client: TestClient, question: dict[str, Any]) -> tuple[float, Any]:
    """(milliseconds past the limit, response)."""
    begun = time.monotonic()
    response = client.post("/v1/optimize", json=question)
    return (time.monotonic() - begun) * 1e3 - question["time_limit_ms"], response


def test_a_timeout_says_what_is_left_and_is_not_to_be_cached(client: TestClient) -> None:
    response = client.post("/v1/optimize", json={**HARD, "time_limit_ms": 1})
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    OptimizeAnswer.model_validate_json(response.content)
    body = response.json()
    proof = body["proof"]
    assert proof["status"] == "timeout"
    assert 0 < proof["undecided"] <= proof["space"]["configurations"]
    assert 0 <= proof["gap"] < 1
    assert proof["gap_in"] == "score"
    proved = client.post("/v1/optimize", json=HARD).json()
    assert proved["proof"]["status"] == "optimal"
    assert proved["score"] == body["score"]


def test_the_bound_of_a_timeout_is_below_the_optimum(client: TestClient) -> None:
    body = client.post("/v1/optimize", json={**HARD, "time_limit_ms": 20}).json()
    best = client.post("/v1/optimize", json=HARD).json()["score"]
    if body["proof"]["status"] == "timeout":
        assert body["score"] * (1 - body["proof"]["gap"]) <= best + 1e-9


@pytest.mark.alone
@pytest.mark.parametrize("limit_ms", [1, 20, 60])
@pytest.mark.parametrize(
    "question",
    [
        {"m": 4096, "n": 4096, "k": 4096},
        HARD,
        {"m": 512, "n": 512, "k": 512, "objective": {"kind": "pareto", "axes": ["time", "smem"]}},
        {"m": 512, "n": 512, "k": 512, "model": "paper", "device": "a6000"},
    ],
)
def test_an_answer_is_at_most_50_ms_late(
    client: TestClient, question: dict[str, Any], limit_ms: int
) -> None:
    # The least of several: what else the machine does must not decide this. With two other
    # processes on each core, the least of 20 was 65 ms once.
    least = float("inf")
    for _ in range(100):
        late, response = timed(client, {**question, "time_limit_ms": limit_ms})
        assert response.status_code == 200
        least = min(least, late)
        if least <= LATE_MS:
            break
    assert least <= LATE_MS


@pytest.mark.alone
def test_the_time_spent_waiting_for_a_process_counts(client: TestClient) -> None:
    """The one process is held for longer than the limit: no time is left for the proof."""
    pool, portal = client.app.state.services.pool, client.portal
    holding = threading.Thread(target=portal.call, args=(pool.ask, time.sleep, 0.6))
    holding.start()
    time.sleep(0.1)
    late_ms, response = timed(client, {**HARD, "time_limit_ms": 200})
    holding.join()
    assert float(response.headers["server-timing"].split("queue;dur=")[1].split(",")[0]) > 200
    assert response.json()["proof"]["status"] == "timeout"
    assert late_ms < 300 + 5 * LATE_MS


def test_a_limit_that_is_long_enough_changes_nothing(client: TestClient) -> None:
    question = {"m": 512, "n": 512, "k": 512}
    limited = client.post("/v1/optimize", json={**question, "time_limit_ms": 30_000})
    assert limited.content == client.post("/v1/optimize", json=question).content
