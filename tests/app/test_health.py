"""Health, readiness, metrics, devices and the documentation."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from app.problem_documents import KINDS
from app.schemas.service import Devices, Ready
from solver.device import device_names


def test_the_service_is_alive(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}


def test_a_probe_may_ask_by_head(client: TestClient) -> None:
    assert client.head("/healthz").status_code == 200
    assert client.head("/readyz").status_code == 200


def test_it_is_ready_without_a_gpu_and_says_so(client: TestClient) -> None:
    response = client.get("/readyz")
    assert response.status_code == 200
    ready = Ready.model_validate_json(response.content)
    assert ready.gpu == "absent"
    assert ready.solver_processes == 1
    assert (ready.gpu_worker, ready.database) == ("absent", "held")


def test_metrics_count_requests_by_route_never_by_path(client: TestClient) -> None:
    client.get("/v1/verifications/secret-id")
    client.get("/no/such/route")
    text = client.get("/metrics").text
    assert 'route="/v1/verifications/{verification_id}",status="404"' in text
    assert "secret-id" not in text
    assert "no/such" not in text
    assert "warpwright_solver_processes 1.0" in text


def test_devices_state_every_constant_with_its_provenance(client: TestClient) -> None:
    body = Devices.model_validate_json(client.get("/v1/devices").content)
    assert body.host is None
    assert [device.name for device in body.devices] == list(device_names())
    for device in body.devices:
        for constant in device.limits.values():
            assert set(constant) == {"value", "unit", "provenance", "source"}


def test_the_openapi_document_promises_problem_documents(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    assert "HTTPValidationError" not in str(schema)
    responses = schema["paths"]["/v1/verifications"]["post"]["responses"]
    done = {"200", "202"}
    faulty = {"400", "401", "403", "408", "413", "415", "421", "422", "429", "500", "503"}
    assert done | faulty == set(responses)
    for status, response in responses.items():
        media = "application/json" if status in done else "application/problem+json"
        assert list(response["content"]) == [media]
    names = set(schema["components"]["schemas"])
    assert {"ProblemDocument", "FieldError", "OptimizeAnswer"} <= names
    references = set(re.findall(r"#/components/schemas/(\w+)", str(schema)))
    assert references <= names


def test_the_openapi_document_states_the_limits(client: TestClient) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    m = schemas["OptimizeRequest"]["properties"]["m"]
    assert (m["type"], m["minimum"], m["maximum"]) == ("integer", 1, 2**31 - 1)
    assert schemas["OptimizeRequest"]["additionalProperties"] is False
    for shape in ("OptimizeRequest", "ExplainRequest", "SimulateRequest", "VerificationRequest"):
        offset = schemas[shape]["properties"]["c_offset"]
        assert (offset["minimum"], offset["maximum"]) == (0, 7)
        assert "at most 7 in bf16, 7 in fp16, 3 in fp32" in offset["description"]
    limit = schemas["OptimizeRequest"]["properties"]["time_limit_ms"]
    assert (limit["minimum"], limit["maximum"]) == (1, 60_000)
    values = schemas["BoundRequest"]["properties"]["in"]
    assert (values["minItems"], values["maxItems"]) == (1, 64)
    assert values["items"] == {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
    axes = schemas["ParetoRequest"]["properties"]["axes"]
    assert axes["items"]["enum"] == ["time", "wait", "smem", "registers", "energy"]
    kinds = schemas["OptimizeRequest"]["properties"]["objective"]["discriminator"]["mapping"]
    assert set(kinds) == {"lexicographic", "weighted", "pareto"}
    for name in ("WeightedRequest", "Weights", "BoundRequest", "ConfigBounds"):
        assert schemas[name]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("route", "shape"),
    [
        ("/v1/optimize", "OptimizeRequest"),
        ("/v1/explain", "ExplainRequest"),
        ("/v1/simulate", "SimulateRequest"),
        ("/v1/advise", "AdviseRequest"),
    ],
)
def test_every_example_of_the_openapi_document_is_answered(
    client: TestClient, route: str, shape: str
) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for example in schemas[shape]["examples"]:
        assert client.post(route, json=example).status_code == 200


def test_the_documentation_needs_nothing_from_elsewhere(client: TestClient) -> None:
    response = client.get("/docs")
    assert response.headers["content-type"].startswith("text/html")
    assert "POST /v1/optimize" in response.text
    assert "POST /v1/explain" in response.text
    assert "<script" not in response.text
    assert "http://" not in response.text
    assert "https://" not in response.text


def test_every_kind_of_problem_has_its_own_type() -> None:
    assert len({kind.type for kind in KINDS}) == len(KINDS)
