"""POST /v1/calibrations and what follows, and ``warpwright calibrate``; the GPU itself left out."""

from __future__ import annotations

import json
import statistics
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import app.calibration
import kernels.verify
from app.calibration import request_of, run_calibration
from app.cli.main import main
from app.schemas.calibrations import CalibrationJob, CalibrationPage
from app.store.job import Job, Outcome
from app.turn import Turn
from kernels.calibration import Asked, Calibration
from kernels.calibration_rules import Refusal
from kernels.drift import ADVICE
from kernels.errors import GpuLost, StepFailed
from kernels.nvrtc import version as nvrtc_version
from kernels.process import Worker
from solver.calibration.profile import store_profile
from solver.device import PROFILES_VARIABLE, load_profile, shipped_text
from solver.errors import InvalidInput
from solver.model_version import MODEL_VERSION
from tests.app.conftest import service
from tests.app.test_verifications import ended, gpu
from tests.app.turns import turn

RECORD = {"device": "h200", "gpu": "NVIDIA H200", "error": 0.04, "error_present": 0.09}
SHARED = Refusal("gpu_shared", "the GPU is 40% busy with work of others")


def faster_text() -> str:
    """The H200's profile as a calibration would leave it, of a GPU that launches at once."""
    raw = json.loads(shipped_text("h200"))
    raw["models"]["sm90_gemm"]["launch_us"]["value"] = 0.1
    raw["title"] += ", calibrated 2026-11-30"
    raw["calibration"] = {"model_version": MODEL_VERSION, "rows": 200}
    return json.dumps(raw)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where calibrated profiles go."""
    monkeypatch.setenv(PROFILES_VARIABLE, str(tmp_path / "profiles"))
    return tmp_path / "profiles"


@pytest.fixture(autouse=True)
def no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROFILES_VARIABLE, raising=False)


def comes_to(monkeypatch: pytest.MonkeyPatch, found: Calibration | Exception) -> list[Asked]:
    """Let a calibration come to this; what it was asked is kept."""
    asked: list[Asked] = []

    def calibrate(question: Asked, worker: Worker, tell: Any, *_: Any) -> Calibration:
        asked.append(question)
        tell("measure", 3, 9)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(app.calibration, "calibrate", calibrate)
    return asked


def test_a_calibration_that_passes_is_stored_and_answers_change_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = comes_to(monkeypatch, Calibration("h200", faster_text(), None, dict(RECORD)))
    question = {"m": 512, "n": 512, "k": 512, "proof": "full"}
    with service(gpu()) as client:
        before = client.get("/v1/optimize", params=question)
        assert client.get("/v1/optimize", params=question).headers["etag"] == before.headers["etag"]
        response = client.post("/v1/calibrations", json={"rows": 100, "from_scratch": True})
        assert response.status_code == 202
        job = CalibrationJob.model_validate_json(response.content)
        assert response.headers["location"] == f"/v1/calibrations/{job.id}"
        body = ended(client, response.headers["location"])
        CalibrationJob.model_validate(body)
        assert (body["status"], body["reason"]) == ("passed", None)
        assert body["result"]["stored"] == str(folder / "h200.json")
        assert body["result"]["profile"]["calibration"]["rows"] == 200
        after = client.get("/v1/optimize", params=question)
        assert after.headers["etag"] != before.headers["etag"]
        told = after.json()["device"]
        assert told["profile_sha256"] == load_profile("h200").sha256
        assert told["title"].endswith("calibrated 2026-11-30")
        assert after.json()["predicted"]["time_us"] < before.json()["predicted"]["time_us"]
        devices = {each["name"]: each for each in client.get("/v1/devices").json()["devices"]}
        assert devices["h200"]["calibration"]["rows"] == 200
        assert devices["h20"]["calibration"] is None
        assert 'warpwright_calibrations_total{reason="",status="passed"} 1.0' in (
            client.get("/metrics").text
        )
    assert asked == [Asked(scratch=True, rows=100)]


def test_a_refused_calibration_fails_with_its_reason_and_leaves_the_profile(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comes_to(monkeypatch, Calibration("h200", faster_text(), SHARED, dict(RECORD)))
    with service(gpu()) as client:
        location = client.post("/v1/calibrations", json={}).headers["location"]
        body = ended(client, location)
        assert (body["status"], body["reason"]) == ("failed", "gpu_shared")
        assert "40% busy" in body["result"]["details"]
        assert list(folder.iterdir()) == []


def test_a_dry_run_needs_no_folder_and_stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    comes_to(monkeypatch, Calibration("h200", faster_text(), None, dict(RECORD)))
    with service(gpu()) as client:
        refused = client.post("/v1/calibrations", json={})
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["field"] == "dry_run"
        assert PROFILES_VARIABLE in refused.json()["detail"]
        location = client.post("/v1/calibrations", json={"dry_run": True}).headers["location"]
        body = ended(client, location)
        assert body["status"] == "passed"
        assert body["result"]["stored"] is None
        assert body["result"]["profile"]["name"] == "h200"


@pytest.mark.parametrize(
    ("values", "field"),
    [({"rows": 39}, "rows"), ({"rows": "60"}, "rows"), ({"seed": -1}, "seed"), ({"m": 1}, "m")],
)
def test_a_value_beyond_its_limits_is_named(
    client: TestClient, values: dict[str, Any], field: str
) -> None:
    response = client.post("/v1/calibrations", json={"dry_run": True, **values})
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == field


def test_without_a_gpu_a_calibration_gets_503_and_with_another_422(client: TestClient) -> None:
    response = client.post("/v1/calibrations", json={"dry_run": True})
    assert response.status_code == 503
    assert response.json()["type"] == "urn:warpwright:problem:gpu-absent"
    with service(gpu("NVIDIA L40S")) as other:
        refused = other.post("/v1/calibrations", json={"dry_run": True})
        assert refused.status_code == 422
        assert "h200" in refused.json()["detail"]


def test_the_same_request_again_gets_the_same_job_and_jobs_of_other_kinds_are_apart() -> None:
    over = threading.Event()

    def held(job: Job, turn: Turn) -> Outcome:
        turn.on_report({"stage": "measure", "done": 1, "total": 2})
        over.wait(60)
        return Outcome("passed", None, {})

    with service(gpu(), calibrate=held) as client:
        name = {"Idempotency-Key": "mine"}
        first = client.post("/v1/calibrations", json={"dry_run": True}, headers=name)
        again = client.post("/v1/calibrations", json={"dry_run": True}, headers=name)
        assert (first.status_code, again.status_code) == (202, 200)
        job = first.json()["id"]
        assert again.json()["id"] == job
        assert client.get(f"/v1/verifications/{job}").status_code == 404
        assert client.delete(f"/v1/verifications/{job}").status_code == 404
        assert client.get("/v1/verifications").json()["verifications"] == []
        page = CalibrationPage.model_validate(client.get("/v1/calibrations").json())
        assert [each.id for each in page.calibrations] == [job]
        waiting = client.post("/v1/calibrations", json={"dry_run": True}).json()["id"]
        cancelled = client.delete(f"/v1/calibrations/{waiting}")
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
        assert client.delete(f"/v1/calibrations/{waiting}").status_code == 409
        over.set()
        ended(client, f"/v1/calibrations/{job}")
        events = client.get(f"/v1/calibrations/{job}/events").text
        assert "event: progress" in events
        assert '"total":2' in events.replace(" ", "")
        missing = client.get("/v1/calibrations/none")
        assert "there is no calibration 'none'" in missing.json()["detail"]


def job_of(request: dict[str, Any]) -> Job:
    blank: dict[str, Any] = dict.fromkeys(Job.__dataclass_fields__)
    return Job(**blank | {"kind": "calibration", "request": request})


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (GpuLost("the GPU process is lost"), "worker_lost"),
        (StepFailed("tensor_peak: ValueError"), "environment"),
    ],
)
def test_what_breaks_a_calibration_off_is_its_reason(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    comes_to(monkeypatch, error)
    outcome = run_calibration(job_of(request_of(Asked(), dry_run=True)), turn())
    assert (outcome.status, outcome.reason) == ("failed", reason)
    assert outcome.result["details"] == str(error)


def test_a_profile_that_can_not_be_stored_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(PROFILES_VARIABLE, str(tmp_path / "file" / "sub"))
    asked = comes_to(monkeypatch, Calibration("h200", faster_text(), None, dict(RECORD)))
    outcome = run_calibration(job_of(request_of(Asked(), dry_run=False)), turn())
    assert outcome.reason == "environment"
    assert "can't be written" in outcome.result["details"]
    assert not asked  # nothing is measured for it


def test_a_profile_whose_place_went_away_meanwhile_is_a_reason_and_keeps_what_was_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def calibrate(question: Asked, worker: Worker, tell: Any, *_: Any) -> Calibration:
        (folder / "h200.json").mkdir()
        return Calibration("h200", faster_text(), None, dict(RECORD))

    monkeypatch.setattr(app.calibration, "calibrate", calibrate)
    outcome = run_calibration(job_of(request_of(Asked(), dry_run=False)), turn())
    assert (outcome.status, outcome.reason) == ("failed", "environment")
    assert outcome.result["error"] == RECORD["error"]


def test_a_job_that_is_to_store_does_not_pass_where_no_folder_is_named_any_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = comes_to(monkeypatch, Calibration("h200", faster_text(), None, dict(RECORD)))
    job = job_of(request_of(Asked(), dry_run=False))
    monkeypatch.delenv(PROFILES_VARIABLE)
    outcome = run_calibration(job, turn())
    assert (outcome.status, outcome.reason, asked) == ("failed", "environment", [])
    assert PROFILES_VARIABLE in outcome.result["details"]


def test_a_request_of_another_version_is_unreadable() -> None:
    outcome = run_calibration(job_of({"rows": 200}), turn())
    assert outcome.reason == "unreadable"
    outcome = run_calibration(job_of({**request_of(Asked(), True), "rows": 1}), turn())
    assert "rows" in outcome.result["details"]


def test_a_request_without_a_place_is_refused_before_it_is_a_job() -> None:
    with pytest.raises(InvalidInput, match="dry_run"):
        request_of(Asked(), dry_run=False)


def test_verifications_far_from_their_prediction_are_drift_until_the_profile_is_right(
    folder: Path,
) -> None:
    """Every kernel takes 1.5 times what the profile says, which a slower launch explains."""

    def slow(job: Job, turn: Turn) -> Outcome:
        measured = {"median_us": 1.5 * job.request["predicted_us"], "protocol": {"cache": "cold"}}
        ran = {"device": gpu().name, "driver": gpu().driver, "nvrtc": nvrtc_version()}
        return Outcome("passed", None, {**job.request, **measured, **ran})

    with service(gpu(), slow) as client:
        for m in range(1, 8):
            verify(client, m)
        assert client.get("/v1/drift").json()["found"] is None
        verify(client, 7)  # the same problem again counts once
        assert client.get("/v1/drift").json()["found"] is None
        verify(client, 8)
        drift = client.get("/v1/drift").json()
        assert (drift["problems"], drift["found"], drift["advice"]) == (8, True, ADVICE)
        assert drift["ratio"] == pytest.approx(1.5, abs=0.01)
        assert "warpwright_drift_found 1.0" in client.get("/metrics").text
        raw = json.loads(faster_text())
        raw["models"]["sm90_gemm"]["launch_us"]["value"] = 1.0 + drift_us(client)
        store_profile(folder / "h200.json", json.dumps(raw))
        cured = client.get("/v1/drift").json()
        assert (cured["found"], cured["advice"]) == (False, None)
        (folder / "h200.json").write_text("no profile")
        assert "warpwright_drift_found NaN" in client.get("/metrics").text


def verify(client: TestClient, m: int) -> None:
    response = client.post("/v1/verifications", json={"m": m, "n": 512, "k": 512})
    ended(client, response.headers["location"])


def drift_us(client: TestClient) -> float:
    """What the verified kernels took longer than predicted, in the median."""
    jobs = client.get("/v1/verifications").json()["verifications"]
    return statistics.median(j["result"]["median_us"] - j["predicted_us"] for j in jobs)


# The command line


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    import kernels.calibrate

    monkeypatch.setattr(kernels.calibrate, "require_gpu", lambda *_: (gpu(), "h200"))


def command_comes_to(monkeypatch: pytest.MonkeyPatch, found: Calibration | Exception) -> None:
    import kernels.calibrate

    def calibrate(question: Asked, worker: Worker, tell: Any, *_: Any) -> Calibration:
        tell("fit", 2, 25)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(kernels.calibrate, "calibrate", calibrate)


def test_the_command_says_what_it_stored(
    host: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    command_comes_to(monkeypatch, Calibration("h200", faster_text(), None, dict(RECORD)))
    out = tmp_path / "h200.json"
    assert main(["calibrate", "--out", str(out), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["status"], record["out"]) == ("stored", str(out))
    assert json.loads(out.read_text())["calibration"]["rows"] == 200
    monkeypatch.setenv(PROFILES_VARIABLE, str(tmp_path))
    assert main(["devices", "--json"]) == 0
    devices = {d["name"]: d for d in json.loads(capsys.readouterr().out)["devices"]}
    assert devices["h200"]["calibration"]["rows"] == 200
    assert main(["devices"]) == 0
    assert "calibrated" in capsys.readouterr().out


def test_a_refusal_makes_the_answer_no(
    host: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    command_comes_to(monkeypatch, Calibration("h200", None, SHARED, dict(RECORD)))
    assert main(["calibrate", "--out", str(tmp_path / "x.json")]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "gpu_shared" in told
    assert "9.00%" in told
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize("error", [GpuLost("gone"), StepFailed("a step")])
def test_what_breaks_off_is_something_missing(
    error: Exception, host: None, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    command_comes_to(monkeypatch, error)
    assert main(["calibrate", "--dry-run", "--json"]) == 3
    assert str(error) in json.loads(capsys.readouterr().out)["detail"]


@pytest.mark.parametrize(
    ("words", "field"), [(["--rows", "1"], "rows"), (["--seed", "-1"], "seed"), ([], "out")]
)
def test_a_wrong_option_is_named(words: list[str], field: str, host: None, capsys: Any) -> None:
    assert main(["calibrate", *words, "--json"]) == 2
    assert field in json.dumps(json.loads(capsys.readouterr().out))


def test_without_a_gpu_the_command_says_so(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(kernels.verify, "host_gpu", lambda: None)
    assert main(["calibrate", "--dry-run", "--json"]) == 3
    assert "no NVIDIA GPU" in json.loads(capsys.readouterr().out)["detail"]
