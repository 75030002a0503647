"""Learning the winner: what a verification found is answered, and nothing else changes."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from app.errors import StoreUnavailable
from app.schemas.answers import OptimizeAnswer
from app.schemas.service import DriftShape, VerificationJob
from app.store.database import Database
from app.store.job import Job, Outcome
from app.store.measurements import MeasurementStore
from app.store.tables import measurements
from app.turn import Turn
from app.verification import requested
from kernels.drift import ENOUGH
from kernels.errors import CompilerAbsent
from kernels.host import HostGpu
from kernels.process import Outcome as Ended
from kernels.process import OutcomeKind
from kernels.verify import VerificationRequest, contest_record
from tests.app.conftest import service, sqlite_url
from tests.app.races import H200, last_is_fastest, outcome, runner

SMALL = {"m": 512, "n": 512, "k": 512}
CONFIG = {"family": "sm90_gemm", "tile_m": 64, "tile_n": 64, "tile_k": 64, "stages": 4}
ADDRESS = f"/v1/optimize?{urlencode(SMALL)}"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path)


@pytest.fixture
def learning(url: str) -> Iterator[TestClient]:
    """A service beside an H200 on which the last candidate of every race is the fastest."""
    with service(H200, runner(last_is_fastest), database=url) as client:
        yield client


@pytest.fixture(scope="module")
def taught() -> Iterator[TestClient]:
    """The same, where two were raced for SMALL."""
    with service(H200, runner(last_is_fastest)) as client:
        verified(client, top_k=2)
        yield client


def verified(client: TestClient, **members: Any) -> dict[str, Any]:
    """A verification of a problem, once it has passed."""
    response = client.post("/v1/verifications", json=SMALL | members)
    assert response.status_code == 202, response.json()
    for _ in range(500):
        body: dict[str, Any] = client.get(response.headers["location"]).json()
        if body["finished_at"] is not None:
            assert body["status"] == "passed"
            return VerificationJob.model_validate(body).model_dump()
        time.sleep(0.01)
    raise AssertionError("the verification did not end")


def optimized(client: TestClient, **members: Any) -> dict[str, Any]:
    response = client.post("/v1/optimize", json=SMALL | members)
    assert response.status_code == 200, response.json()
    body: dict[str, Any] = response.json()
    OptimizeAnswer.model_validate(body)
    return body


def test_a_measured_winner_is_answered_with_the_models_pick_and_proof_beside_it(
    learning: TestClient,
) -> None:
    before = optimized(learning)
    assert before["source"] == "model"
    assert {"measured", "model_pick"}.isdisjoint(before)
    job = verified(learning, top_k=5)
    assert (len(job["alternatives"]), job["picked"]) == (4, True)
    contest = job["result"]["contest"]
    assert [each["config"] for each in contest["candidates"]] == [
        job["config"],
        *(each["config"] for each in job["alternatives"]),
    ]
    after = optimized(learning)
    assert after["source"] == "measured"
    assert after["config"] == job["alternatives"][-1]["config"] != before["config"]
    assert after["predicted"]["time_us"] == job["alternatives"][-1]["predicted_us"]
    assert after["kernel"]["id"] is not None
    assert after["model_pick"] == {n: before[n] for n in ("config", "kernel", "predicted")}
    assert after["proof"] == before["proof"]
    assert after["proof"]["status"] == "optimal"
    facts = after["measured"]
    assert facts["verification_id"] == job["id"]
    assert facts["ratio"] == pytest.approx(0.8)
    assert facts["time_us"] == pytest.approx(0.8 * before["predicted"]["time_us"])
    assert facts["measurements_revision"] == job["result"]["measurement"]
    own = {"config", "kernel", "predicted", "source", "measured", "model_pick"}
    assert {n: v for n, v in after.items() if n not in own} == {
        n: v for n, v in before.items() if n not in own
    }


def test_the_kernel_of_a_measured_answer_can_be_taken_home(learning: TestClient) -> None:
    verified(learning, top_k=3)
    answer = optimized(learning)
    members = SMALL | {"config": json.dumps(answer["config"])}
    export = learning.get(f"/v1/kernels/{answer['kernel']['id']}?{urlencode(members)}")
    assert export.status_code == 200


def test_every_way_to_ask_gives_the_same_bytes_and_model_only_those_of_before(
    learning: TestClient,
) -> None:
    before = learning.get(ADDRESS)
    assert learning.get(ADDRESS).headers["server-timing"].startswith("cache;desc=hit")
    verified(learning, top_k=5)
    after = learning.get(ADDRESS)
    assert after.json()["source"] == "measured"
    assert after.headers["etag"] != before.headers["etag"]
    tag = {"If-None-Match": before.headers["etag"]}
    assert learning.get(ADDRESS, headers=tag).status_code == 200
    tag = {"If-None-Match": after.headers["etag"]}
    assert learning.get(ADDRESS, headers=tag).status_code == 304
    again = learning.get(ADDRESS)
    assert again.headers["server-timing"].startswith("cache;desc=hit")
    assert learning.post("/v1/optimize", json=SMALL).content == again.content == after.content
    batch = learning.post(
        "/v1/optimize/batch", json={"problems": [SMALL, SMALL | {"model_only": True}]}
    )
    lines = {line["index"]: line["answer"] for line in map(json.loads, batch.text.splitlines())}
    assert lines == {0: after.json(), 1: before.json()}
    by_model = learning.get(f"{ADDRESS}&model_only=true")
    assert by_model.content == before.content
    assert learning.get(f"{ADDRESS}&model_only=false").content == after.content


@pytest.mark.parametrize(
    ("members", "source"),
    [
        ({"top_k": 3}, "measured"),
        ({"proof": "none"}, "measured"),
        ({"device": "h200"}, "measured"),
        ({"time_limit_ms": 60_000}, "measured"),
        ({"constraints": {"config": {"stages": {"min": 2}}}}, "measured"),
        ({"constraints": {"sms": {"max": 132}}}, "model"),
        ({"model_only": True}, "model"),
        ({"device": "h100_sxm"}, "model"),
        ({"cache": "warm"}, "model"),
        ({"layout": "tt"}, "model"),
        ({"lda": 520}, "model"),
        ({"objective": {"kind": "lexicographic", "order": ["smem"]}}, "model"),
        ({"objective": {"kind": "weighted", "weights": {"time": 1}}}, "model"),
    ],
)
def test_a_winner_answers_where_it_was_measured_and_is_allowed(
    taught: TestClient, members: dict[str, Any], source: str
) -> None:
    assert optimized(taught, **members)["source"] == source


def test_a_winner_that_constraints_forbid_or_that_was_not_measured_beside_the_pick_is_not_answered(
    learning: TestClient,
) -> None:
    verified(learning, top_k=3)
    winner = optimized(learning)["config"]
    pick = optimized(learning, model_only=True)["config"]
    forbid = next(name for name in winner if winner[name] != pick[name])
    without_winner = {"config": {forbid: {"in": [pick[forbid]]}}}
    allowed = optimized(learning, constraints=without_winner)
    assert (allowed["source"], allowed["config"]) == ("model", pick)
    # Nothing raced is like the pick of this question.
    other = optimized(learning, constraints={"smem_bytes": {"max": 60_000}})
    assert other["source"] == "model"


def test_a_winner_beats_the_pick_of_constraints_where_it_was_raced_and_lost_too(
    learning: TestClient,
) -> None:
    job = verified(learning, top_k=5)
    pick, *others, winner = [each["config"] for each in job["result"]["contest"]["candidates"]]
    seen = set()
    for name in pick:
        allowed = {each[name] for each in (*others, winner)} - {pick[name]}
        if name == "family" or winner[name] not in allowed:
            continue
        answer = optimized(learning, constraints={"config": {name: {"in": sorted(allowed)}}})
        measured = answer["source"] == "measured"
        mine = answer["model_pick"]["config"] if measured else answer["config"]
        assert measured == (mine in others)
        seen.add(measured)
    assert seen


def test_what_is_remembered_is_answered_by_the_next_service(url: str) -> None:
    with service(H200, runner(last_is_fastest), database=url) as first:
        verified(first, top_k=5)
        answer = first.get(ADDRESS).content
    with service(H200, runner(last_is_fastest), database=url) as second:
        assert second.get(ADDRESS).content == answer
        assert second.get("/v1/drift").json()["measurements_revision"] == 1


def test_what_was_measured_under_other_conditions_is_ignored_and_kept(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def source(gpu: HostGpu | None = H200) -> Any:
        with service(gpu, runner(last_is_fastest), database=url) as client:
            return optimized(client)["source"]

    with service(H200, runner(last_is_fastest), database=url) as client:
        verified(client, top_k=5)
    assert source(replace(H200, driver="581")) == "model"
    assert source(None) == "model"
    for name, value in (("nvrtc_version", "12.9"), ("source_hash", "f" * 64)):
        with monkeypatch.context() as patch:
            patch.setattr(f"app.learning.{name}", lambda value=value: value)
            assert source() == "model"
    assert source() == "measured"


@pytest.mark.parametrize(
    "damage",
    [{"problem": "nonsense"}, {"winner": {"config": {}}}, {"problem": {"m": 0, "n": 1, "k": 1}}],
)
def test_a_measurement_that_can_not_be_read_counts_for_nothing_and_hides_no_other(
    url: str, damage: dict[str, Any]
) -> None:
    with service(H200, runner(last_is_fastest), database=url) as client:
        verified(client, m=64, top_k=3)
        verified(client, top_k=3)
    with closing(Database(url)) as database, database.write() as connection:
        connection.execute(update(measurements).where(measurements.c.number == 1).values(damage))
    with service(H200, runner(last_is_fastest), database=url) as client:
        assert optimized(client)["source"] == "measured"
        assert optimized(client, m=64)["source"] == "model"


def test_without_a_compiler_nothing_is_remembered(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> str:
        raise CompilerAbsent("NVRTC is not installed")

    monkeypatch.setattr("app.learning.nvrtc_version", absent)
    with service(H200, runner(last_is_fastest), database=url) as client:
        assert "measurement" not in verified(client, top_k=3)["result"]
        assert optimized(client)["source"] == "model"
        assert client.get("/v1/drift").json()["device"] is None


def test_a_race_that_is_not_sure_or_that_the_pick_wins_leaves_the_pick(url: str) -> None:
    ends = iter([(0.8, 0.005), (0.99, 0.02), (1.1, 0.005), (0.8, 0.005)])

    def run(job: Job, turn: Turn) -> Outcome:
        request, (over_pick, half_width) = requested(job.request), next(ends)
        ((_, second_us),) = request.alternatives
        assert request.predicted_us is not None
        speeds = [1.0, over_pick * request.predicted_us / second_us]
        return outcome(request, speeds, half_width=half_width)

    with service(H200, run, database=url) as client:
        sources = []
        for _ in range(4):
            verified(client, top_k=2)
            sources.append(optimized(client)["source"])
    assert sources == ["measured", "model", "model", "measured"]


def test_a_race_that_was_not_run_to_its_end_leaves_the_winner_of_the_last_one(url: str) -> None:
    whole = iter([True, False])

    def run(job: Job, turn: Turn) -> Outcome:
        request = requested(job.request)
        ended = outcome(request, last_is_fastest(request))
        if not next(whole):
            hung = Ended(OutcomeKind.TIMEOUT, 1.0, message="killed at its deadline")
            ended.result["contest"] = contest_record(request, hung)
        return ended

    with service(H200, run, database=url) as client:
        verified(client, top_k=3)
        again = verified(client, top_k=3)
        assert again["result"]["contest"]["note"] == "timeout: killed at its deadline"
        assert optimized(client)["source"] == "measured"


def test_a_verification_of_ones_own_configuration_is_not_remembered(learning: TestClient) -> None:
    job = verified(learning, config=CONFIG)
    assert (job["picked"], job["result"].get("measurement")) == (False, None)
    assert learning.get("/v1/drift").json()["problems"] == 0


def test_a_pick_verified_alone_counts_for_drift_and_leaves_the_winner(
    learning: TestClient,
) -> None:
    verified(learning, top_k=3)
    verified(learning)
    assert optimized(learning)["source"] == "measured"
    assert learning.get("/v1/drift").json()["problems"] == 1


def test_whoever_sees_that_a_verification_passed_is_answered_with_its_winner(
    learning: TestClient,
) -> None:
    sizes = [64 * place for place in range(1, 13)]
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            for m in sizes:
                learning.get(f"/v1/optimize?{urlencode(SMALL | {'m': m})}")

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for m in sizes:
            verified(learning, m=m, top_k=3)
            got = learning.get(f"/v1/optimize?{urlencode(SMALL | {'m': m})}").json()
            assert got["source"] == "measured", m
    finally:
        stop.set()
        asking.join()
    again = [learning.get(f"/v1/optimize?{urlencode(SMALL | {'m': m})}").json() for m in sizes]
    assert {each["source"] for each in again} == {"measured"}


def test_a_database_that_is_away_when_a_race_ends_delays_it_and_loses_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, failures = MeasurementStore.add, iter([True, True])

    def failing(store: MeasurementStore, measured: Any) -> Any:
        if next(failures, False):
            raise StoreUnavailable("the database can't be used: locked")
        return add(store, measured)

    monkeypatch.setattr(MeasurementStore, "add", failing)
    with service(H200, runner(last_is_fastest), database=url) as client:
        assert verified(client, top_k=3)["result"]["measurement"] == 1
        assert optimized(client)["source"] == "measured"


@pytest.mark.parametrize(
    ("members", "field", "words"),
    [
        ({"top_k": 0}, "top_k", "between 1 and 16"),
        ({"top_k": 17}, "top_k", "between 1 and 16"),
        ({"top_k": "5"}, "top_k", "integer"),
        ({"top_k": 2, "config": CONFIG}, "top_k", "for the pick alone"),
        ({"top_k": 2, "against": [CONFIG]}, "top_k", "for the pick alone"),
    ],
)
def test_what_can_not_be_raced_is_refused_with_its_field(
    taught: TestClient, members: dict[str, Any], field: str, words: str
) -> None:
    response = taught.post("/v1/verifications", json=SMALL | members)
    assert response.status_code == 422
    error = response.json()["errors"][0]
    assert error["field"] == field
    assert words in error["message"]


def test_model_only_is_true_or_false_and_nothing_else(taught: TestClient) -> None:
    for value in ("1", "True", "yes", "null"):
        response = taught.get(f"{ADDRESS}&model_only={value}")
        assert response.status_code == 422
        assert response.json()["errors"][0]["field"] == "model_only"
    assert taught.post("/v1/optimize", json=SMALL | {"model_only": 1}).status_code == 422
    assert taught.post("/v1/explain", json=SMALL | {"model_only": True}).status_code == 422


def test_a_planted_mis_calibration_is_found_by_verifications_and_reported(url: str) -> None:
    with service(H200, runner(lambda request: [1.3]), database=url) as client:
        assert "warpwright_drift_ratio NaN" in client.get("/metrics").text
        drifts = [verified(client, m=64 * m)["result"]["drift"] for m in range(1, ENOUGH + 1)]
        assert [drift["found"] for drift in drifts] == [None] * (ENOUGH - 1) + [True]
        drift = client.get("/v1/drift").json()
        DriftShape.model_validate(drift)
        assert (drift["device"], drift["found"], drift["problems"]) == ("h200", True, ENOUGH)
        assert drift["ratio"] == pytest.approx(1.3)
        assert drift["advice"] == "warpwright calibrate"
        text = client.get("/metrics").text
        assert "warpwright_drift_found 1.0" in text
        ratio = next(
            line for line in text.splitlines() if line.startswith("warpwright_drift_ratio")
        )
        assert float(ratio.split()[1]) == pytest.approx(1.3)


def test_a_device_that_is_as_its_profile_says_has_not_drifted(url: str) -> None:
    rng = random.Random(2)

    def speeds(request: VerificationRequest) -> list[float]:
        return [rng.gauss(1.0, 0.05)]

    with service(H200, runner(speeds), database=url) as client:
        for m in range(1, ENOUGH + 4):
            verified(client, m=64 * m)
        drift = client.get("/v1/drift").json()
    assert (drift["found"], drift["advice"], drift["problems"]) == (False, None, ENOUGH + 3)
