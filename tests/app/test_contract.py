"""The OpenAPI document against the service: schemathesis makes requests from the one and holds
every answer of the other to it, with all of its checks.

`make test` tries a few requests of each kind; `make test-contract` at least 2,000.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig

from app.keys import Scope
from app.main import create_app
from app.settings import Settings
from app.store.database import Database
from app.store.keys import KeyStore
from tests.app.conftest import host_has
from tests.app.live import serving
from tests.app.test_verifications import gpu, passing

CASES_MIN = 2000
OFF = {"enabled": False}
SLOW = "/v1/explain"
"""Asks its question some hundred times over: seconds an answer."""


FOLDER = tempfile.TemporaryDirectory()
SETTINGS = Settings(
    port=0,
    workers=1,
    database=f"sqlite:///{FOLDER.name}/contract.db",
    require_keys="always",
    access_log=False,
    solve_deadline_s=600,  # on a machine that is busy with more than this
)
DATABASE = Database(SETTINGS.database)
DATABASE.open()
DATABASE.hold()
APP = create_app(SETTINGS, DATABASE, runners={"verification": passing}, warm_gpu=dict)


def key_of_everything() -> str:
    """A key with every scope: the document's routes need one."""
    _, text = KeyStore(DATABASE).create("contract", frozenset({Scope.ADMIN}))
    return text


KEY = key_of_everything()


def config(cases: int, slow_cases: int, **explain: Any) -> SchemathesisConfig:
    """So many made up for each route, beside those that cover the document systematically."""
    return SchemathesisConfig.from_dict(
        {
            "generation": {"max-examples": cases, "deterministic": True},
            "request-timeout": 600,
            "headers": {"Authorization": f"Bearer {KEY}"},
            "output": {"sanitization": {"enabled": False}},  # `key_id` is no secret
            "operations": [
                {"include-path": SLOW, "generation": {"max-examples": slow_cases}, **explain}
            ],
            "checks": {
                # It takes the key that it was told to send for one it made up, where a case has
                # headers of its own; tests.app.test_access sends every route every wrong key.
                "ignored_auth": {"enabled": False},
                # A document can't state limits that several fields share, as of a pitch by k:
                # `held` says what else is asked of such a refusal.
                "positive_data_acceptance": {"expected-statuses": ["2xx", 304, 404, 422]},
                # 304 to an `If-None-Match` that is made up: `*` is what every caller has. 503 only
                # where it is documented: status_code_conformance sees to that.
                "not_a_server_error": {"expected-statuses": ["2xx", 304, "4xx", 503]},
            },
        }
    )


DOCUMENT = APP.openapi()
few = schemathesis.openapi.from_dict(
    DOCUMENT, config=config(5, 1, phases={"coverage": OFF, "fuzzing": OFF})
)
many = schemathesis.openapi.from_dict(DOCUMENT, config=config(300, 50))
JOBS = (
    "/v1/verifications/{verification_id}",
    "/v1/sweeps/{sweep_id}",
    "/v1/calibrations/{calibration_id}",
)
KERNEL = "/v1/kernels/{kernel_id}"
# No id that is made up is a job's, or a kernel's.
MADE_UP = {f"GET {KERNEL}"} | {
    label for job in JOBS for label in (f"GET {job}", f"DELETE {job}", f"GET {job}/events")
}
MADE_UP |= {f"GET {JOBS[0]}/trace.svg", f"GET {JOBS[1]}/rows"}
SHARED = {"invalid-input", "unsatisfiable", "no-kernel-family"}


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """Where the service is, over real HTTP."""
    with pytest.MonkeyPatch.context() as patch:
        host_has(patch, gpu())
        with serving(APP) as port:
            yield f"http://127.0.0.1:{port}"
    FOLDER.cleanup()


@pytest.fixture(scope="module")
def answers(service: str) -> Iterator[Counter[tuple[str, int]]]:
    """How often which operation gave which status; no operation may have refused everything."""
    counted: Counter[tuple[str, int]] = Counter()
    yield counted
    print(f"\n{counted.total()} cases:", dict(sorted(counted.items())))
    done = {operation for operation, status in counted if status < 300}
    assert {operation for operation, _ in counted} - done <= MADE_UP


def held(case: Any, service: str, answers: Counter[tuple[str, int]]) -> None:
    """Send a case, hold its answer to the document, and count it."""
    response = case.call_and_validate(base_url=service)
    answers[case.operation.label, response.status_code] += 1
    if response.status_code == 422 and case.meta.generation.mode.is_positive:
        kind = response.json()["type"].rpartition(":")[2]
        assert case.method == "POST" or case.path == "/v1/optimize", "no limits that fields share"
        assert kind in SHARED


@few.parametrize()
def test_answers_are_as_documented(
    case: Any, service: str, answers: Counter[tuple[str, int]]
) -> None:
    held(case, service, answers)


@pytest.mark.contract
@pytest.mark.timeout(3600)
@many.parametrize()
def test_thousands_of_answers_are_as_documented(
    case: Any, service: str, answers: Counter[tuple[str, int]]
) -> None:
    held(case, service, answers)


@pytest.mark.contract
def test_there_were_thousands(answers: Counter[tuple[str, int]]) -> None:
    assert answers.total() >= CASES_MIN
