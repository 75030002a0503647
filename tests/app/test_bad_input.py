"""Whatever is sent, the answer is a problem document that names the field and the limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

GOOD: dict[str, Any] = {"m": 512, "n": 512, "k": 512}
CONFIG = {"family": "sm90_gemm", "tile_m": 128, "tile_n": 128, "tile_k": 64, "stages": 4}
EXTENT = "between 1 and 2147483647"
ROUTES = ("/v1/optimize", "/v1/simulate", "/v1/verifications")


def problem(response: Any, status: int) -> dict[str, Any]:
    """The problem document of a response, its constant members checked."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == status
    assert body["type"].startswith("urn:warpwright:problem:")
    assert body["title"]
    assert body["detail"]
    return body


def post(client: TestClient, route: str, body: dict[str, Any]) -> Any:
    """Post a body that is complete for the route but for what the test breaks."""
    return client.post(route, json={"config": CONFIG, **body} if route == ROUTES[1] else body)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("field", ["m", "n", "k"])
@pytest.mark.parametrize("value", [0, -1, 2**31, 10**30, 4096.0, 0.5, "4096", True, None, [1], {}])
def test_a_size_that_is_none_is_refused(
    client: TestClient, route: str, field: str, value: Any
) -> None:
    body = problem(post(client, route, {**GOOD, field: value}), 422)
    (error,) = body["errors"]
    assert error["field"] == field
    assert EXTENT in error["message"]


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"dtype": "fp64"}, "dtype", "bf16, fp16"),
        ({"dtype": 16}, "dtype", "bf16, fp16"),
        ({"layout": "TN"}, "layout", "must be one of tn, nn, nt, tt"),
        ({"layout": None}, "layout", "must be one of tn, nn, nt, tt, got null"),
        ({"out_dtype": "fp64"}, "out_dtype", "must be one of bf16, fp16, fp32, got 'fp64'"),
        ({"out_dtype": 32}, "out_dtype", "must be one of bf16, fp16, fp32, got int 32"),
        ({"device": "h2o"}, "device", "h200"),
        ({"device": ""}, "device", "h200"),
        ({"device": 200}, "device", "h200"),
        ({"model": "guess"}, "model", "calibrated, paper"),
        ({"proof": "maybe"}, "proof", "full, none"),
        ({"top_k": 0}, "top_k", "between 1 and 64"),
        ({"top_k": 65}, "top_k", "between 1 and 64"),
        ({"top_k": 1.0}, "top_k", "between 1 and 64"),
        ({"colour": "red"}, "colour", "there are m, n, k, dtype"),
        ({"m": 2**31 - 1, "n": 2**31 - 1, "k": 8}, "m", "2^60"),
        ({"model": "paper", "layout": "tt"}, "layout", "must be tn in model paper"),
        ({"model": "paper", "out_dtype": "fp32"}, "out_dtype", "must be bf16 in model paper"),
        ({"model": "paper", "ldc": 520}, "ldc", "must be 512 in model paper"),
        ({"model": "paper", "b_offset": 1}, "b_offset", "must be 0 in model paper"),
    ],
)
def test_a_value_outside_its_limits_is_named(
    client: TestClient, change: dict[str, Any], field: str, words: str
) -> None:
    body = problem(client.post("/v1/optimize", json={**GOOD, **change}), 422)
    assert [error["field"] for error in body["errors"]] == [field]
    assert words in body["errors"][0]["message"]
    assert field in body["detail"]


NARROW = {"m": 300, "n": 400, "k": 500}
PITCHES = [
    ("lda", "tn", 500, "k"),
    ("lda", "nn", 300, "m"),
    ("lda", "nt", 300, "m"),
    ("lda", "tt", 500, "k"),
    ("ldb", "tn", 500, "k"),
    ("ldb", "nn", 500, "k"),
    ("ldb", "nt", 400, "n"),
    ("ldb", "tt", 400, "n"),
    ("ldc", "tn", 400, "n"),
    ("ldc", "nt", 400, "n"),
]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("field", "layout", "packed", "name"), PITCHES)
def test_a_pitch_below_the_packed_one_is_refused_by_the_extent_it_holds(
    client: TestClient, route: str, field: str, layout: str, packed: int, name: str
) -> None:
    body = {**NARROW, "layout": layout, field: packed - 1}
    (error,) = problem(post(client, route, body), 422)["errors"]
    assert error["field"] == field
    assert f"must be between {name} = {packed} and 2147483647" in error["message"]
    assert f"got {packed - 1}" in error["message"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("field", ["lda", "ldb", "ldc"])
@pytest.mark.parametrize("value", [0, -8, 2**31, 10**30, 512.0, "512", True, [512], {}])
def test_a_pitch_that_is_none_is_refused(
    client: TestClient, route: str, field: str, value: Any
) -> None:
    (error,) = problem(post(client, route, {**GOOD, field: value}), 422)["errors"]
    assert error["field"] == field
    assert "2147483647" in error["message"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("field", ["a_offset", "b_offset", "c_offset"])
@pytest.mark.parametrize("value", [-1, 8, 10**30, 1.0, "1", False, None])
def test_an_offset_that_is_none_is_refused(
    client: TestClient, route: str, field: str, value: Any
) -> None:
    (error,) = problem(post(client, route, {**GOOD, field: value}), 422)["errors"]
    assert error["field"] == field
    assert "between 0 and 7" in error["message"]


def test_a_wide_output_may_be_off_by_fewer_elements(client: TestClient) -> None:
    body = {**GOOD, "out_dtype": "fp32", "c_offset": 4}
    (error,) = problem(client.post("/v1/optimize", json=body), 422)["errors"]
    assert error == {"field": "c_offset", "message": "must be between 0 and 3, got 4"}


def test_the_schema_says_what_a_wide_output_may_be_off_by(client: TestClient) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    described = [
        shape["properties"]["c_offset"]["description"]
        for name, shape in schemas.items()
        if name.endswith("Request") and "c_offset" in shape["properties"]
    ]
    assert len(described) == 5
    assert all("7 in bf16, 7 in fp16, 3 in fp32" in words for words in described)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("top_k", 65, "must be between 1 and 64, got 65"),
        ("time_limit_ms", 0, "must be between 1 and 60000, got 0"),
        ("divergence", 0.5, "must be between 1 and 32, got 0.5"),
        ("cache", "hot", "must be one of cold, warm, got 'hot'"),
    ],
)
def test_a_value_out_of_range_is_told_the_range_and_itself(
    client: TestClient, field: str, value: Any, words: str
) -> None:
    (error,) = problem(client.post("/v1/optimize", json={**GOOD, field: value}), 422)["errors"]
    assert error == {"field": field, "message": words}


def test_a_value_that_is_neither_true_nor_false_is_told_so(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    shapes, seen = document["components"]["schemas"], set()
    for path, operations in document["paths"].items():
        body = operations.get("post", {}).get("requestBody")
        if body is None:
            continue
        shape = shapes[body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]]
        if "discriminator" in shape:  # of several ops; the first is the one without a name
            shape = shapes[shape["oneOf"][0]["$ref"].rpartition("/")[2]]
        for name, value in shape["properties"].items():
            if value.get("type") == "boolean":
                seen.add(name)
                errors = problem(client.post(path, json={name: 1}), 422)["errors"]
                said = {error["field"]: error["message"] for error in errors}
                assert said[name] == "must be true or false, got int 1"
    assert seen >= {"model_only", "trace", "dry_run", "from_scratch"}


@pytest.mark.parametrize("field", ["m", "n", "k"])
def test_a_missing_size_is_named_with_its_limit(client: TestClient, field: str) -> None:
    body = {name: value for name, value in GOOD.items() if name != field}
    (error,) = problem(client.post("/v1/optimize", json=body), 422)["errors"]
    assert error == {
        "field": field,
        "message": f"is required and must be an integer {EXTENT}",
    }


def test_every_wrong_field_is_named_at_once(client: TestClient) -> None:
    body = problem(client.post("/v1/optimize", json={"m": "1", "n": 1.5, "colour": 1}), 422)
    assert {error["field"] for error in body["errors"]} == {"m", "n", "k", "colour"}


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**CONFIG, "tile_m": "128"}, "config.tile_m"),
        ({**CONFIG, "tile_m": 77}, "config.tile_m"),
        ({**CONFIG, "tile_m": 256}, "config.math_warpgroups"),
        ({**CONFIG, "stages": True}, "config.stages"),
        ({**CONFIG, "stages": 10**40}, "config.stages"),
        ({**CONFIG, "tile_m": 2**63}, "config.tile_m"),
        ({**CONFIG, "tile_n": 10**40}, "config.tile_n"),
        ({**CONFIG, "tile_n": -(2**63) - 1}, "config.tile_n"),
        ({**CONFIG, "math_warpgroups": 2**63}, "config.math_warpgroups"),
        ({**CONFIG, "split_k": -3}, "config.split_k"),
        ({**CONFIG, "colour": 1}, "config.colour"),
        ({**CONFIG, "family": "sm20"}, "config.family"),
        ({"family": "sm90_gemm"}, "config.tile_m"),
        (None, "config"),
        ([], "config"),
        ("128x128", "config"),
    ],
)
def test_a_wrong_configuration_is_named_by_its_path(
    client: TestClient, config: Any, field: str
) -> None:
    response = client.post("/v1/simulate", json={**GOOD, "config": config})
    assert problem(response, 422)["errors"][0]["field"] == field


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"m=512", b"\xff\xfe", b'{"m":' + b"9" * 5000 + b"}", b"[" * 30000, b"nul"],
)
def test_what_is_no_json_is_refused(client: TestClient, route: str, content: bytes) -> None:
    response = client.post(route, content=content, headers={"content-type": "application/json"})
    problem(response, 400 if content else 422)


@pytest.mark.parametrize("content", [b"null", b"5", b"[]", b'"text"', b"NaN"])
def test_json_that_is_no_object_is_refused(client: TestClient, content: bytes) -> None:
    response = client.post(
        "/v1/optimize", content=content, headers={"content-type": "application/json"}
    )
    (error,) = problem(response, 422)["errors"]
    assert error["field"] == "body"
    assert "JSON object" in error["message"]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e400"])
def test_a_number_that_json_does_not_have_is_refused(client: TestClient, value: str) -> None:
    response = client.post(
        "/v1/optimize",
        content=f'{{"m":{value},"n":8,"k":8}}',
        headers={"content-type": "application/json"},
    )
    assert problem(response, 422)["errors"][0]["field"] == "m"


@pytest.mark.parametrize(
    "media_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "",
        "application/problem+json",
        "application/json; charset=latin-1",
        "application/json; a=b",
        "application/jsonx",
        "application/json, text/plain",
        "x" * 5000,
    ],
)
def test_another_content_type_is_refused(client: TestClient, media_type: str) -> None:
    response = client.post(
        "/v1/optimize", content=json.dumps(GOOD), headers={"content-type": media_type}
    )
    detail = problem(response, 415)["detail"]
    assert "application/json" in detail
    assert len(detail) < 200


@pytest.mark.parametrize("media_type", ["application/json;charset=UTF-8", "Application/JSON"])
def test_json_in_utf_8_is_taken(client: TestClient, media_type: str) -> None:
    response = client.post(
        "/v1/optimize", content=json.dumps(GOOD), headers={"content-type": media_type}
    )
    assert response.status_code == 200


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"m":8,"n":8,"k":8,"m":16}', "'m'"),
        ('{"m":8,"n":8,"k":8,"config":{"stages":1,"stages":2}}', "'stages'"),
        ('{"m":8,"n":8,"k":8,"' + "x" * 5000 + '":1,"' + "x" * 5000 + '":1}', "xxx…"),
        ('{"m":' + "9" * 5000 + ',"n":8,"k":8}', "too many digits: an integer may have 60"),
        ('{"m":-' + "9" * 61 + ',"n":8,"k":8}', "too many digits"),
        ('{"\\ud800":1,"\\ud800":2}', "\\ud800"),
    ],
)
def test_json_that_readers_disagree_on_is_refused(
    client: TestClient, route: str, content: str, words: str
) -> None:
    response = client.post(route, content=content, headers={"content-type": "application/json"})
    detail = problem(response, 400)["detail"]
    assert words in detail
    assert len(detail) < 250


@pytest.mark.parametrize(
    "field",
    [
        "m",
        "dtype",
        "layout",
        "out_dtype",
        "lda",
        "c_offset",
        "device",
        "model",
        "proof",
        "cache",
        "top_k",
        "divergence",
        "config",
    ],
)
@pytest.mark.parametrize("value", ["x" * 5000, "\ud800" * 500, ["x"] * 5000, "é" * 60, "9" * 60])
def test_a_long_value_is_not_repeated(client: TestClient, field: str, value: Any) -> None:
    content = json.dumps({**GOOD, field: value})
    response = client.post(
        "/v1/optimize", content=content, headers={"content-type": "application/json"}
    )
    (error,) = problem(response, 422)["errors"]
    assert error["field"] == field
    assert len(error["message"]) < 250


@pytest.mark.parametrize("name", ["\ud800", "a\udfff.b", "\ud800" * 500])
def test_a_key_with_half_a_character_is_shown_escaped(client: TestClient, name: str) -> None:
    content = json.dumps({**GOOD, name: 1})
    response = client.post(
        "/v1/optimize", content=content, headers={"content-type": "application/json"}
    )
    detail = problem(response, 400)["detail"]
    assert repr(name)[:40] in detail
    assert len(detail) < 200


def test_a_long_key_is_not_repeated(client: TestClient) -> None:
    (error,) = problem(client.post("/v1/optimize", json={**GOOD, "x" * 5000: 1}), 422)["errors"]
    assert error["field"].startswith("xxx")
    assert len(error["field"]) <= 60


@pytest.mark.parametrize("route", ROUTES)
def test_a_slash_too_many_is_another_address(client: TestClient, route: str) -> None:
    problem(client.post(f"{route}/", json=GOOD, follow_redirects=False), 404)


def test_a_long_address_is_not_repeated(client: TestClient) -> None:
    for path in ("/" + "x" * 5000, "/v1/verifications/" + "x" * 5000):
        assert len(problem(client.get(path), 404)["detail"]) < 250


def test_a_megabyte_of_body_is_refused_with_the_limit(client: TestClient) -> None:
    response = client.post("/v1/optimize", json={**GOOD, "dtype": "x" * 2**20})
    assert "65536 bytes" in problem(response, 413)["detail"]


def test_a_streamed_megabyte_is_refused_without_its_length(client: TestClient) -> None:
    def stream() -> Iterator[bytes]:
        for _ in range(1024):
            yield b" " * 1024

    response = client.post(
        "/v1/optimize", content=stream(), headers={"content-type": "application/json"}
    )
    problem(response, 413)


def test_an_unknown_route_is_a_problem_too(client: TestClient) -> None:
    assert "/docs" in problem(client.get("/v2/optimise"), 404)["detail"]


def test_a_wrong_method_names_the_right_one(client: TestClient) -> None:
    response = client.get("/v1/simulate")
    assert "POST" in problem(response, 405)["detail"]
    assert response.headers["allow"] == "POST"


def test_a_wrong_method_names_all_that_the_address_takes(client: TestClient) -> None:
    for address, methods in (("/v1/optimize", "GET, HEAD, POST"), ("/healthz", "GET, HEAD")):
        response = client.delete(address)
        assert methods in problem(response, 405)["detail"]
        assert response.headers["allow"] == methods


def test_the_service_goes_on(client: TestClient) -> None:
    assert client.post("/v1/optimize", json=GOOD).status_code == 200
