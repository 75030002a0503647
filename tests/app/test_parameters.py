"""Parameters of addresses are read as strictly as bodies, on every route that has some."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.main import create_app
from app.schemas.norm_questions import NormQuestionRequest
from app.schemas.questions import QuestionRequest
from app.settings import Settings
from app.store.database import Database

Parameter = tuple[str, str, dict[str, Any]]

APP = create_app(Settings(), Database("sqlite:////nowhere/parameters.db"))


def parameters(app: FastAPI) -> list[Parameter]:
    """(path, name, schema) of every parameter of a query string that the document has."""
    return [
        (path, each["name"], each.get("schema", {}))
        for path, operations in app.openapi()["paths"].items()
        for each in operations.get("get", {}).get("parameters", ())
        if each["in"] == "query"
    ]


ALL = parameters(APP)
INTEGERS = [each for each in ALL if each[2].get("type") == "integer"]
OF_ROWS = NormQuestionRequest.model_fields.keys() - QuestionRequest.model_fields.keys()
ROUTES = sorted({path for path, *_ in ALL})


@pytest.fixture(scope="module")
def kernel(client: TestClient) -> str:
    """The id of a kernel that there is."""
    answer = client.get("/v1/optimize?m=64&n=64&k=64&proof=none").json()
    return str(answer["kernel"]["id"])


def refused(client: TestClient, kernel: str, path: str, query: str, name: str) -> str:
    """What is said of a parameter that is wrong."""
    path = path.replace("{kernel_id}", kernel).replace("{sweep_id}", "0" * 32)
    response = client.get(f"{path}?{query}")
    assert response.status_code == 422, response.text
    errors = response.json()["errors"]
    return next(str(error["message"]) for error in errors if error["field"] == name)


def test_routes_with_parameters_are_looked_at() -> None:
    assert {"/v1/optimize", "/v1/launches", "/v1/sweeps", "/v1/sweeps/{sweep_id}/rows"} < {*ROUTES}
    assert len(INTEGERS) > 20


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, name, _ in ALL])
def test_a_parameter_is_given_once_and_has_a_value(
    client: TestClient, kernel: str, path: str, name: str
) -> None:
    assert "given once" in refused(client, kernel, path, f"{name}={{}}&{name}={{}}", name)
    assert "must have a value" in refused(client, kernel, path, name, name)


@pytest.mark.parametrize("path", ROUTES)
def test_a_parameter_that_there_is_not_is_refused(
    client: TestClient, kernel: str, path: str
) -> None:
    assert "is no field" in refused(client, kernel, path, "surely_not=1", "surely_not")


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, name, _ in INTEGERS])
def test_an_integer_is_written_as_json_writes_it(
    client: TestClient, kernel: str, path: str, name: str
) -> None:
    for text in ("4.0", "%2B4", "%204", "1_0", "0x4", "04", "1e1", ""):
        op = "op=norm_activation&" if name in OF_ROWS else ""
        assert "integer" in refused(client, kernel, path, f"{op}{name}={text}", name)
