"""Verifications of norm_activation over HTTP and on the command line, the GPU itself left out."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient

import solver.engine
from app import norm_verification
from app.cli.main import main
from app.norm_verification import verification
from app.schemas.service import NormVerificationJob, VerificationJob, VerificationPage
from app.store.job import Outcome
from app.turn import Turn
from app.verification import request_of, requested, run_verification
from kernels.norm.verdict import Entrant
from kernels.norm.verify import NormVerificationRequest
from solver.errors import IllegalConfig
from solver.families.norm_activation import NormConfig, NormProblem
from tests.app.conftest import service
from tests.app.norm_races import GIB, H200, outcome, runner
from tests.app.norm_tools import PROBLEM, warm, warm_starved
from tests.app.races import runner as product_runner
from tests.app.test_bad_input import problem
from tests.app.test_verifications import ended
from tests.app.turns import turn
from tests.norm_profiles import invented

ROWS = {name: value for name, value in PROBLEM.items() if name != "op"}
STARVED = {"memory_latency_us": 6.0, "block_start_us": 30.0, "refill_cycles": 1e5}
STARVED_PROBLEM = {**PROBLEM, "rows": 65536, "width": 12288, "dtype": "fp16"}


def as_predicted(entrant: Entrant) -> float:
    return 1.0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> NormVerificationRequest:
    """The verification of a pick, by invented constants."""
    monkeypatch.setattr(solver.engine, "load_profile", invented)
    monkeypatch.setattr(norm_verification, "load_profile", invented)
    return verification(NormProblem(**ROWS), None, "h200", "cold")  # type: ignore[arg-type]


def test_the_pick_is_held_against_the_best_of_every_kind_each_once(
    asked: NormVerificationRequest,
) -> None:
    first, *others = asked.entrants
    assert first.roles == ("verified", first.config.kind)
    kinds = {first.config.kind, *(role for each in others for role in each.roles)}
    assert kinds == {"plain", "strong", "ring", "specialised"}
    assert len({each.config for each in asked.entrants}) == len(asked.entrants)
    assert all((each.predicted_us or 0) >= (first.predicted_us or 0) for each in others)
    assert asked.picked


def test_a_configuration_of_ones_own_is_priced_and_held_against_all_four(
    asked: NormVerificationRequest,
) -> None:
    own = NormConfig("strong", 6, rounds=0)
    given = verification(asked.problem, own, "h200", "warm")
    assert [each.roles for each in given.entrants] == [
        ("verified",),
        ("plain",),
        ("strong",),
        ("ring",),
        ("specialised",),
    ]
    assert given.entrants[0].config == own
    assert (given.entrants[0].predicted_us or 0) > 0
    assert (given.picked, given.protocol.cache) == (False, "warm")
    with pytest.raises(IllegalConfig):
        verification(asked.problem, replace(own, consumers=99), "h200", "cold")


def test_a_job_keeps_its_request_and_reads_it_again(asked: NormVerificationRequest) -> None:
    kept = json.loads(json.dumps(request_of(asked)))
    assert requested(kept) == asked
    warm_one = replace(asked, protocol=asked.protocol.with_cache("warm"), picked=False)
    assert requested(request_of(warm_one)) == warm_one


@pytest.mark.parametrize(
    "change",
    [
        {"op": "conv"},
        {"others": None},
        {"predicted_us": "1"},
        {"config": {"kind": "strong"}},
        {"cache": "hot"},
        {"problem": {"rows": 3}},
    ],
)
def test_a_request_that_can_not_be_read_is_a_reason(
    asked: NormVerificationRequest, change: dict[str, Any]
) -> None:
    job = SimpleNamespace(request={**request_of(asked), **change})
    assert run_verification(job, turn()).reason == "unreadable"  # type: ignore[arg-type]


def test_a_pick_that_is_no_slower_than_the_strong_kernel_passes() -> None:
    with service(H200, runner(as_predicted), initialise=warm) as client:
        submitted = client.post("/v1/verifications", json=PROBLEM)
        assert submitted.status_code == 202, submitted.text
        job = NormVerificationJob.model_validate_json(submitted.content)
        answer = client.post("/v1/optimize", json=PROBLEM).json()
        assert job.config.model_dump() == answer["config"]
        assert job.predicted_us == answer["predicted"]["time_us"]
        body = ended(client, submitted.headers["location"])
        NormVerificationJob.model_validate(body)
        assert (body["status"], body["reason"]) == ("passed", None)
        result = body["result"]
        assert result["verdict"]["passed"] is True
        assert result["verdict"]["specialised_to_strong"]["ratio"] == pytest.approx(
            answer["specialised_time_us"] / answer["strong_time_us"], rel=0.01
        )
        assert "measurement" not in result  # nothing is remembered of this family
        assert client.post("/v1/optimize", json=PROBLEM).json()["source"] == "model"
        assert client.get("/v1/drift").json()["problems"] == 0
        assert 'verifications_total{reason="",status="passed"} 1.0' in client.get("/metrics").text
        launches = client.get("/v1/launches").json()["launches"]
        assert launches[0]["request"]["op"] == "norm_activation"


def test_a_specialised_pick_that_is_slower_than_the_strong_kernel_fails_with_that_reason() -> None:
    def slower(entrant: Entrant) -> float:
        return 2.0 if "specialised" in entrant.roles else 1.0

    with service(H200, runner(slower), initialise=warm_starved) as client:
        submitted = client.post("/v1/verifications", json=STARVED_PROBLEM)
        assert "specialised" in submitted.json()["roles"]
        body = ended(client, submitted.headers["location"])
        assert (body["status"], body["reason"]) == ("failed", "slower_than_strong")
        assert "it is slower than the strong kernel" in body["result"]["details"]
        assert body["result"]["verdict"]["to_strong"]["low"] > 1.02
        assert 'reason="slower_than_strong"' in client.get("/metrics").text


def test_jobs_of_both_ops_stand_on_one_page_and_a_repeated_one_is_one_job() -> None:
    def both(job: Any, turn: Turn) -> Outcome:
        of_rows = job.request.get("op") == "norm_activation"
        run = runner(as_predicted) if of_rows else product_runner(lambda _: [1.0])
        return run(job, turn)

    with service(H200, both, initialise=warm) as client:
        key = {"idempotency-key": "a"}
        first = client.post("/v1/verifications", json=PROBLEM, headers=key)
        again = client.post("/v1/verifications", json=PROBLEM, headers=key)
        assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
        other = client.post("/v1/verifications", json={**PROBLEM, "rows": 5}, headers=key)
        assert other.status_code == 422
        product = {"m": 512, "n": 512, "k": 512}
        named = {"idempotency-key": "b"}
        one = client.post("/v1/verifications", json=product, headers=named)
        same = client.post("/v1/verifications", json={**product, "op": "gemm"}, headers=named)
        assert same.json()["id"] == one.json()["id"]
        VerificationJob.model_validate(one.json())
        for job in (first, one):
            assert ended(client, job.headers["location"])["status"] == "passed"
        page = client.get("/v1/verifications").json()
        VerificationPage.model_validate(page)
        assert [job.get("op") for job in page["verifications"]] == [None, "norm_activation"]
        picture = client.get(f"{first.headers['location']}/trace.svg")
        assert picture.status_code == 404


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"rows": 2**31 - 1, "width": 65536}, "rows", "at most"),
        ({"rows": 2**28, "width": 1024}, "rows", "x, y, scale and shift must fit the GPU's memory"),
        ({"rows": 0}, "rows", "must be between 1 and 2147483647, got 0"),
        ({"config": {"kind": "strong", "consumers": 99}}, "config.consumers", ""),
        ({"config": {"kind": "odd", "consumers": 4}}, "config.kind", ""),
        ({"config": {"kind": "strong"}}, "config.consumers", "is required"),
        ({"top_k": 2}, "top_k", "is no field of this request"),
        ({"trace": True}, "trace", "is no field of this request"),
        ({"cache": "hot"}, "cache", "cold, warm"),
    ],
)
def test_what_can_not_be_verified_is_refused_with_its_field(
    refusing: TestClient, change: dict[str, Any], field: str, words: str
) -> None:
    (error,) = problem(refusing.post("/v1/verifications", json={**PROBLEM, **change}), 422)[
        "errors"
    ]
    assert error["field"] == field
    assert words in error["message"]


@pytest.fixture(scope="module")
def refusing() -> Any:
    with service(H200, runner(as_predicted), initialise=warm) as client:
        yield client


def test_a_gpu_that_the_family_does_not_run_on_gets_422_that_names_those_it_does() -> None:
    other = replace(H200, name="Tesla T4", memory_bytes=16 * GIB)
    with service(other, runner(as_predicted), initialise=warm) as client:
        refused = client.post("/v1/verifications", json=PROBLEM)
        assert refused.status_code == 422
        assert refused.json()["type"].endswith("no-kernel-family")
        assert "norm_activation does not run on Tesla T4; it runs on" in refused.json()["detail"]


@pytest.fixture
def on_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("app.host", "kernels.verify"):
        monkeypatch.setattr(f"{module}.host_gpu", lambda: H200)


WORDS = [
    *("--op", "norm_activation", "--rows", "65536", "--width", "1024"),
    *("--activation", "poly", "--degree", "32"),
]


@pytest.mark.usefixtures("on_h200")
@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1.5, 1)])
def test_the_command_shows_every_kernel_and_exits_by_the_verdict(
    asked: NormVerificationRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    factor: float,
    code: int,
) -> None:
    def verify(request: NormVerificationRequest, **_: Any) -> Outcome:
        return outcome(request, lambda entrant: factor if "verified" in entrant.roles else 1.0)

    monkeypatch.setattr("app.cli.gpu.verify_here", verify)
    # Against a strong kernel of its own the pick is only where it is not that kernel itself.
    own = ["--config", '{"kind": "strong", "consumers": 6, "rounds": 0}']
    shown = main(["verify", *WORDS, *(own if code else [])])
    text = capsys.readouterr().out
    assert shown == code
    for name in ("plain", "ring", "specialised", "p99/median", "Verified: ", "Measured: "):
        assert name in text
    assert main(["verify", *WORDS, *(own if code else []), "--json"]) == code
    record = json.loads(capsys.readouterr().out)
    assert record["reason"] == ("slower_than_strong" if code else None)
    assert record["op"] == "norm_activation"


@pytest.mark.usefixtures("asked")
def test_the_command_optimizes_and_shows_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", *WORDS, "--device", "h200", "--top-k", "2"]) == 0
    text = capsys.readouterr().out
    for words in ("best plain", "best strong", "best ring", "best specialised", "does not pay"):
        assert words in text
    assert "layer norm and poly of degree 32 of 65536 rows of 1024 in fp32" in text


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["optimize", *WORDS, "--layout", "tt"], "layout: is no field of this request"),
        (["optimize", *WORDS, "4096"], "m: is no field of this request"),
        (["optimize", "--op", "conv"], "op: must be one of gemm, norm_activation, got str 'conv'"),
        (["optimize", "--op", "norm_activation", "--rows", "4"], "width: is required"),
        (["optimize", "64", "64", "64", "--rows", "4"], "rows: is no field of this request"),
        (["optimize", *WORDS, "--constraints", "{}"], "constraints: is no field of this request"),
        (["optimize", *WORDS, "--certificate", "x"], "certificate: is of sm90_gemm"),
        (["verify", *WORDS, "--trace"], "trace: is no field of this request"),
        (["verify", *WORDS, "--config", "[]"], "config: must be a JSON object"),
        (["verify", *WORDS, "--config", '{"kind": 1}'], "config.kind: must be one of plain"),
    ],
)
def test_what_does_not_go_with_the_op_is_said(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(words) == 2
    assert said in " ".join(capsys.readouterr().err.split())
