"""Every route of the application against every kind of key that must not open it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from app.api.access import PUBLIC, AccessTable, needs
from app.cli.main import main
from app.errors import StoreUnavailable
from app.key_ring import KeyRing
from app.keys import KEY_LENGTH, KEY_WORDS, Scope, new_id, new_secret, written
from app.main import create_app
from app.problem_documents import ProblemDocument
from app.settings import Settings
from app.store.database import Database
from app.store.keys import KeyStore
from tests.app.conftest import service
from tests.app.key_tools import expired_key, keyed_service, new_key, revoked_key, services_of

APP = create_app(Settings(), Database(Settings().database))  # never opened
TABLE = AccessTable(APP.routes)
ROUTES = [(method, entry.path) for entry in TABLE.entries for method in sorted(entry.methods)]
CLOSED = [(m, p) for m, p in ROUTES if TABLE.scope_of(m, p) is not None]
OPEN = set(ROUTES) - set(CLOSED)
NO_SCOPE: dict[Scope, list[Scope]] = {
    Scope.OPTIMIZE: [Scope.VERIFY],
    Scope.VERIFY: [Scope.OPTIMIZE],
    Scope.ADMIN: [Scope.OPTIMIZE, Scope.VERIFY],
}
UNKNOWN = f"ww_{'0' * 12}_{'0' * 64}"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with keyed_service() as client:
        yield client


def ask(client: TestClient, method: str, path: str, headers: Any = None) -> Any:
    """A request to a route; its body, where it takes one, is no valid question."""
    sent = [("content-type", "application/json"), *httpx2.Headers(headers).multi_items()]
    content = "{}" if method == "POST" else None
    return client.request(method, re.sub("[{}]", "", path), content=content, headers=sent)


def test_the_help_on_making_a_key_names_all_that_an_admin_alone_may(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = {
        "/v1/calibrations": "calibrations",
        "/v1/launches": "the audit",
        "/metrics": "/metrics",
    }
    admins = {path for method, path in CLOSED if TABLE.scope_of(method, path) == Scope.ADMIN}
    assert {path.partition("/{")[0] for path in admins} == set(words)
    assert main(["keys", "create", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split()).partition("admin, both, ")[2]
    assert all(word in text.partition("; required")[0] for word in words.values())


def test_the_open_routes_are_those_that_are_meant_to_be() -> None:
    files = ("/static/page.css", "/static/page.js", "/static/icon.svg")
    paths = ("/healthz", "/readyz", "/", *files, "/docs", "/openapi.json")
    assert {(method, path) for method in ("GET", "HEAD") for path in paths} == OPEN
    assert len(CLOSED) >= 7


@pytest.mark.parametrize(("method", "path"), CLOSED)
@pytest.mark.parametrize(
    "kind", ["missing", "malformed", "scheme", "twice", "unknown", "wrong", "expired", "revoked"]
)
def test_a_closed_route_is_refused_to_whoever_has_no_valid_key(
    client: TestClient, method: str, path: str, kind: str
) -> None:
    key, right = new_key(client, *Scope)
    headers: Any = {
        "missing": {},
        "malformed": {"authorization": "Bearer ww_" + "0" * 76},
        "scheme": {"authorization": right["authorization"].replace("Bearer", "Basic")},
        "twice": httpx2.Headers([("authorization", right["authorization"])] * 2),
        "unknown": {"authorization": f"Bearer {UNKNOWN}"},
        "wrong": {"authorization": f"Bearer ww_{key.id}_{'0' * 64}"},
        "expired": expired_key(client, *Scope),
        "revoked": revoked_key(client, *Scope),
    }[kind]
    response = ask(client, method, path, headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith('Bearer realm="warpwright"')
    if method != "HEAD":
        assert ProblemDocument.model_validate_json(response.content).status == 401


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_a_closed_route_is_refused_to_a_key_without_its_scope(
    client: TestClient, method: str, path: str
) -> None:
    needed = TABLE.scope_of(method, path)
    assert needed is not None
    response = ask(client, method, path, new_key(client, *NO_SCOPE[needed])[1])
    assert response.status_code == 403
    assert f'error="insufficient_scope", scope="{needed}"' in response.headers["www-authenticate"]
    if method != "HEAD":
        assert needed in response.json()["detail"]


@pytest.mark.parametrize(("method", "path"), CLOSED)
@pytest.mark.parametrize("admin", [False, True])
def test_a_route_is_open_to_a_key_with_its_scope_and_to_an_admins(
    client: TestClient, method: str, path: str, admin: bool
) -> None:
    needed = TABLE.scope_of(method, path)
    assert needed is not None
    response = ask(client, method, path, new_key(client, Scope.ADMIN if admin else needed)[1])
    assert response.status_code not in (401, 403, 429)


@pytest.mark.parametrize(("method", "path"), sorted(OPEN))
def test_an_open_route_asks_for_no_key(client: TestClient, method: str, path: str) -> None:
    assert ask(client, method, path).status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/v1/none", "/static/", "/static/x", "/docs/", "//docs", "//", "/healthz/x", "/v1/optimize/"],
)
def test_an_address_without_a_route_is_refused_without_a_key(client: TestClient, path: str) -> None:
    url = str(client.base_url).rstrip("/") + path  # whole: a client takes //docs alone for a host
    assert client.get(url).status_code == 401
    assert client.get(url, headers=new_key(client, Scope.VERIFY)[1]).status_code == 404


def test_a_method_that_a_route_does_not_take_needs_a_key_too(client: TestClient) -> None:
    assert client.put("/v1/devices", json={}).status_code == 401
    headers = new_key(client, Scope.VERIFY)[1]
    assert client.put("/v1/devices", json={}, headers=headers).status_code == 405


def test_nothing_tells_a_wrong_key_from_an_unknown_one(client: TestClient) -> None:
    key, _ = new_key(client, Scope.OPTIMIZE)
    wrong, unknown = (
        client.get("/v1/devices", headers={"authorization": f"Bearer {text}"})
        for text in (f"ww_{key.id}_{'1' * 64}", UNKNOWN)
    )
    for response in (wrong, unknown):
        assert response.headers["x-request-id"] in response.json()["instance"]
    assert {**wrong.json(), "instance": ""} == {**unknown.json(), "instance": ""}
    assert set(wrong.headers) == set(unknown.headers)
    assert wrong.headers["www-authenticate"] == unknown.headers["www-authenticate"]


CUTS: dict[str, slice] = {
    "the secret's end": slice(None, -1),
    "most of it": slice(None, 20),
    "the secret": slice(None, -64),
    "all but the prefix": slice(None, 3),
    "the prefix": slice(3, None),
    "the id": slice(16, None),
    "everything": slice(0, 0),
}


@pytest.mark.parametrize("cut", CUTS)
def test_whoever_sends_a_part_of_a_key_is_told_what_a_whole_one_is(
    client: TestClient, cut: str
) -> None:
    _, right = new_key(client, Scope.OPTIMIZE)
    whole = right["authorization"].removeprefix("Bearer ")
    details = []
    for text in (whole, UNKNOWN):
        part = text[CUTS[cut]]
        response = client.get("/v1/devices", headers={"authorization": f"Bearer {part}"})
        assert response.status_code == 401
        details.append(response.json()["detail"])
    told = details[0]
    assert "no whole key: one is ww_, 12 digits of 0-9a-f, _ and 64 more digits" in told
    assert "80 characters in all" in told
    assert told.endswith(f"has {len(part)}")
    # Of a key that there is no more is said than of one that there isn't, and none of it.
    assert details[0] == details[1]
    assert whole[3:15] not in told


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ([("authorization", "Basic d3c6d3c=")], "not of the scheme Bearer: send Authorization"),
        ([("authorization", UNKNOWN)], "not of the scheme Bearer"),
        ([("authorization", f"Bearer {UNKNOWN}")] * 2, "there are 2 Authorization headers"),
        ([("authorization", f"Bearer {UNKNOWN.upper()}")], "no whole key: one is ww_"),
        ([("authorization", f"Bearer {UNKNOWN}0")], "has 81"),
        ([], "a key is needed: send Authorization: Bearer ww_"),
    ],
)
def test_what_is_wrong_with_a_header_is_told(
    client: TestClient, headers: list[tuple[str, str]], words: str
) -> None:
    response = client.get("/v1/devices", headers=httpx2.Headers(headers))
    assert response.status_code == 401
    assert words in response.json()["detail"]


def test_what_a_whole_key_looks_like_is_what_keys_look_like() -> None:
    key = written(new_id(), new_secret())
    assert len(key) == KEY_LENGTH
    prefix, id_digits, secret_digits = re.findall(r"^(\w+_),|(\d+) digits|and (\d+)", KEY_WORDS)
    shape = f"{prefix[0]}[0-9a-f]{{{id_digits[1]}}}_[0-9a-f]{{{secret_digits[2]}}}"
    assert re.fullmatch(shape, key)


def test_an_ended_key_is_told_so_only_by_its_secret(client: TestClient) -> None:
    headers = revoked_key(client, Scope.OPTIMIZE)
    assert "revoked" in client.get("/v1/devices", headers=headers).json()["detail"]
    wrong = headers["authorization"][:-64] + "0" * 64
    response = client.get("/v1/devices", headers={"authorization": wrong})
    assert response.json()["detail"] == "there is no such key"


def test_a_body_is_not_read_for_whoever_has_no_key(client: TestClient) -> None:
    response = client.post("/v1/optimize", content=b"x" * 100_000)
    assert response.status_code == 401
    assert response.headers["connection"] == "close"


def test_refusals_are_counted_by_reason(client: TestClient) -> None:
    refused = services_of(client).metrics.refused
    before = {r: refused.labels(r)._value.get() for r in ("missing", "scope")}
    client.get("/v1/devices")
    client.get("/metrics", headers=new_key(client, Scope.VERIFY)[1])
    for reason, count in before.items():
        assert refused.labels(reason)._value.get() == count + 1


def test_on_loopback_no_key_is_needed_but_a_given_one_must_be_right() -> None:
    with service() as loopback:
        assert loopback.get("/v1/launches").status_code == 200
        unknown = {"authorization": f"Bearer {UNKNOWN}"}
        assert loopback.get("/v1/devices", headers=unknown).status_code == 401
        under = new_key(loopback, Scope.VERIFY)[1]
        assert loopback.get("/v1/devices", headers=under).status_code == 403


@pytest.mark.parametrize(
    ("settings", "required"),
    [
        (Settings(), False),
        (Settings(require_keys="always"), True),
        (Settings(host="0.0.0.0"), True),
        (Settings(host="::"), True),
        (Settings(host="192.0.2.1", allowed_hosts=("box.example",)), True),
    ],
)
def test_keys_are_required_unless_bound_to_loopback(settings: Settings, required: bool) -> None:
    assert settings.keys_required is required


def test_a_route_that_declares_no_scope_keeps_the_service_from_starting() -> None:
    router = APIRouter(prefix="/v1")

    @router.get("/forgotten")
    async def forgotten() -> None:
        """Has no @needs."""

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.include_router(router)
    with pytest.raises(TypeError, match="/v1/forgotten says not which scope"):
        AccessTable(app.routes)


def test_the_table_takes_the_route_that_the_router_takes() -> None:
    router = APIRouter()
    seen: list[str] = []

    @router.get("/things/open")
    @needs(PUBLIC)
    async def open_() -> None:
        seen.append("open")

    @router.get("/things/{name}")
    @needs(Scope.ADMIN)
    async def closed(name: str) -> None:
        seen.append("closed")

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.include_router(router)
    table = AccessTable(app.routes)
    client = TestClient(app)
    for path in ("/things/open", "/things/opens", "/things/open%0a", "/things/%6fpen", "/things/a"):
        seen.clear()
        client.get(path)
        found = table.find({"type": "http", "method": "GET", "path": unquote(path)})
        assert (found is None) == (not seen)
        if found is not None:
            assert (found.scope is PUBLIC) == (seen == ["open"])


def test_metrics_can_be_opened_alone() -> None:
    with keyed_service(metrics_open=True) as client:
        assert client.get("/metrics").status_code == 200
        assert client.get("/v1/launches").status_code == 401


@pytest.mark.alone
def test_a_revoked_key_ends_within_two_seconds_and_a_fresh_one_works_at_once(
    client: TestClient,
) -> None:
    key, headers = new_key(client, Scope.OPTIMIZE)
    assert client.get("/v1/devices", headers=headers).status_code == 200
    KeyStore(services_of(client).database).revoke(key.id)
    begun = time.monotonic()
    while client.get("/v1/devices", headers=headers).status_code == 200:
        assert time.monotonic() - begun < 2
        time.sleep(0.02)


def test_what_the_database_can_not_say_is_not_believed() -> None:
    def gone() -> Any:
        raise StoreUnavailable("the database can't be used: gone")

    with pytest.raises(StoreUnavailable):
        asyncio.run(KeyRing(gone).find("0" * 12))
