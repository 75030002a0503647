"""POST /v1/verifications and GET /v1/verifications/{id}, the GPU itself left out."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from fastapi.testclient import TestClient

from app.schemas.service import VerificationJob, VerificationPage
from app.store.job import Job, Outcome
from app.turn import Turn
from app.verification import request_of, run_verification
from kernels.host import HostGpu
from kernels.overlay import WAIT_PHASES
from kernels.protocol import VERIFY
from kernels.verify import VerificationRequest as Verification
from solver.config import Config
from solver.problem import Problem
from tests.app.conftest import service
from tests.app.traces import trace
from tests.app.turns import turn

GIB = 2**30
SMALL = {"m": 512, "n": 512, "k": 512}


def gpu(name: str = "NVIDIA H200", memory_bytes: int = 140 * GIB) -> HostGpu:
    return HostGpu(name, "GPU-0", "580", memory_bytes, (9, 0), 1980, ())


def passing(job: Job, turn: Turn) -> Outcome:
    return Outcome("passed", None, {"median_us": 5.0})


def ended(client: TestClient, location: str) -> dict[str, Any]:
    for _ in range(200):
        body: dict[str, Any] = client.get(location).json()
        if body["status"] not in ("queued", "running"):
            return body
        time.sleep(0.02)
    raise AssertionError(f"{location} did not end")


def test_without_a_gpu_a_verification_gets_503_and_optimising_works(client: TestClient) -> None:
    response = client.post("/v1/verifications", json=SMALL)
    assert response.status_code == 503
    assert response.json()["type"] == "urn:warpwright:problem:gpu-absent"
    assert "GPU" in response.json()["detail"]
    assert client.post("/v1/optimize", json=SMALL).status_code == 200


def test_an_unknown_verification_is_not_found(client: TestClient) -> None:
    response = client.get("/v1/verifications/none")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"


def test_a_verification_of_the_pick_is_queued_run_and_passed() -> None:
    with service(gpu(), passing) as client:
        response = client.post("/v1/verifications", json=SMALL)
        assert response.status_code == 202
        job = VerificationJob.model_validate_json(response.content)
        assert response.headers["location"] == f"/v1/verifications/{job.id}"
        pick = client.post("/v1/optimize", json=SMALL).json()
        assert job.config.model_dump() == pick["config"]
        assert job.predicted_us == pick["predicted"]["time_us"]
        body = ended(client, response.headers["location"])
        VerificationJob.model_validate(body)
        assert body["status"] == "passed"
        assert body["result"] == {"median_us": 5.0}
        assert 'warpwright_verifications_total{reason="",status="passed"} 1.0' in (
            client.get("/metrics").text
        )


def test_a_verification_of_a_given_configuration_runs_that_one() -> None:
    config = {
        "family": "sm90_gemm",
        "tile_m": 64,
        "tile_n": 64,
        "tile_k": 64,
        "stages": 4,
        "math_warpgroups": 1,
    }
    with service(gpu(), passing) as client:
        job = client.post("/v1/verifications", json={**SMALL, "config": config}).json()
        assert config.items() <= job["config"].items()
        illegal = client.post(
            "/v1/verifications", json={**SMALL, "config": {**config, "tile_m": 96}}
        )
        assert illegal.status_code == 422
        assert illegal.json()["errors"][0]["field"].startswith("config.")


def test_a_verification_takes_a_cache_and_others_to_time_it_against() -> None:
    pick = {"family": "sm90_gemm", "tile_m": 64, "tile_n": 64, "tile_k": 64, "stages": 4}
    asked = {**SMALL, "config": pick, "cache": "warm", "against": [{**pick, "stages": 3}]}
    with service(gpu(), passing) as client:
        job = VerificationJob.model_validate(client.post("/v1/verifications", json=asked).json())
        assert (job.cache, [other.stages for other in job.against]) == ("warm", [3])
        plain = client.post("/v1/verifications", json={**SMALL, "config": pick}).json()
        assert "against" not in plain
        illegal = {**asked, "against": [pick, {**pick, "tile_m": 96}]}
        refused = client.post("/v1/verifications", json=illegal)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["field"] == "against.1.tile_m"
        many = client.post("/v1/verifications", json={**asked, "against": [pick] * 17})
        assert "against: must be a list of 0 to 16 JSON objects" in many.json()["detail"]
        wrong = client.post("/v1/verifications", json={**asked, "cache": "hot"})
        assert wrong.json()["errors"][0]["field"] == "cache"


def test_a_job_runs_with_the_cache_and_the_others_that_it_was_handed_in_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pick = Config("sm90_gemm", 64, 64, 64, 4)
    request = Verification(
        Problem(**SMALL),
        pick,
        5.0,
        protocol=VERIFY.with_cache("warm"),
        against=(replace(pick, stages=3),),
    )
    ran: list[Verification] = []

    def verify(given: Verification, *_: Any) -> Any:
        ran.append(given)
        return SimpleNamespace(status="passed", reason=None, to_dict=dict)

    monkeypatch.setattr("app.verification.verify", verify)
    for asked in (request, replace(request, protocol=VERIFY, against=())):
        job = SimpleNamespace(request=request_of(asked))
        assert run_verification(job, turn()).status == "passed"  # type: ignore[arg-type]
        assert ran.pop() == asked
    broken = SimpleNamespace(request={**request_of(request), "cache": "hot"})
    assert run_verification(broken, turn()).reason == "unreadable"  # type: ignore[arg-type]


def test_a_failed_verification_has_its_reason() -> None:
    def failing(job: Job, turn: Turn) -> Outcome:
        return Outcome("failed", "timeout", {"details": "killed at its deadline"})

    with service(gpu(), failing) as client:
        location = client.post("/v1/verifications", json=SMALL).headers["location"]
        body = ended(client, location)
        assert (body["status"], body["reason"]) == ("failed", "timeout")


def test_a_defect_in_one_verification_leaves_the_next_to_run() -> None:
    answers = [RuntimeError("boom"), Outcome("passed", None, {})]

    def once(job: Job, turn: Turn) -> Outcome:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with service(gpu(), once) as client:
        first = client.post("/v1/verifications", json=SMALL).headers["location"]
        second = client.post("/v1/verifications", json=SMALL).headers["location"]
        assert ended(client, first)["reason"] == "internal_error"
        assert ended(client, second)["status"] == "passed"


def test_a_gpu_without_a_family_gets_422_that_names_those_with_one() -> None:
    with service(gpu("NVIDIA Tesla K80"), passing) as client:
        response = client.post("/v1/verifications", json=SMALL)
        assert response.status_code == 422
        assert response.json()["type"] == "urn:warpwright:problem:no-kernel-family"
        assert "h200" in response.json()["detail"]
        assert client.get("/readyz").json()["gpu"] == "NVIDIA Tesla K80"
        assert client.post("/v1/optimize", json=SMALL).json()["device"]["name"] == "h200"


def test_a_problem_beyond_the_gpus_memory_gets_422() -> None:
    with service(gpu(memory_bytes=GIB), passing) as client:
        response = client.post("/v1/verifications", json={"m": 65536, "n": 65536, "k": 64})
        assert response.status_code == 422
        assert str(GIB) in response.json()["detail"]


def test_gaps_between_lines_and_copies_count_against_the_gpus_memory() -> None:
    size = {"m": 8192, "n": 8192, "k": 8192}  # 402,653,184 bytes packed
    with service(gpu(memory_bytes=GIB // 2), passing) as client:
        for change in ({"ldc": 2**16}, {"a_offset": 1, "b_offset": 1}):
            response = client.post("/v1/verifications", json={**size, **change})
            assert response.status_code == 422
            assert str(GIB // 2) in response.json()["detail"]
        assert client.post("/v1/verifications", json={**size, "c_offset": 1}).status_code == 202


def test_a_verification_has_the_whole_problem() -> None:
    laid_out = {**SMALL, "layout": "nt", "out_dtype": "fp32", "ldb": 520, "a_offset": 4}
    with service(gpu(), passing) as client:
        job = client.post("/v1/verifications", json=laid_out).json()
        assert laid_out.items() <= job["problem"].items()
        assert job["problem"]["ldc"] == 512
        VerificationJob.model_validate(job)


def test_more_verifications_than_may_wait_get_429() -> None:
    gate = threading.Event()

    def slow(job: Job, turn: Turn) -> Outcome:
        gate.wait(30)
        return Outcome("passed", None, {})

    with service(gpu(), slow, verifications_waiting=1) as client:
        first = client.post("/v1/verifications", json=SMALL)
        while client.get(first.headers["location"]).json()["status"] == "queued":
            time.sleep(0.01)
        assert client.post("/v1/verifications", json=SMALL).status_code == 202
        refused = client.post("/v1/verifications", json=SMALL)
        assert refused.status_code == 429
        assert refused.json()["type"] == "urn:warpwright:problem:queue-full"
        assert int(refused.headers["retry-after"]) >= 1
        gate.set()


@contextmanager
def one_running(**settings: Any) -> Iterator[tuple[TestClient, str, threading.Event]]:
    """A service whose first job runs until the event is set or its process is halted."""
    gate = threading.Event()

    def slow(job: Job, turn: Turn) -> Outcome:
        while not gate.wait(0.02):
            if turn.worker._halted.is_set():
                return Outcome("failed", "worker_lost", {})
        return Outcome("passed", None, {})

    with service(gpu(), slow, **settings) as client:
        location = client.post("/v1/verifications", json=SMALL).headers["location"]
        while client.get(location).json()["status"] == "queued":
            time.sleep(0.01)
        yield client, location, gate
        gate.set()


def test_the_same_request_under_the_same_name_gets_the_same_job() -> None:
    with one_running() as (client, _, _):
        name = {"Idempotency-Key": "mine"}
        first = client.post("/v1/verifications", json=SMALL, headers=name)
        again = client.post("/v1/verifications", json={"k": 512, **SMALL}, headers=name)
        assert (first.status_code, again.status_code) == (202, 200)
        assert first.json() == again.json()
        assert first.headers["location"] == again.headers["location"]
        other = client.post("/v1/verifications", json={**SMALL, "m": 64}, headers=name)
        assert other.status_code == 422
        assert other.json()["errors"][0]["field"] == "Idempotency-Key"
        assert len(client.get("/v1/verifications").json()["verifications"]) == 2


@pytest.mark.parametrize("name", ["", " ", "a b", "x" * 256, "é"])
def test_a_name_that_is_none_is_refused(client: TestClient, name: str) -> None:
    headers = [(b"Idempotency-Key", name.encode("latin-1"))]
    refused = client.post("/v1/verifications", json=SMALL, headers=headers)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "Idempotency-Key"
    assert "1 to 255 visible ASCII" in refused.json()["detail"]


def test_two_names_for_one_request_are_refused(client: TestClient) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    refused = client.post("/v1/verifications", json=SMALL, headers=headers)
    assert refused.status_code == 422
    assert "once" in refused.json()["detail"]


def test_a_job_that_waits_is_cancelled_at_once_and_one_that_runs_when_it_is_ended() -> None:
    with one_running() as (client, running, _):
        waiting = client.post("/v1/verifications", json=SMALL).headers["location"]
        cancelled = client.delete(waiting)
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
        assert cancelled.json()["reason"] == "requested"
        ending = client.delete(running)
        assert ending.status_code == 202
        assert ending.json()["cancel_requested"] is True
        assert ended(client, running)["status"] == "cancelled"
        refused = client.delete(running)
        assert refused.status_code == 409
        assert refused.json()["type"] == "urn:warpwright:problem:already-ended"
        assert client.delete("/v1/verifications/none").status_code == 404


def test_a_job_of_higher_priority_runs_first() -> None:
    with one_running() as (client, _, gate):
        posted = {
            priority: client.post("/v1/verifications", json={**SMALL, "priority": priority})
            for priority in ("low", "high", "normal")
        }
        gate.set()
        jobs = {name: ended(client, each.headers["location"]) for name, each in posted.items()}
        begun = [jobs[name]["started_at"] for name in ("high", "normal", "low")]
        assert begun == sorted(begun)
        assert [job["priority"] for job in jobs.values()] == list(jobs)
        refused = client.post("/v1/verifications", json={**SMALL, "priority": "urgent"})
        assert refused.status_code == 422
        assert "one of low, normal, high" in refused.json()["detail"]


def test_pages_lead_through_all_jobs() -> None:
    with one_running() as (client, running, gate):
        posted = [client.post("/v1/verifications", json=SMALL).json()["id"] for _ in range(4)]
        first = VerificationPage.model_validate_json(
            client.get("/v1/verifications?limit=3").content
        )
        rest = client.get(f"/v1/verifications?limit=3&after={first.next}").json()
        ids = [job.id for job in first.verifications]
        ids += [job["id"] for job in rest["verifications"]]
        assert ids == [*reversed(posted), running.rpartition("/")[2]]
        assert rest["next"] is None
        only = client.get("/v1/verifications?status=running").json()["verifications"]
        assert [job["id"] for job in only] == [ids[-1]]
        gate.set()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("limit=0", "limit: must be an integer between 1 and 100"),
        ("limit=101", "limit: must be an integer between 1 and 100"),
        ("limit=many", "limit: must be an integer between 1 and 100"),
        ("after=0", "after: must be an integer between 1 and"),
        ("after=9223372036854775808", "after: must be an integer between 1 and"),
        ("status=done", "status: must be one of queued, running"),
        ("page=2", "page: is no field of this request; there are status, limit, after"),
    ],
)
def test_a_page_that_is_none_is_refused(client: TestClient, query: str, words: str) -> None:
    refused = client.get(f"/v1/verifications?{query}")
    assert refused.status_code == 422
    assert words in refused.json()["detail"]


def test_events_of_an_ended_job_are_all_there_and_the_stream_ends() -> None:
    with service(gpu(), passing) as client:
        location = client.post("/v1/verifications", json=SMALL).headers["location"]
        ended(client, location)
        stream = client.get(f"{location}/events")
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert re.findall(r"^id: (\d+)$", stream.text, re.MULTILINE) == ["1", "2", "3"]
        assert '"status": "passed"' in stream.text
        rest = client.get(f"{location}/events", headers={"Last-Event-ID": "2"})
        assert re.findall(r"^id: (\d+)$", rest.text, re.MULTILINE) == ["3"]


def test_a_service_that_stops_takes_no_job_and_is_not_ready() -> None:
    with service(gpu(), passing) as client:
        client.app.state.services.gpu.drain()  # type: ignore[attr-defined]
        refused = client.post("/v1/verifications", json=SMALL)
        assert refused.status_code == 503
        assert "stopping" in refused.json()["detail"]
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["gpu_worker"]) == (503, "stopped")


# ---- traces


def tracing(job: Job, turn: Turn) -> Outcome:
    return Outcome("passed", None, {"median_us": 5.0, "trace": trace()})


def test_a_trace_is_asked_for_kept_and_drawn() -> None:
    with service(gpu(), tracing) as client:
        response = client.post("/v1/verifications", json={**SMALL, "trace": True})
        assert response.status_code == 202
        assert VerificationJob.model_validate_json(response.content).trace is True
        location = response.headers["location"]
        body = ended(client, location)
        assert body["result"]["trace"]["wait"]["by_phase"].keys() == set(WAIT_PHASES)
        picture = client.get(f"{location}/trace.svg")
        assert picture.status_code == 200
        assert picture.headers["content-type"].startswith("image/svg+xml")
        assert ElementTree.fromstring(picture.content).tag.endswith("svg")
        assert "512 x 512 x 512" in picture.text


def test_a_verification_without_a_trace_has_no_picture() -> None:
    with service(gpu(), passing) as client:
        response = client.post("/v1/verifications", json=SMALL)
        assert "trace" not in response.json()
        location = response.headers["location"]
        assert ended(client, location)["status"] == "passed"
        picture = client.get(f"{location}/trace.svg")
        assert picture.status_code == 404
        assert picture.headers["content-type"] == "application/problem+json"
        assert picture.json()["detail"].endswith("is passed and has no trace")
        assert client.get("/v1/verifications/none/trace.svg").status_code == 404
        for wrong in ("yes", 1, None):
            refused = client.post("/v1/verifications", json={**SMALL, "trace": wrong})
            assert refused.status_code == 422
            assert refused.json()["errors"][0]["field"] == "trace"


def test_a_traced_job_is_run_with_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Verification] = []

    def verify(given: Verification, *_: Any) -> Any:
        ran.append(given)
        return SimpleNamespace(status="passed", reason=None, to_dict=dict)

    monkeypatch.setattr("app.verification.verify", verify)
    asked = Verification(Problem(**SMALL), Config("sm90_gemm", 64, 64, 64, 4), 5.0, trace=True)
    for request in (asked, replace(asked, trace=False)):
        run_verification(SimpleNamespace(request=request_of(request)), turn())  # type: ignore[arg-type]
    assert ran == [asked, replace(asked, trace=False)]
