"""POST /v1/sweeps and what follows; the GPU itself left out."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from fastapi.testclient import TestClient

import app.sweep
from app.schemas.sweeps import SweepJob, SweepPage, SweptRows
from app.store.job import Job, Outcome
from app.sweep import request_of, run_sweep
from app.turn import Turn
from kernels.errors import GpuAbsent, GpuLost, StepFailed
from kernels.host import HostGpu
from kernels.problem_sweep import SweepResult
from solver.problem import Problem
from solver.problem_sweep import ProblemSweep
from tests.app.conftest import service
from tests.app.test_verifications import ended, gpu
from tests.app.turns import turn

SMALL = {"m": 512, "n": 512, "k": 512}
CONFIG = {
    "family": "sm90_gemm",
    "tile_m": 64,
    "tile_n": 64,
    "tile_k": 64,
    "stages": 4,
    "math_warpgroups": 1,
}
ROW: dict[str, Any] = {
    "problem": 0,
    "role": "top",
    "pick": True,
    "config": CONFIG,
    "predicted_us": 5.0,
    "median_us": 6.0,
    "p95_us": 6.5,
    "sm_clock_mhz": 1980,
    "power_w": 300.0,
    "throttle": [],
    "reason": None,
}
RECORD: dict[str, Any] = {"planned": 3, "measured": 3, "failed": 0}


def measuring(count: int = 3) -> Any:
    """Stands in for the work: adds so many rows."""

    def run(job: Job, turn: Turn) -> Outcome:
        known = turn.rows.begin("a" * 64)
        for number in range(count):
            if number not in known:
                turn.rows.add(number, {**ROW, "pick": number == 0})
            turn.on_report({"stage": "measure", "done": number + 1, "total": count})
        return Outcome("passed", None, dict(RECORD))

    return run


def test_a_sweep_is_queued_run_and_its_rows_are_paged() -> None:
    with service(gpu(), sweep=measuring(5)) as client:
        response = client.post("/v1/sweeps", json={"problems": [SMALL], "top_k": 5})
        assert response.status_code == 202
        job = SweepJob.model_validate_json(response.content)
        assert response.headers["location"] == f"/v1/sweeps/{job.id}"
        assert (job.problems[0].lda, job.top_k, job.covering, job.cache) == (512, 5, 0, "cold")
        body = ended(client, response.headers["location"])
        SweepJob.model_validate(body)
        assert (body["status"], body["result"]) == ("passed", RECORD)
        path = f"/v1/sweeps/{job.id}/rows"
        whole = SweptRows.model_validate(client.get(path).json())
        assert ([row.number for row in whole.rows], whole.next) == ([0, 1, 2, 3, 4], None)
        seen, after = [], None
        while after is not None or not seen:
            page = client.get(path, params={"limit": 2} | ({"after": after} if seen else {})).json()
            seen += [row["number"] for row in page["rows"]]
            after = page["next"]
        assert seen == [0, 1, 2, 3, 4]
        events = client.get(f"/v1/sweeps/{job.id}/events").text
        assert "event: progress" in events
        assert '"stage":"measure"' in events.replace(" ", "")
        assert 'warpwright_sweeps_total{reason="",status="passed"} 1.0' in (
            client.get("/metrics").text
        )


def test_rows_can_be_read_while_it_runs_and_stay_when_it_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.store.result_rows.WRITE_S", 0.0)
    begun = threading.Event()

    def endless(job: Job, turn: Turn) -> Outcome:
        turn.rows.begin("a" * 64)
        turn.rows.add(0, ROW)
        turn.rows.add(1, ROW)
        begun.set()
        while not turn.worker.halted:
            threading.Event().wait(0.01)
        return Outcome("failed", "worker_lost", {})

    with service(gpu(), sweep=endless) as client:
        location = client.post("/v1/sweeps", json={"problems": [SMALL]}).headers["location"]
        assert begun.wait(30)
        assert len(client.get(f"{location}/rows").json()["rows"]) == 2
        assert client.delete(location).status_code == 202
        assert ended(client, location)["status"] == "cancelled"
        assert len(client.get(f"{location}/rows").json()["rows"]) == 2
        assert client.delete(location).status_code == 409


def test_the_same_request_again_gets_the_same_job_and_jobs_of_other_kinds_are_apart() -> None:
    with service(gpu(), sweep=measuring()) as client:
        name, body = {"Idempotency-Key": "mine"}, {"problems": [SMALL]}
        first = client.post("/v1/sweeps", json=body, headers=name)
        again = client.post("/v1/sweeps", json=body, headers=name)
        assert (first.status_code, again.status_code) == (202, 200)
        job = first.json()["id"]
        assert again.json()["id"] == job
        other = client.post("/v1/sweeps", json={**body, "top_k": 3}, headers=name)
        assert other.json()["errors"][0]["field"] == "Idempotency-Key"
        assert client.get(f"/v1/verifications/{job}").status_code == 404
        assert client.get("/v1/verifications").json()["verifications"] == []
        page = SweepPage.model_validate(client.get("/v1/sweeps").json())
        assert [each.id for each in page.sweeps] == [job]
        ended(client, f"/v1/sweeps/{job}")
        assert client.get("/v1/sweeps", params={"status": "failed"}).json()["sweeps"] == []
        missing = client.get("/v1/sweeps/none/rows")
        assert (missing.status_code, "no sweep 'none'" in missing.json()["detail"]) == (404, True)


@pytest.mark.parametrize(
    ("values", "field", "limit"),
    [
        ({"problems": []}, "problems", "1 to 64"),
        ({"problems": [{**SMALL, "m": 1 + i} for i in range(65)]}, "problems", "1 to 64"),
        ({"problems": [SMALL, {**SMALL, "m": 0}]}, "problems.1.m", "between 1"),
        ({"problems": [SMALL, SMALL]}, "problems.1", "problems.0 again"),
        ({"configs": {}}, "configs", "a list of 0 to 256"),
        ({"configs": [CONFIG, CONFIG]}, "configs.1", "configs.0 again"),
        ({"configs": [{**CONFIG, "tile_m": 96}]}, "configs.0.tile_m", "for problems.0"),
        ({"top_k": 257}, "top_k", "between 0 and 256"),
        ({"covering": 1001}, "covering", "between 0 and 1000"),
        ({"top_k": 0}, "top_k", "at least 1"),
        ({"seed": -1}, "seed", "between 0"),
        ({"cache": "hot"}, "cache", "cold or warm"),
        ({"m": 1}, "m", "no field"),
        ({"problems": [{"m": 2**20, "n": 2**20, "k": 64}]}, "problems.0.m", "memory"),
        (
            {"problems": [{**SMALL, "m": 1 + i} for i in range(3)], "covering": 1000},
            "problems",
            "at most 2000 rows",
        ),
    ],
)
def test_a_value_beyond_its_limits_is_named(
    sweeper: TestClient, values: dict[str, Any], field: str, limit: str
) -> None:
    response = sweeper.post("/v1/sweeps", json={"problems": [SMALL]} | values)
    assert response.status_code == 422, response.text
    error = response.json()["errors"][0]
    assert error["field"] == field
    assert limit in error["message"]


@pytest.fixture(scope="module")
def sweeper() -> Any:
    with service(gpu(), sweep=measuring()) as client:
        yield client


def test_without_a_gpu_a_sweep_gets_503_and_with_another_422() -> None:
    body = {"problems": [SMALL]}
    with service(None) as client:
        response = client.post("/v1/sweeps", json=body)
        assert response.status_code == 503
        assert response.json()["type"] == "urn:warpwright:problem:gpu-absent"
    with service(gpu("NVIDIA L40S")) as other:
        refused = other.post("/v1/sweeps", json=body)
        assert refused.status_code == 422
        assert "h200" in refused.json()["detail"]


# The runner


def job_of(request: Mapping[str, Any]) -> Job:
    blank: dict[str, Any] = dict.fromkeys(Job.__dataclass_fields__)
    return Job(**blank | {"kind": "sweep", "request": request})


SWEEP = ProblemSweep((Problem(512, 512, 512),), top_k=3)


def comes_to(monkeypatch: pytest.MonkeyPatch, found: SweepResult | Exception) -> list[Any]:
    asked: list[Any] = []

    def sweep_problems(sweep: ProblemSweep, gpu: HostGpu, device: str, *_: Any) -> SweepResult:
        asked.append((sweep, device))
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(app.sweep, "require_gpu", lambda *_: (gpu(), "h200"))
    monkeypatch.setattr(app.sweep, "sweep_problems", sweep_problems)
    return asked


def test_what_a_job_keeps_is_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = comes_to(monkeypatch, SweepResult(0, RECORD))
    kept = json.loads(json.dumps(request_of(SWEEP)))
    assert run_sweep(job_of(kept), turn()) == Outcome("passed", None, RECORD)
    assert asked == [(SWEEP, "h200")]


def test_a_sweep_with_rows_that_failed_has_failed_and_says_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    comes_to(monkeypatch, SweepResult(2, RECORD | {"failed": 2}))
    outcome = run_sweep(job_of(request_of(SWEEP)), turn())
    assert (outcome.status, outcome.reason) == ("failed", "rows_failed")
    assert outcome.result["details"].startswith("2 of 3 rows failed")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (GpuLost("the GPU process is lost"), "worker_lost"),
        (StepFailed("plan: ValueError"), "environment"),
        (GpuAbsent("no GPU any more"), "environment"),
    ],
)
def test_what_breaks_a_sweep_off_is_its_reason(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    comes_to(monkeypatch, error)
    outcome = run_sweep(job_of(request_of(SWEEP)), turn())
    assert (outcome.status, outcome.reason) == ("failed", reason)
    assert outcome.result["details"] == str(error)


@pytest.mark.parametrize(
    "change",
    [{"problems": [{}]}, {"configs": [{"family": 1}]}, {"top_k": -1}, {"problems": "none"}],
)
def test_a_request_of_another_version_is_unreadable(change: dict[str, Any]) -> None:
    outcome = run_sweep(job_of(request_of(SWEEP) | change), turn())
    assert (outcome.status, outcome.reason) == ("failed", "unreadable")
