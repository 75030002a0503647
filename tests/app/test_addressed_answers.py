"""GET /v1/optimize: the answer of the POST, at an address, with validators."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient

from app.answers import optimize_encoded
from app.api.conditional import has_current
from app.api.kept import KeptAnswers
from app.main import create_app
from app.measured_answer import Winner
from app.schemas.norm_questions import NormQuestionRequest
from app.schemas.queries import question_parameters
from app.schemas.questions import OptimizeRequest, QuestionRequest
from app.settings import Settings
from app.store.database import Database
from solver.question import Question
from tests.app.conftest import service
from tests.app.test_bad_input import problem

SQUARE = {"m": 512, "n": 512, "k": 512}
ETAG = b'"abc"'


@pytest.fixture(scope="module")
def keeping() -> Iterator[TestClient]:
    """A service as it is started, with its cache."""
    with service() as client:
        yield client


def address(question: dict[str, Any]) -> str:
    """The address of a question: what has members as JSON text."""
    members = {
        name: json.dumps(value) if isinstance(value, dict | bool) else value
        for name, value in question.items()
    }
    return f"/v1/optimize?{urlencode(members)}"


EVERYTHING = {
    "m": 300,
    "n": 500,
    "k": 777,
    "dtype": "fp16",
    "layout": "tt",
    "out_dtype": "fp32",
    "lda": 784,
    "ldb": 512,
    "ldc": 504,
    "a_offset": 1,
    "b_offset": 2,
    "c_offset": 3,
    "op": "gemm",
    "device": "h200",
    "model": "calibrated",
    "proof": "full",
    "top_k": 3,
    "cache": "warm",
    "divergence": 1,
    "objective": {"kind": "weighted", "weights": {"smem": 0.1, "time": 1}},
    "constraints": {"smem_bytes": {"max": 98304}, "config": {"tile_m": {"in": [128, 64]}}},
    "model_only": True,
}


def test_everything_is_every_member_but_the_time_limit() -> None:
    assert set(EVERYTHING) == set(OptimizeRequest.model_fields) - {"time_limit_ms"}
    ours = list(QuestionRequest.model_fields)
    others = [name for name in NormQuestionRequest.model_fields if name not in ours]
    assert [each["name"] for each in question_parameters()] == [*ours, *others]


@pytest.mark.parametrize(
    "question",
    [
        SQUARE,
        EVERYTHING,
        {**SQUARE, "model": "paper", "device": "a6000", "divergence": 1.5},
        {**SQUARE, "proof": "none"},
        {**SQUARE, "objective": {"kind": "pareto", "axes": ["time", "smem"]}},
    ],
)
def test_the_answer_is_the_posts_byte_by_byte(
    client: TestClient, keeping: TestClient, question: dict[str, Any]
) -> None:
    solved = client.post("/v1/optimize", json=question)
    assert solved.status_code == 200
    for _ in range(2):
        got = keeping.get(address(question))
        assert got.content == solved.content
        assert got.headers["content-type"] == "application/json"
    assert keeping.post("/v1/optimize", json=question).content == solved.content


def test_a_question_costs_the_solver_nothing_the_second_time(keeping: TestClient) -> None:
    question = {**SQUARE, "m": 520}
    first = keeping.get(address(question))
    assert "proof;dur=" in first.headers["server-timing"]
    for again in (
        keeping.get(address(question)),
        keeping.get(address({"device": "h200", "dtype": "bf16", **question})),
        keeping.post("/v1/optimize", json=question),
        keeping.post("/v1/optimize", json={**question, "time_limit_ms": 1}),
    ):
        assert again.headers["server-timing"] == "cache;desc=hit"
        assert again.content == first.content


@pytest.mark.parametrize(
    ("query", "field", "words"),
    [
        ("m=512&n=512", "k", "is required and must be an integer between 1 and 2147483647"),
        ("m=0&n=512&k=512", "m", "between 1 and 2147483647"),
        ("m=5x&n=512&k=512", "m", "must be an integer between 1 and 2147483647, got str '5x'"),
        ("m=512.0&n=512&k=512", "m", "got str '512.0'"),
        ("m=+5&n=512&k=512", "m", "got str ' 5'"),
        ("m=05&n=512&k=512", "m", "got str '05'"),
        ("m=&n=512&k=512", "m", "got str ''"),
        ("m=%D9%A5&n=512&k=512", "m", "an integer"),
        (f"m={'9' * 5000}&n=512&k=512", "m", "99…"),
        ("m=512&n=512&k=512&m=512", "m", "must be given once"),
        ("m=512&n=512&k=512&m", "m", "must have a value"),
        ("m=512&n=512&k=%ff", "k", "percent-encoded UTF-8"),
        ("m=512&n=512&k=512&%ff=1", "query", "percent-encoded UTF-8"),
        ("m=512&n=512&k=512&colour=red", "colour", "there are m, n, k, dtype"),
        ("m=512&n=512&k=512&M=1", "M", "is no field of this request"),
        ("m=512&n=512&k=512&dtype=fp64", "dtype", "bf16, fp16"),
        ("m=512&n=512&k=512&lda=511", "lda", "between k = 512"),
        ("m=512&n=512&k=512&lda=null", "lda", "got str 'null'"),
        ("m=512&n=512&k=512&device=h2o", "device", "h200"),
        ("m=512&n=512&k=512&top_k=65", "top_k", "between 1 and 64"),
        ("m=512&n=512&k=512&divergence=nan", "divergence", "between 1 and 32"),
        ("m=512&n=512&k=512&divergence=1e400", "divergence", "between 1 and 32"),
        ("m=512&n=512&k=512&time_limit_ms=50", "time_limit_ms", "POST /v1/optimize takes it"),
        ("m=512&n=512&k=512&objective=time", "objective", "must be JSON"),
        ("m=512&n=512&k=512&objective=null", "objective", "must be a JSON object, got null"),
        ('m=512&n=512&k=512&objective={"kind":"best"}', "objective.kind", "lexicographic"),
        ('m=512&n=512&k=512&constraints={"sms":{},"sms":{}}', "constraints", "appear twice"),
        ('m=512&n=512&k=512&constraints={"sms":{"max":NaN}}', "constraints", "NaN"),
        ('m=512&n=512&k=512&constraints={"sms":{"max":1.5}}', "constraints.sms.max", "integer"),
    ],
)
def test_a_wrong_parameter_is_named_as_in_a_body(
    keeping: TestClient, query: str, field: str, words: str
) -> None:
    for method in ("GET", "HEAD"):
        response = keeping.request(method, f"/v1/optimize?{query}")
        assert response.status_code == 422
        assert "etag" not in response.headers
    response = keeping.get(f"/v1/optimize?{query}")
    (error,) = problem(response, 422)["errors"]
    assert error["field"] == field
    assert words in error["message"]
    assert len(response.content) < 1500


@pytest.mark.parametrize("name", ["x" * 5000, "m%0A" * 1000])
def test_a_long_parameter_is_not_repeated(keeping: TestClient, name: str) -> None:
    for query in (f"{name}=1", f"{name}=1&{name}=2", name, f"{name}=%ff"):
        response = keeping.get(f"/v1/optimize?{query}")
        assert all(len(error["field"]) <= 60 for error in problem(response, 422)["errors"])


def test_constraints_that_clash_are_told_as_to_a_post(keeping: TestClient) -> None:
    question = {**SQUARE, "constraints": {"smem_bytes": {"max": 1000}}}
    got, posted = keeping.get(address(question)), keeping.post("/v1/optimize", json=question)
    told = [{**problem(each, 422), "instance": ""} for each in (got, posted)]  # each its own
    assert told[0] == told[1]


def test_the_tag_is_the_bodys_and_strong(keeping: TestClient) -> None:
    first, other = keeping.get(address(SQUARE)), keeping.get(address({**SQUARE, "top_k": 2}))
    tag = first.headers["etag"]
    assert tag.startswith('"')
    assert tag.endswith('"')
    assert keeping.get(address({"k": 512, **SQUARE})).headers["etag"] == tag
    assert other.headers["etag"] != tag


def test_what_the_caller_has_is_not_sent_again(keeping: TestClient) -> None:
    whole = keeping.get(address({**SQUARE, "k": 1024}))
    tag = whole.headers["etag"]
    for names in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        for method in ("GET", "HEAD"):
            response = keeping.request(
                method, address({**SQUARE, "k": 1024}), headers={"if-none-match": names}
            )
            assert (response.status_code, response.content) == (304, b"")
            for name in ("etag", "cache-control", "vary"):
                assert response.headers[name] == whole.headers[name]
            assert "content-type" not in response.headers
    for names in ('"other"', tag.strip('"'), f"{tag}x", ""):
        response = keeping.get(address({**SQUARE, "k": 1024}), headers={"if-none-match": names})
        assert response.content == whole.content


def test_an_answer_that_was_never_asked_for_is_not_modified_either(keeping: TestClient) -> None:
    question = {**SQUARE, "n": 640}
    tag = keeping.get(address(question)).headers["etag"]
    with service(answer_cache_bytes=0) as fresh:
        response = fresh.get(address(question), headers={"if-none-match": tag})
        assert response.status_code == 304
        assert len(fresh.get(address(question)).content) > 1000


@pytest.mark.parametrize(
    ("lines", "current"),
    [
        ([], False),
        ([b'"abc"'], True),
        ([b'W/"abc"'], True),
        ([b'w/"abc"'], False),
        ([b'"x", "abc"'], True),
        ([b'"x"', b'W/"abc"'], True),
        ([b'  "x" ,, "abc" , '], True),
        ([b"*"], True),
        ([b" * "], True),
        ([b'*, "x"'], False),
        ([b"abc"], False),
        ([b'"abc'], False),
        ([b'"abc" "x"'], False),
        ([b'"x, "abc"'], False),
        ([b'"a,abc"'], False),
        ([b'"ABC"'], False),
        ([b'"' + b"x," * 20_000 + b'"'], False),
        ([b'"x",' * 20_000], False),
    ],
)
def test_tags_are_compared_as_rfc_9110_says(lines: list[bytes], current: bool) -> None:
    headers = [(b"host", b'"abc"'), *((b"if-none-match", line) for line in lines)]
    assert has_current(headers, ETAG) is current


@pytest.mark.parametrize("kept", [False, True])
def test_head_states_the_length_and_sends_nothing(keeping: TestClient, kept: bool) -> None:
    question = {**SQUARE, "n": 520 + kept}
    whole = keeping.get(address(question)) if kept else None
    head = keeping.head(address(question))
    assert (head.status_code, head.content) == (200, b"")
    whole = whole or keeping.get(address(question))
    assert int(head.headers["content-length"]) == len(whole.content)
    assert head.headers["etag"] == whole.headers["etag"]


@pytest.mark.parametrize(
    ("age_s", "words"), [(0, "private, no-cache"), (60, "private, max-age=60")]
)
def test_how_long_an_answer_may_be_used_is_a_setting(age_s: int, words: str) -> None:
    with service(answer_max_age_s=age_s) as client:
        for _ in range(2):
            response = client.get(address(SQUARE))
            assert response.headers["cache-control"] == words
            assert response.headers["vary"] == "authorization"


def test_a_kept_answer_is_counted_under_its_route(keeping: TestClient) -> None:
    def count(name: str) -> float:
        lines = keeping.get("/metrics").text.splitlines()
        return float(next(line.split()[-1] for line in lines if line.startswith(name)))

    requests = 'warpwright_http_requests_total{method="GET",route="/v1/optimize",status="200"}'
    keeping.get(address(SQUARE))
    before = count(requests), count('warpwright_answers_total{source="hit"}')
    keeping.get(address(SQUARE))
    assert count(requests) == before[0] + 1
    assert count('warpwright_answers_total{source="hit"}') == before[1] + 1
    assert count("warpwright_answer_cache_bytes") > 1000


def test_kept_answers_stand_behind_whatever_refuses(keeping: TestClient) -> None:
    """Innermost, so that no guard that is added later comes after them."""
    assert (
        create_app(Settings(), Database(Settings().database)).user_middleware[-1].cls is KeptAnswers
    )
    assert keeping.get(address(SQUARE)).status_code == 200
    for headers, status in (({"host": "evil.example"}, 421), ({"origin": "https://evil"}, 403)):
        assert keeping.get(address(SQUARE), headers=headers).status_code == status


def dawdle(question: Question, asked_s: float | None, winner: Winner | None) -> Any:
    """In a solver process: the answer, after long enough for the process to be killed."""
    time.sleep(1.0)
    return optimize_encoded(question, asked_s, winner)


def test_all_who_wait_get_the_answer_though_its_solver_process_is_killed(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = set(multiprocessing.active_children())
    monkeypatch.setattr("app.answers.optimize_encoded", dawdle)
    with service() as killed, ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(killed.get, address(SQUARE)) for _ in range(3)]
        time.sleep(0.5)
        for child in set(multiprocessing.active_children()) - others:
            child.kill()
        got = [each.result() for each in asked]
        assert killed.app.state.services.pool.restarts == 1
    monkeypatch.undo()
    assert {each.content for each in got} == {client.get(address(SQUARE)).content}
    sources = sorted(each.headers["server-timing"].partition(";")[0] for each in got)
    assert sources == ["cache", "cache", "pick"]
