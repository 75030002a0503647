"""/metrics of a service that nobody has asked anything yet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from app.api.access import AccessTable
from app.api.routes.page import STATIC
from app.metrics import ENDINGS, PROOFS, REFUSALS, STAGES, Metrics
from app.runners import RUNNERS
from app.store.job import UNREADABLE
from kernels.verify import Reason
from tests.app.conftest import application
from tests.app.test_verifications import ended, gpu, passing

SMALL = {"m": 64, "n": 64, "k": 64}


@pytest.fixture(scope="module")
def fresh() -> Iterator[FastAPI]:
    """An application that needs keys and was never asked; its solver is cold."""
    with application(initialise=dict, require_keys="always") as app, TestClient(app):
        yield app


def series(metrics: Metrics) -> dict[str, dict[str, float]]:
    """The values of every series, by its name and its labels as text."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def of(app: FastAPI) -> Metrics:
    metrics: Metrics = app.state.services.metrics
    return metrics


def test_every_metric_with_labels_has_series_before_the_first_event(fresh: FastAPI) -> None:
    labelled = [
        collector
        for collector in list(of(fresh).registry._collector_to_names)
        if isinstance(collector, MetricWrapperBase) and collector._labelnames
    ]
    assert len(labelled) >= 7
    for collector in labelled:
        assert collector._metrics, collector._name
    assert all(
        value == 0
        for name, values in series(of(fresh)).items()
        if name.startswith("warpwright_") and name.endswith("_total")
        for value in values.values()
    )


def test_the_requests_expected_are_those_that_the_document_names(fresh: FastAPI) -> None:
    expected = {
        f"method={method.upper()},route={path},status={status}"
        for path, operations in fresh.openapi()["paths"].items()
        for method, operation in operations.items()
        for status in operation["responses"]
    }
    found = set(series(of(fresh))["warpwright_http_requests_total"])
    assert expected <= found
    rest = {re.search("route=([^,]*)", labels)[1] for labels in found - expected}  # type: ignore[index]
    page = {"/", *(f"/static/{name}" for name in STATIC)}
    assert rest == {"/docs", "/openapi.json", *page}
    paths = {entry.path for entry in AccessTable(fresh.routes).entries}
    timed = series(of(fresh))["warpwright_http_request_seconds_count"]
    assert set(timed) == {f"route={path}" for path in paths}


def test_the_known_values_of_each_label_are_there(fresh: FastAPI) -> None:
    found = series(of(fresh))
    known: dict[str, set[str]] = {
        "warpwright_solve_seconds_count": {f"stage={stage}" for stage in STAGES},
        "warpwright_proofs_total": {f"status={status}" for status in PROOFS},
        "warpwright_refused_requests_total": {f"reason={reason}" for reason in REFUSALS},
    } | {
        f"warpwright_{kind}s_total": {f"reason={r},status={s}" for s, r in endings}
        for kind, endings in ENDINGS.items()
    }
    assert set(ENDINGS) == set(RUNNERS)
    for name, labels in known.items():
        assert set(found[name]) == labels
    failed = {reason for status, reason in ENDINGS["verification"] if status == "failed"}
    assert failed == {*Reason, UNREADABLE}


def test_no_series_appears_with_an_event() -> None:
    questions: list[dict[str, Any]] = [
        SMALL,
        {**SMALL, "proof": "none"},
        {"m": 4096, "n": 4096, "k": 4096, "time_limit_ms": 1},
    ]
    with application(gpu(), passing) as app, TestClient(app, base_url="http://127.0.0.1") as client:
        before = series(of(app))
        for question in questions:
            assert client.post("/v1/optimize", json=question).status_code == 200
        submitted = client.post("/v1/verifications", json=SMALL)
        ended(client, submitted.headers["location"])
        client.get("/v1/devices", headers={"authorization": "Bearer ww_"})
        after = series(of(app))
    grown = {name for name, values in after.items() if set(values) - set(before.get(name, {}))}
    assert not {name for name in grown if name.startswith("warpwright_")}
    assert sum(after["warpwright_proofs_total"].values()) == 3


def test_there_are_no_series_of_when_series_were_made(fresh: FastAPI) -> None:
    assert not [name for name in series(of(fresh)) if name.endswith("_created")]
