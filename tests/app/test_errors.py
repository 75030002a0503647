"""What the service says when it is not the caller's fault."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.errors import Busy
from app.solver_pool import SolverPool
from solver.errors import ProofError

QUESTION = {"m": 512, "n": 512, "k": 512}


@pytest.mark.parametrize("defect", [RuntimeError("the inside"), ProofError("the inside")])
def test_a_defect_is_a_problem_document_that_tells_nothing_of_the_inside(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, defect: Exception
) -> None:
    async def broken(*_: Any) -> None:
        raise defect

    monkeypatch.setattr(SolverPool, "ask", broken)
    response = client.post("/v1/optimize", json=QUESTION)
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["type"] == "urn:warpwright:problem:internal-error"
    assert "inside" not in response.text


def test_a_busy_service_says_when_to_come_back(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(*_: Any) -> None:
        raise Busy("64 questions are waiting; at most 64 may")

    monkeypatch.setattr(SolverPool, "ask", busy)
    response = client.post("/v1/optimize", json=QUESTION)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert "at most 64" in response.json()["detail"]


def test_the_service_goes_on_after_a_defect(client: TestClient) -> None:
    assert client.post("/v1/optimize", json=QUESTION).status_code == 200
