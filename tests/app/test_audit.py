"""A job knows the request that handed it in; the log has a line for each kernel, and the audit
names them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from app.audit import Audit
from app.logs import add_context
from app.schemas.launches import Launches
from app.store.job import Job
from bench.service_process import until
from tests.app.conftest import service
from tests.app.faults import planted_work
from tests.app.faults.planted import GPU, run_planted
from tests.app.faults.planted_work import HANGS, KERNEL
from tests.app.faults.running import body
from tests.app.test_verifications import ended


@pytest.fixture(autouse=True)
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(planted_work.JOURNAL, str(tmp_path / "journal"))
    monkeypatch.setenv("WARPWRIGHT_CACHE", str(tmp_path / "cache"))


def lines(caplog: pytest.LogCaptureFixture, word: str) -> list[dict[str, Any]]:
    """What the audit's lines of this message carry."""
    names = ("job_id", "attempt", "key_id", "gpu", "kernel_id", "kernels", "status", "request_id")
    return [
        {name: getattr(record, name, None) for name in names}
        for record in caplog.records
        if (record.name, record.getMessage()) == ("app.launches", word)
    ]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("INFO")
    caplog.handler.addFilter(add_context)
    return caplog


def test_a_jobs_lines_and_its_audit_name_the_request_and_its_kernels(
    said: pytest.LogCaptureFixture,
) -> None:
    with service(GPU, run_planted, initialise=dict) as client:
        sent = client.post("/v1/verifications", json=body(1), headers={"X-Request-ID": "mine-1"})
        job = sent.json()
        assert job["request_id"] == sent.headers["x-request-id"] == "mine-1"
        assert ended(client, sent.headers["location"])["status"] == "passed"
        until(lambda: bool(lines(said, "launch")))
        audit = Launches.model_validate(client.get("/v1/launches").json()).launches[0]
        assert (audit.job_id, audit.request_id, audit.kernels) == (job["id"], "mine-1", [KERNEL])
    (kernel,) = lines(said, "kernel")
    (launch,) = lines(said, "launch")
    shared = {
        "job_id": job["id"],
        "attempt": 1,
        "key_id": None,
        "gpu": GPU.uuid,
        "request_id": "mine-1",
    }
    assert kernel == {**shared, "kernel_id": KERNEL, "kernels": None, "status": None}
    assert launch == {**shared, "kernel_id": None, "kernels": 1, "status": "passed"}


def test_a_kernel_that_hangs_has_its_line_before_anything_ends(
    said: pytest.LogCaptureFixture,
) -> None:
    with service(GPU, run_planted, initialise=dict) as client:
        location = client.post("/v1/verifications", json=body(0, m=HANGS)).headers["location"]
        until(lambda: bool(lines(said, "kernel")))
        assert lines(said, "launch") == []
        client.delete(location)
        assert ended(client, location)["status"] == "cancelled"
        (audit,) = client.get("/v1/launches").json()["launches"]
        assert (audit["outcome"], audit["kernels"]) == ("cancelled", [KERNEL])
    assert lines(said, "launch")[0]["request_id"]


def test_a_request_without_an_id_of_its_own_gets_one_that_its_job_keeps() -> None:
    with service(GPU, run_planted, initialise=dict) as client:
        first, second = (client.post("/v1/verifications", json=body(1)) for _ in range(2))
        ids = [answer.json()["request_id"] for answer in (first, second)]
        assert ids == [answer.headers["x-request-id"] for answer in (first, second)]
        assert len(set(ids)) == 2
        assert client.get(first.headers["location"]).json()["request_id"] == ids[0]


def test_each_kernel_has_one_line_of_a_run(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    blank: dict[str, Any] = dict.fromkeys(Job.__dataclass_fields__)
    audit = Audit(Job(**blank | {"id": "1" * 32, "attempts": 2, "key_id": "", "gpu": "GPU-0"}))
    for kernel_id in ("a", "b", "a"):
        audit.launching(kernel_id)
    assert audit.kernels == ["a", "b"]
    assert [line["kernel_id"] for line in lines(caplog, "kernel")] == ["a", "b"]
