"""A file in WARPWRIGHT_PROFILES that can't stand in: told to whoever asks as the host's fault, and
nothing else breaks of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.cli.main import main
from app.problem_documents import UNAVAILABLE
from app.store.job import Job, Outcome
from app.turn import Turn
from solver.device import PROFILES_VARIABLE, shipped_text
from tests.app.conftest import service
from tests.app.races import H200, last_is_fastest, runner
from tests.app.test_calibrations import faster_text

SMALL = {"m": 512, "n": 512, "k": 512}
CONFIG = {"family": "sm90_gemm", "tile_m": 64, "tile_n": 64, "tile_k": 64, "stages": 4}
TALE = "of another version"
PICKS = Path(__file__).parents[2] / "examples" / "ci" / "picks.toml"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a profile of the H200 would stand in."""
    monkeypatch.setenv(PROFILES_VARIABLE, str(tmp_path))
    return tmp_path / "h200.json"


@pytest.fixture
def beside(file: Path) -> Iterator[TestClient]:
    """A service beside an H200 that ran when its profile became none."""
    with service(H200, runner(last_is_fastest)) as client:
        file.write_text(TALE)
        yield client


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/optimize?m=512&n=512&k=512", None),
        ("POST", "/v1/optimize", SMALL),
        ("POST", "/v1/optimize", SMALL | {"model_only": True}),
        ("POST", "/v1/explain", SMALL),
        ("POST", "/v1/simulate", SMALL | {"config": CONFIG}),
        ("POST", "/v1/verifications", SMALL),
        ("POST", "/v1/calibrations", {"dry_run": True}),
        ("POST", "/v1/sweeps", {"problems": [SMALL]}),
        ("GET", "/v1/devices", None),
        ("GET", "/v1/drift", None),
    ],
)
def test_every_question_that_needs_it_gets_503_with_its_path(
    beside: TestClient, file: Path, method: str, path: str, body: Any
) -> None:
    response = beside.request(method, path, json=body)
    problem = response.json()
    assert (response.status_code, problem["type"]) == (503, UNAVAILABLE.type)
    assert str(file) in problem["detail"]
    documented = beside.get("/openapi.json").json()["paths"][path.partition("?")[0]]
    schema = documented[method.lower()]["responses"]["503"]["content"]["application/problem+json"]
    assert UNAVAILABLE.type in schema["schema"]["properties"]["type"]["enum"]


def test_other_devices_are_answered(beside: TestClient) -> None:
    asked = SMALL | {"device": "h20", "proof": "none"}
    assert beside.post("/v1/optimize", json=asked).status_code == 200
    assert beside.get("/v1/optimize", params=asked).status_code == 200


def test_a_verification_that_was_running_keeps_its_result(file: Path) -> None:
    ends = runner(last_is_fastest)

    def run(job: Job, turn: Turn) -> Outcome:
        outcome = ends(job, turn)
        file.write_text(TALE)
        return outcome

    with service(H200, run) as client:
        location = client.post("/v1/verifications", json=SMALL | {"top_k": 3}).headers["location"]
        for _ in range(500):
            body = client.get(location).json()
            if body["finished_at"] is not None:
                break
            time.sleep(0.01)
        assert (body["status"], body["result"].get("measurement")) == ("passed", None)
        assert body["result"]["contest"]["beats_pick"]
        file.unlink()
        assert client.post("/v1/optimize", json=SMALL).json()["source"] == "model"


@pytest.mark.parametrize(
    "words",
    [
        ["optimize", "64", "64", "64"],
        ["devices"],
        ["calibrate", "--dry-run"],
        ["serve", "--port", "0"],
        ["recheck", "certificate.json"],
        *([name, str(PICKS)] for name in ("lock", "check")),
        ["bench", "accuracy", "--device", "h200", "--fitted"],
        ["bench", "plan", "--device", "h200", "--out", "plan.json"],
        ["bench", "solve"],
    ],
)
def test_commands_say_that_it_is_missing_something(
    words: list[str], file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("kernels.verify.host_gpu", lambda: H200)
    file.write_text(TALE)
    assert main([*words, "--json"]) == 3
    assert str(file) in json.loads(capsys.readouterr().out)["detail"]


def test_constants_that_give_no_time_are_the_hosts_fault(file: Path, capsys: Any) -> None:
    raw = json.loads(shipped_text_as_calibrated())
    raw["models"]["sm90_gemm"]["hbm_sms_exponent"]["value"] = 1e6
    with service(H200, runner(last_is_fastest)) as client:
        file.write_text(json.dumps(raw))
        response = client.post("/v1/optimize", json=SMALL)
    assert (response.status_code, response.json()["type"]) == (503, UNAVAILABLE.type)
    assert main(["optimize", "512", "512", "512", "--json"]) == 3
    detail = json.loads(capsys.readouterr().out)["detail"]
    assert "constants of the profile of h200" in detail


def test_a_file_that_is_written_over_in_place_is_answered_by(file: Path) -> None:
    """As ``cp`` does, which leaves the folder as it was."""
    question = SMALL | {"proof": "full"}
    file.write_text(shipped_text_as_calibrated())
    with service(H200, runner(last_is_fastest)) as client:
        before = client.get("/v1/optimize", params=question)
        assert (
            client.get("/v1/optimize", params=question)
            .headers["server-timing"]
            .startswith("cache;desc=hit")
        )
        file.write_text(faster_text())
        after = client.get("/v1/optimize", params=question)
    assert after.headers["etag"] != before.headers["etag"]
    assert after.json()["predicted"]["time_us"] < before.json()["predicted"]["time_us"]


def shipped_text_as_calibrated() -> str:
    raw = json.loads(shipped_text("h200"))
    return json.dumps({**raw, "calibration": json.loads(faster_text())["calibration"]})
