"""Every response that the OpenAPI document names is one that the operation gives: each of them is
brought about here. That it gives no others is what tests.app.test_contract holds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api.documents import kinds_of
from app.errors import StoreUnavailable
from app.keys import Scope
from app.main import create_app
from app.problem_documents import KINDS, ProblemKind
from app.settings import Settings
from app.store.database import Database
from app.store.job import Job, Outcome
from app.turn import Turn
from kernels.errors import CompileFailed, CompilerAbsent, CompilerMismatch
from kernels.host import HostGpu
from kernels.sources import kernel_id
from solver.families.sm90_gemm import CompileKey
from tests.app.conftest import gpus_of, host_has, service
from tests.app.key_tools import new_key, services_of
from tests.app.test_verifications import ended, gpu
from tests.app.traces import trace

DOCUMENT = create_app(
    Settings(require_keys="always"), Database(Settings().database)
).openapi()  # never opened
OPERATIONS = {
    (method.upper(), path): operation
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
}
REFUSALS = [
    (method, path, kind.name)
    for (method, path), operation in OPERATIONS.items()
    for response in operation["responses"].values()
    for kind in kinds_of(response)
]
OTHERS = [
    (method, path, status)
    for (method, path), operation in OPERATIONS.items()
    for status, response in operation["responses"].items()
    if not kinds_of(response)
]
KERNEL = "/v1/kernels/{kernel_id}"
SUBMIT = ("/v1/verifications", "/v1/sweeps", "/v1/calibrations")
SMALL = {"m": 64, "n": 64, "k": 64}
CONFIG = {"family": "sm90_gemm", "tile_m": 64, "tile_n": 64, "tile_k": 64, "stages": 4}
BODIES: dict[str, Any] = {
    "/v1/calibrations": {"dry_run": True},
    "/v1/sweeps": {"problems": [SMALL]},
    "/v1/optimize/batch": {"problems": [SMALL]},
    "/v1/explain": {**SMALL, "proof": "none"},
    "/v1/simulate": {**SMALL, "config": CONFIG},
    "/v1/advise": {"op": "norm_activation", "rows": 64, "width": 64},
}


def key_of_kernel(dtype: str, layout: str, tile_n: int) -> CompileKey:
    return CompileKey(dtype, layout, 64, tile_n, 64, 1, 0, 0)


CLASH = {"smem_bytes": {"max": 1}}
UNKNOWN_MODEL = HostGpu("NVIDIA GeForce GTX 970", "GPU-0", "580", 2**32, (5, 2), 1178, ())


class Asked:
    """A service that has a GPU and ends jobs when it is told to, asked with a key of all scopes
    where a request has no other."""

    def __init__(self, client: TestClient, over: threading.Event) -> None:
        self.client = client
        self.over = over
        client.headers.update(new_key(client, Scope.ADMIN)[1])

    def job(self, path: str, *, over: bool = True) -> str:
        """The id of a job that has ended, or of one that has not, of the kind that a path has."""
        (self.over.set if over else self.over.clear)()
        kind = next((submit for submit in SUBMIT if path.startswith(submit)), SUBMIT[0])
        submitted = self.client.post(kind, json=BODIES.get(kind, SMALL))
        if over:
            ended(self.client, submitted.headers["location"])
        return str(submitted.json()["id"])

    def __call__(self, method: str, path: str, *, job: str | None = None, **given: Any) -> Any:
        """A request that is accepted, but for what is ``given``."""
        if path == KERNEL:
            path = path.format(kernel_id=job or kernel_id(key_of_kernel("bf16", "tn", 64)))
        elif "{" in path:
            job = job or self.job(path)
            path = path.format(verification_id=job, calibration_id=job, sweep_id=job)
        if method == "POST" and not {"json", "content"} & set(given):
            given["json"] = BODIES.get(path, SMALL)
        if method == "GET" and path == "/v1/optimize":
            given.setdefault("params", SMALL)
        return self.client.request(method, path, **given)


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    over = threading.Event()

    def held(job: Job, turn: Turn) -> Outcome:
        over.wait(60)
        return Outcome("passed", None, {"trace": trace()})

    with service(
        gpu(),
        held,
        calibrate=held,
        sweep=held,
        require_keys="always",
        verifications_waiting=3,
        body_bytes=4096,
    ) as client:
        yield Asked(client, over)
        over.set()


Provoke = Callable[[Asked, str, str, pytest.MonkeyPatch], Any]


def with_headers(**headers: str) -> Provoke:
    return lambda asked, method, path, patch: asked(method, path, headers=headers)


def with_body(content: str | bytes, media_type: str = "application/json") -> Provoke:
    given: Any = {"content": content, "headers": {"content-type": media_type}}
    return lambda asked, method, path, patch: asked(method, path, **given)


def broken(name: str, error: Exception) -> Provoke:
    """Where something of the service raises."""

    def provoke(asked: Asked, method: str, path: str, patch: pytest.MonkeyPatch) -> Any:
        job = None if path == KERNEL else asked.job(path)

        async def raising(*_: Any, **__: Any) -> Any:
            raise error

        patch.setattr(name, raising)
        return asked(method, path, job=job)

    return provoke


def without_scope(asked: Asked, method: str, path: str, patch: pytest.MonkeyPatch) -> Any:
    (needed,) = OPERATIONS[method, path]["security"][0]["key"]
    other = Scope.VERIFY if needed == "optimize" else Scope.OPTIMIZE
    return asked(method, path, headers=new_key(asked.client, other)[1])


def too_often(asked: Asked, method: str, path: str, patch: pytest.MonkeyPatch) -> Any:
    key = new_key(asked.client, Scope.ADMIN, requests_per_minute=1)[1]
    asked.client.get("/v1/devices", headers=key)
    return asked(method, path, headers=key)


def invalid(asked: Asked, method: str, path: str, patch: pytest.MonkeyPatch) -> Any:
    if method == "POST":
        return asked(method, path, json={"m": None})
    if path.endswith("/events"):
        return asked(method, path, headers={"last-event-id": "x"})
    return asked(method, path, params={"colour": 1})


def clashing(asked: Asked, method: str, path: str, patch: pytest.MonkeyPatch) -> Any:
    if method == "POST":
        return asked(method, path, json={**SMALL, "constraints": CLASH})
    return asked(method, path, params={**SMALL, "constraints": '{"smem_bytes": {"max": 1}}'})


def on_host(host: HostGpu | None) -> Provoke:
    def provoke(asked: Asked, method: str, path: str, patch: pytest.MonkeyPatch) -> Any:
        host_has(patch, *gpus_of(host))
        patch.setattr("app.gpus.LOOK_S", 0.0)
        return asked(method, path)

    return provoke


def beyond_quota(asked: Asked, method: str, path: str, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr("app.quota.gpu_seconds", lambda *_: 2.0)
    key = new_key(asked.client, Scope.ADMIN, gpu_seconds_per_day=1.0)[1]
    return asked(method, path, headers=key)


def queue_full(asked: Asked, method: str, path: str, patch: pytest.MonkeyPatch) -> Any:
    jobs = [asked.job(path, over=False)]
    while (answer := asked(method, path)).status_code == 202:
        jobs.append(answer.json()["id"])
    asked.over.set()
    for job in jobs:
        ended(asked.client, f"{path}/{job}")
    return answer


def unknown(asked: Asked, method: str, path: str, patch: pytest.MonkeyPatch) -> Any:
    return asked(method, path, job="none")


PROVOKE: dict[str, Provoke] = {
    "malformed-json": with_body("{"),
    "key-needed": with_headers(authorization="Bearer ww_"),
    "scope-needed": without_scope,
    "foreign-origin": with_headers(origin="https://evil.example"),
    "not-found": unknown,
    "body-timeout": broken("app.api.guards._read", TimeoutError()),
    "already-ended": lambda asked, method, path, patch: asked(method, path),
    "body-too-large": with_body(b" " * (2**20 + 1)),
    "unsupported-media-type": with_body("{}", "text/plain"),
    "foreign-host": with_headers(host="evil.example"),
    "invalid-input": invalid,
    "unsatisfiable": clashing,
    "no-kernel-family": on_host(UNKNOWN_MODEL),
    "rate-limited": too_often,
    "quota-exceeded": beyond_quota,
    "queue-full": queue_full,
    "internal-error": broken("app.api.head.HeadAsGet.__call__", RuntimeError("a defect")),
    "gpu-absent": on_host(None),
    "compile-failed": broken("app.solver_pool.SolverPool.ask", CompileFailed("id", "no", "")),
    "compiler-absent": broken("app.solver_pool.SolverPool.ask", CompilerAbsent("no NVRTC")),
    "environment": broken("app.solver_pool.SolverPool.ask", CompilerMismatch("others")),
    "unavailable": broken("app.key_ring.KeyRing.find", StoreUnavailable("gone")),
}
OF_COMMANDS = {"no-pick"}
OF_ADDRESSES = {"method-not-allowed"}
"""Kinds of no operation: 405 is what an address answers to a method that is none of its own."""


def test_every_kind_of_problem_is_some_operations_or_known_to_be_none() -> None:
    assert {kind for _, _, kind in REFUSALS} == set(PROVOKE)
    names: set[str] = {kind.name for kind in KINDS}
    assert names == set(PROVOKE) | OF_COMMANDS | OF_ADDRESSES


def kind_of(name: str) -> ProblemKind:
    return next(kind for kind in KINDS if kind.name == name)


@pytest.mark.parametrize(("method", "path", "name"), REFUSALS)
def test_a_documented_refusal_is_given(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, method: str, path: str, name: str
) -> None:
    response = PROVOKE[name](asked, method, path, monkeypatch)
    assert response.status_code == kind_of(name).status, response.text
    assert response.json()["type"] == kind_of(name).type
    assert (
        response.json()["title"]
        in (OPERATIONS[method, path]["responses"][str(response.status_code)]["description"])
    )


def accepted(asked: Asked, method: str, path: str, status: str) -> Any:
    """The answer of an operation with a status that is no refusal."""
    if method == "POST" and path in SUBMIT and status == "200":
        again = {"idempotency-key": path}
        asked(method, path, headers=again)
        return asked(method, path, headers=again)
    if method == "DELETE":
        running = asked.job(path, over=False)
        while asked("GET", path, job=running).json()["status"] != "running":
            time.sleep(0.02)
        waiting = asked.job(path, over=False)
        answers = {
            "200": asked(method, path, job=waiting),
            "202": asked(method, path, job=running),
        }
        asked.over.set()
        return answers[status]
    if status == "304":
        tag = asked(method, path).headers["etag"]
        return asked(method, path, headers={"if-none-match": tag})
    return asked(method, path)


@pytest.mark.parametrize(("method", "path", "status"), OTHERS)
def test_a_documented_answer_is_given(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, method: str, path: str, status: str
) -> None:
    if (path, status) == ("/readyz", "503"):
        monkeypatch.setattr(type(services_of(asked.client).pool), "ready", False)
    response = accepted(asked, method, path, status)
    assert response.status_code == int(status), response.text
    content = OPERATIONS[method, path]["responses"][status].get("content", {})
    media_type = response.headers.get("content-type", "").partition(";")[0]
    assert [media_type] == (list(content) or [""])


@pytest.mark.parametrize(
    ("settings", "checked"),
    [
        ({}, True),
        ({"host": "0.0.0.0"}, False),
        ({"host": "0.0.0.0", "allowed_hosts": ("box.example",)}, True),
    ],
)
def test_a_foreign_host_is_documented_only_where_one_is_refused(
    settings: dict[str, Any], checked: bool
) -> None:
    document = create_app(Settings(**settings), Database(Settings().database)).openapi()
    for operations in document["paths"].values():
        for operation in operations.values():
            assert ("421" in operation["responses"]) is checked
