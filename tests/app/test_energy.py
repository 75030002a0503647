"""Energy and power over HTTP and on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.cli.main import main
from app.schemas.answers import OptimizeAnswer, SimulateAnswer
from app.schemas.explanations import ExplainAnswer
from solver.device import PROFILES_VARIABLE, device_names, shipped_text
from solver.families.sm90_gemm_power import TABLE
from tests.app.conftest import service
from tests.app.test_bad_input import problem
from tests.power_profiles import write_powered

SMALL = {"m": 256, "n": 512, "k": 512}
UNMEASURED = {**SMALL, "device": "h100_sxm"}
ENERGY = {"kind": "lexicographic", "order": ["energy"]}
WEIGHED = {"kind": "weighted", "weights": {"time": 1, "energy": 2}}
FRONT = {"kind": "pareto", "axes": ["time", "energy"], "within": 4}


@pytest.fixture(scope="module")
def powered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service for which the H200's power was measured."""
    folder = tmp_path_factory.mktemp("profiles")
    write_powered(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PROFILES_VARIABLE, str(folder))
        with service(answer_cache_bytes=0) as client:
            yield client


def answered(client: TestClient, **members: Any) -> dict[str, Any]:
    """A proved answer of its documented shape."""
    response = client.post("/v1/optimize", json={**SMALL, **members})
    assert response.status_code == 200, response.text
    OptimizeAnswer.model_validate_json(response.content)
    body: dict[str, Any] = response.json()
    assert body["proof"]["status"] == "optimal"
    return body


@pytest.mark.parametrize("objective", [ENERGY, WEIGHED, FRONT], ids=lambda o: o["kind"])
def test_energy_that_was_not_measured_is_refused_with_what_to_do(
    client: TestClient, objective: dict[str, Any]
) -> None:
    response = client.post("/v1/optimize", json={**UNMEASURED, "objective": objective})
    (error,) = problem(response, 422)["errors"]
    assert error["field"] == "objective"
    assert "python -m kernels.power" in error["message"]


def test_so_is_power(client: TestClient) -> None:
    body = {**UNMEASURED, "constraints": {"power_w": {"max": 400}}}
    for route in ("/v1/optimize", "/v1/explain"):
        (error,) = problem(client.post(route, json=body), 422)["errors"]
        assert error["field"] == "constraints.power_w"


def test_norm_activation_has_no_energy(client: TestClient) -> None:
    body = {"op": "norm_activation", "rows": 64, "width": 1024, "objective": ENERGY}
    (error,) = problem(client.post("/v1/optimize", json=body), 422)["errors"]
    assert "no model of power" in error["message"]


@pytest.mark.parametrize(
    ("bound", "field", "words"),
    [
        ({"min": 300}, ".min", "there are max"),
        ({"max": 300, "in": [300]}, ".in", "there are max"),
        ({}, ".max", "is required"),
        ({"max": 300.5}, ".max", "an integer between"),
        (300, "", "a JSON object"),
    ],
)
def test_power_is_capped_and_no_more(
    client: TestClient, bound: Any, field: str, words: str
) -> None:
    response = client.post("/v1/optimize", json={**SMALL, "constraints": {"power_w": bound}})
    errors = problem(response, 422)["errors"]
    named = {error["field"]: error["message"] for error in errors}
    assert words in named[f"constraints.power_w{field}"]


def test_answers_without_constants_are_as_they_were(client: TestClient) -> None:
    body = answered(client, top_k=3, device=UNMEASURED["device"])
    assert "sustained" not in body["predicted"]
    assert not {"power_w", "energy_j"} & set(body["alternatives"][0])
    assert "energy" not in body["proof"]["scope"]["claim"]


def test_objectives_name_energy(powered: TestClient) -> None:
    least = answered(powered, objective=ENERGY, top_k=5)
    energies = [row["energy_j"] for row in least["alternatives"]]
    assert energies == sorted(energies)
    held = least["predicted"]["sustained"]
    assert held["energy_j"] <= energies[0]
    assert held["power_w"] * held["time_us"] * 1e-6 == pytest.approx(held["energy_j"])
    weighed = answered(powered, objective=WEIGHED)
    assert weighed["objective"]["units"] == {"time": "µs", "energy": "mJ"}
    figures = weighed["predicted"]
    score = figures["time_us"] + 2 * figures["sustained"]["energy_j"] * 1e3
    assert weighed["score"] == pytest.approx(score)
    front = answered(powered, objective=FRONT)["front"]
    assert [p["time_us"] for p in front] == sorted(p["time_us"] for p in front)
    assert [p["energy_j"] for p in front] == sorted((p["energy_j"] for p in front), reverse=True)


def test_a_cap_holds_and_one_that_leaves_nothing_tells_the_least(powered: TestClient) -> None:
    free = answered(powered)["predicted"]["sustained"]["power_w"]
    cap = int(free) - 20
    body = answered(powered, constraints={"power_w": {"max": cap}})
    assert body["predicted"]["sustained"]["power_w"] <= cap
    assert body["constraints"] == {"power_w": {"max": cap}}
    response = powered.post("/v1/optimize", json={**SMALL, "constraints": {"power_w": {"max": 50}}})
    document = problem(response, 422)
    assert document["core"] == ["constraints.power_w.max"]
    (change,) = document["relaxations"]
    least = answered(powered, constraints={"power_w": {"max": change["relaxed"]}})
    assert least["predicted"]["sustained"]["power_w"] <= change["relaxed"]


def test_simulations_and_explanations_say_what_is_held(powered: TestClient) -> None:
    answer = answered(powered)
    response = powered.post("/v1/simulate", json={**SMALL, "config": answer["config"]})
    simulated = SimulateAnswer.model_validate_json(response.content).predicted.sustained
    assert simulated is not None
    assert simulated.model_dump() == answer["predicted"]["sustained"]
    response = powered.post("/v1/explain", json={**SMALL, "objective": ENERGY})
    explained = ExplainAnswer.model_validate_json(response.content)
    assert "by energy" in explained.text[0]


def test_the_command_line_shows_and_certifies_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_powered(tmp_path)
    monkeypatch.setenv(PROFILES_VARIABLE, str(tmp_path))
    certificate = tmp_path / "certificate.json"
    asked = ["optimize", "256", "512", "512", "--device", "h200", "--top-k", "3"]
    asked += ["--objective", json.dumps(WEIGHED), "--constraints", '{"power_w": {"max": 300}}']
    assert main([*asked, "--certificate", str(certificate)]) == 0
    shown = capsys.readouterr().out
    for words in ("power_w at most 300", "2 x energy (mJ)", "held for seconds", "mJ"):
        assert words in shown, words
    assert main(["recheck", str(certificate)]) == 0
    assert "The certificate holds" in capsys.readouterr().out


def test_the_page_says_whether_a_profile_that_ships_has_constants_of_power() -> None:
    page = (Path(__file__).parents[2] / "docs" / "energy.md").read_text("utf-8")
    has = any(TABLE in json.loads(shipped_text(name))["models"] for name in device_names())
    assert ("No profile that ships has them yet" in page) is not has
