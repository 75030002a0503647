"""Questions of norm_activation over HTTP: every way to ask, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient

from app.answer_cache import canonical
from app.schemas.answers import OptimizeAnswer
from app.schemas.norm_answers import NormOptimizeAnswer
from app.schemas.norm_questions import NormConfigRequest, NormOptimizeRequest, NormProblemRequest
from solver.families.norm_activation import NormConfig, NormProblem
from tests.app.conftest import service
from tests.app.norm_tools import PROBLEM, TINY, warm, warm_starved
from tests.app.test_bad_input import problem

GEMM = {"m": 512, "n": 512, "k": 512}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with service(initialise=warm, workers=2) as client:
        yield client


def ask(client: TestClient, **body: Any) -> dict[str, Any]:
    response = client.post("/v1/optimize", json=body)
    assert response.status_code == 200, response.text
    NormOptimizeAnswer.model_validate_json(response.content)
    answer: dict[str, Any] = response.json()
    return answer


def test_an_answer_has_the_kind_the_proof_and_the_best_of_every_kind(client: TestClient) -> None:
    body = ask(client, **PROBLEM, top_k=3)
    assert body["problem"] == {
        **{name: value for name, value in PROBLEM.items() if name != "op"},
        "dtype": "fp32",
        "norm": "layer",
    }
    assert body["proof"]["status"] == "optimal"
    assert len(body["alternatives"]) == 2
    config = NormConfig.from_dict(body["config"])
    assert body["kind"] == config.kind
    assert (body["depth"] is None) is (not config.has_ring)
    assert body["resident_blocks"] >= 1
    assert body["kernel"]["id"].startswith(f"fp32_layer_poly_{config.kind}_")
    time_us = body["predicted"]["time_us"]
    for kind, best in body["kinds"].items():
        assert best["config"]["kind"] == kind
        assert best["over_answer"] == pytest.approx(best["time_us"] / time_us)
        assert best["over_answer"] >= 1
    assert body["kinds"][body["kind"]]["config"] == body["config"]
    assert body["strong_time_us"] == body["kinds"]["strong"]["time_us"]
    assert body["specialising"].startswith("specialising does not pay: ")
    assert "% more" in body["specialising"]


def test_where_specialising_pays_the_answer_is_specialised_and_says_by_how_much() -> None:
    with service(initialise=warm_starved) as client:
        kinds = {}
        for rows in (700, 65536):
            body = ask(client, **{**PROBLEM, "rows": rows, "width": 12288, "dtype": "fp16"})
            kinds[body["kind"]] = body
    body = kinds["specialised"]
    assert body["kinds"]["specialised"]["over_answer"] == 1
    assert body["kinds"]["strong"]["over_answer"] > 1
    assert body["specialising"].startswith("specialising pays: ")
    producers, consumers = map(int, body["ratio"].split(":"))
    assert (producers, consumers) == (body["config"]["producers"], body["config"]["consumers"])
    assert body["barrier"] in ("mbarrier", "named")


def test_another_objective_may_answer_a_slower_kernel_and_says_so(client: TestClient) -> None:
    least_wait = {"kind": "lexicographic", "order": ["wait", "time"]}
    body = ask(client, **PROBLEM, objective=least_wait)
    fastest = ask(client, **PROBLEM)
    assert body["predicted"]["wait_us"] <= fastest["predicted"]["wait_us"]
    assert body["predicted"]["time_us"] > fastest["predicted"]["time_us"]
    assert body["specialising"].endswith("is first by the objective that was asked for")
    front = ask(client, **TINY, objective={"kind": "pareto", "axes": ["time", "smem"], "cap": 3})
    assert front["front_size"] >= len(front["front"]) >= 1


def test_a_row_without_a_ring_has_kinds_without_one(client: TestClient) -> None:
    body = ask(client, op="norm_activation", rows=100, width=333, dtype="bf16")
    assert (body["kinds"]["ring"], body["kinds"]["specialised"]) == (None, None)
    assert body["specialised_time_us"] is None
    assert "no specialised kernel is legal" in body["specialising"]
    assert (body["ratio"], body["depth"], body["barrier"]) == (None, None, None)


def test_every_way_to_ask_gives_the_same_bytes_and_they_are_kept(client: TestClient) -> None:
    members = {**TINY, "top_k": 2, "objective": {"kind": "weighted", "weights": {"time": 1}}}
    posted = client.post("/v1/optimize", json=members)
    again = client.post("/v1/optimize", json=members)
    assert "cache;desc=hit" in again.headers["server-timing"]
    texts = {n: json.dumps(v) if isinstance(v, dict) else v for n, v in members.items()}
    address = f"/v1/optimize?{urlencode(texts)}"
    got = client.get(address)
    assert got.content == posted.content == again.content
    assert client.get(address, headers={"if-none-match": got.headers["etag"]}).status_code == 304
    assert client.head(address).headers["etag"] == got.headers["etag"]
    late = client.post("/v1/optimize", json={**members, "time_limit_ms": 60000})
    assert late.content == posted.content
    batch = client.post("/v1/optimize/batch", json={"problems": [members, GEMM, {"op": "x"}]})
    lines = {line["index"]: line for line in map(json.loads, batch.text.splitlines())}
    assert lines[0]["answer"] == posted.json()
    OptimizeAnswer.model_validate(lines[1]["answer"])
    assert lines[2]["error"]["errors"][0]["field"] == "op"


def test_defaults_of_a_batch_may_name_the_op(client: TestClient) -> None:
    defaults = {"op": "norm_activation", "width": 256}
    body = {"defaults": defaults, "problems": [{"rows": 10}, {"rows": 20, "dtype": "fp16"}]}
    lines = client.post("/v1/optimize/batch", json=body).text.splitlines()
    answers = [json.loads(line) for line in lines]
    assert {line["answer"]["problem"]["rows"] for line in answers} == {10, 20}


def test_identical_questions_that_come_together_are_solved_once(client: TestClient) -> None:
    body = {**PROBLEM, "rows": 54321}
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: client.post("/v1/optimize", json=body), range(4)))
    sources = [answer.headers["server-timing"].partition(",")[0] for answer in answers]
    assert len({answer.content for answer in answers}) == 1
    assert sum(not source.startswith("cache") for source in sources) == 1, sources


def test_questions_of_two_ops_are_never_one() -> None:
    texts = {
        canonical(NormOptimizeRequest.read({**TINY, **more}).question("h200"))
        for more in ({}, {"rows": 4}, {"cache": "warm"}, {"time_limit_ms": 5})
    }
    assert len(texts) == 3
    assert all(text.startswith("NormQuestion(") for text in texts)


def test_a_product_that_names_its_op_is_the_product(client: TestClient) -> None:
    plain = client.post("/v1/optimize", json=GEMM)
    assert client.post("/v1/optimize", json={**GEMM, "op": "gemm"}).content == plain.content
    assert "op" not in plain.json()


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"op": "conv"}, "op", "must be one of gemm, norm_activation, got str 'conv'"),
        ({"op": None}, "op", "must be one of gemm, norm_activation, got null"),
        ({"op": "norm_activation", "rows": 3}, "width", "is required"),
        ({**TINY, "rows": 0}, "rows", "must be between 1 and 2147483647, got 0"),
        ({**TINY, "rows": -1}, "rows", "must be between 1 and 2147483647, got -1"),
        ({**TINY, "width": 65537}, "width", "between 1 and 65536"),
        ({**TINY, "dtype": "fp8"}, "dtype", "fp32, fp16, bf16"),
        ({**TINY, "norm": "batch"}, "norm", "layer, rms"),
        ({**TINY, "activation": "relu"}, "activation", "gelu, gelu_tanh, silu, poly"),
        ({**TINY, "degree": 3}, "degree", "must be 0 unless activation is poly"),
        ({**TINY, "rows": "3"}, "rows", "must be an integer"),
        ({**TINY, "m": 3}, "m", "is no field of this request; there are op, rows, width"),
        ({**TINY, "constraints": {}}, "constraints", "is no field of this request"),
        ({**TINY, "model": "paper"}, "model", "is no field of this request"),
        ({**TINY, "device": "mi300x"}, "device", "runs no norm_activation kernel"),
        ({**TINY, "top_k": 65}, "top_k", "between 1 and 64"),
        ({**TINY, "objective": {"kind": "best"}}, "objective.kind", "must be one of"),
        ({**TINY, "time_limit_ms": 0}, "time_limit_ms", "between 1 and 60000"),
    ],
)
def test_a_wrong_member_is_named(
    client: TestClient, body: dict[str, Any], field: str, words: str
) -> None:
    (error,) = problem(client.post("/v1/optimize", json=body), 422)["errors"]
    assert error["field"] == field
    assert words in error["message"]


@pytest.mark.parametrize("route", ["/v1/explain", "/v1/simulate"])
def test_what_is_of_products_alone_says_where_the_op_is_answered(
    client: TestClient, route: str
) -> None:
    (error,) = problem(client.post(route, json=TINY), 422)["errors"]
    assert error["field"] == "op"
    assert error["message"].startswith("must be gemm here, got str 'norm_activation': other ops")
    assert "/v1/optimize" in error["message"]


def test_an_export_is_of_products_alone(client: TestClient) -> None:
    kernel = client.post("/v1/optimize", json=GEMM).json()["kernel"]["id"]
    address = f"/v1/kernels/{kernel}?op=norm_activation&rows=3&width=3"
    (error,) = problem(client.get(address), 422)["errors"]
    assert error["field"] == "op"


def test_a_query_is_read_as_strictly_as_a_body(client: TestClient) -> None:
    for query, field in (
        ("op=norm_activation&rows=3&width=3.0", "width"),
        ("op=norm_activation&rows=3&width=3&m=4", "m"),
        ("op=norm_activation&rows=3&width=3&op=gemm", "op"),
        ("op=norm_activation&rows=3&width=3&time_limit_ms=5", "time_limit_ms"),
        ("rows=3&width=3&m=1&n=1&k=1", "rows"),
    ):
        errors = problem(client.get(f"/v1/optimize?{query}"), 422)["errors"]
        assert field in {error["field"] for error in errors}


def test_requests_have_the_members_of_the_solvers_own_types() -> None:
    fields = set(NormProblemRequest.model_fields) - {"op"}
    assert fields == set(NormProblem(1, 1).to_dict())
    usual = NormConfigRequest(kind="strong", consumers=4).config()
    assert usual == NormConfig("strong", 4)
