"""POST /v1/verifications and GET /v1/verifications/{id}, the GPU itself left out."""

from __future__ import annotations

import threading
import time
from typing import Any

from fastapi.testclient import TestClient

from app.gpu_queue import Turn
from app.schemas.service import VerificationJob
from app.store.job import Job, Outcome
from kernels.host import HostGpu
from tests.app.conftest import service

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
