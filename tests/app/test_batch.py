"""POST /v1/optimize/batch: a line for each problem, whatever happens to the others."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.answers import warm
from app.api.ndjson import as_completed
from app.main import create_app
from app.schemas.batches import BatchLine
from app.settings import Settings
from app.solver_pool import Reply, SolverPool
from app.store.database import Database
from solver.question import Question
from tests.app.conftest import service, sqlite_url
from tests.app.test_bad_input import problem

PATH = "/v1/optimize/batch"
DEFAULTS = {"n": 512, "k": 512}


@pytest.fixture(scope="module")
def keeping() -> Iterator[TestClient]:
    """A service as it is started, with its cache."""
    with service() as client:
        yield client


def lines_of(response: Any) -> list[dict[str, Any]]:
    """The lines of a batch's answer, each held against its schema, by index."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.headers["cache-control"] == "no-store"
    assert response.text.endswith("\n")
    for line in response.text.splitlines():
        BatchLine.model_validate_json(line)
    lines = [json.loads(line) for line in response.text.splitlines()]
    return sorted(lines, key=lambda line: int(line["index"]))


def test_every_line_has_the_single_answers_bytes(client: TestClient, keeping: TestClient) -> None:
    problems = [{"m": 512}, {"m": 64, "n": 4096, "dtype": "fp16"}, {"m": 512, "proof": "none"}]
    for asked in (client, keeping, keeping):
        response = asked.post(PATH, json={"defaults": DEFAULTS, "problems": problems})
        assert [line["index"] for line in lines_of(response)] == [0, 1, 2]
        for index, each in enumerate(problems):
            single = client.post("/v1/optimize", json={**DEFAULTS, **each}).text
            assert f'{{"index":{index},"answer":{single}}}' in response.text.splitlines()


def test_a_wrong_problem_is_its_own_lines_problem_document(client: TestClient) -> None:
    wrong: list[Any] = [
        {"m": 0},
        {"m": "512"},
        {"m": 512, "colour": 1},
        {},
        [],
        None,
        7,
        {"m": 512, "constraints": {"smem_bytes": {"max": 1000}}},
        {"m": 512, "device": "h2o"},
        {"m": 512, "dtype": "x" * 5000},
    ]
    problems = [each for one in wrong for each in (one, {"m": 512})]
    lines = lines_of(client.post(PATH, json={"defaults": DEFAULTS, "problems": problems}))
    assert [line["index"] for line in lines] == list(range(len(problems)))
    assert all(line["answer"]["config"] for line in lines[1::2])
    for one, line in zip(wrong, lines[::2], strict=True):
        merged = {**DEFAULTS, **one} if isinstance(one, dict) else one
        single = client.post(
            "/v1/optimize",
            content=json.dumps(merged),
            headers={"content-type": "application/json"},
        )
        told = problem(single, 422)
        assert told.pop("instance"), "the request's, of which a line has none of its own"
        assert line["error"] == told


def test_a_problems_own_member_comes_before_the_default(client: TestClient) -> None:
    body = {
        "defaults": {"m": 64, "n": 512, "k": 512, "constraints": {"sms": {"max": 9}}},
        "problems": [{}, {"m": 128, "constraints": {}}],
    }
    first, second = (line["answer"] for line in lines_of(client.post(PATH, json=body)))
    assert (first["problem"]["m"], first["constraints"]) == (64, {"sms": {"max": 9}})
    assert (second["problem"]["m"], second["constraints"]) == (128, {})


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({}, "problems", "is required and must be a list of 1 to 1000"),
        ({"problems": []}, "problems", "must be a list of 1 to 1000 problems, got 0"),
        ({"problems": [{}] * 1001}, "problems", "1 to 1000 problems, got 1001"),
        ({"problems": {"m": 1}}, "problems", "must be a list of 1 to 1000"),
        ({"problems": [{}], "defaults": []}, "defaults", "must be a JSON object, got list []"),
        ({"problems": [{}], "order": "input"}, "order", "there are problems, defaults"),
    ],
)
def test_a_batch_that_is_none_is_refused_whole(
    client: TestClient, body: Any, field: str, words: str
) -> None:
    (error,) = problem(client.post(PATH, json=body), 422)["errors"]
    assert error["field"] == field
    assert words in error["message"]


def test_a_batch_may_be_larger_than_a_question_up_to_a_limit_of_its_own() -> None:
    body = {"defaults": {"m": 0}, "problems": [{"n": 2**31 - 1, "k": 2**31 - 1}] * 1000}
    padded = {**body, "problems": [*body["problems"][:-1], {"dtype": "x" * 70_000}]}
    with service(body_bytes=1024, batch_body_bytes=100_000) as client:
        assert len(lines_of(client.post(PATH, json=body))) == 1000
        assert "100000 bytes" in problem(client.post(PATH, json=padded), 413)["detail"]
        large = {"m": 1, "n": 1, "k": 1, "device": "x" * 1024}
        assert "1024 bytes" in problem(client.post("/v1/optimize", json=large), 413)["detail"]


def test_a_thousand_problems_are_answered(keeping: TestClient) -> None:
    """Of the 1,000 a fifth are wrong, and the rest are four questions."""
    problems = [{"m": 64 * (n % 5)} for n in range(1000)]
    lines = lines_of(keeping.post(PATH, json={"defaults": DEFAULTS, "problems": problems}))
    assert [line["index"] for line in lines] == list(range(1000))
    for line in lines:
        m = problems[line["index"]]["m"]
        assert line["answer"]["problem"]["m"] == m if m else line["error"]["status"] == 422


# From here on the application is called as a server calls it, so that the test decides how
# fast the client reads and when it goes.


def nothing() -> None:
    """Warms nothing: these processes are asked nothing, or nothing that needs warmth."""


@asynccontextmanager
async def started(workers: int, initialise: Callable[[], None] = nothing) -> AsyncIterator[FastAPI]:
    settings = Settings(workers=workers, answer_cache_bytes=0)
    with TemporaryDirectory() as folder, closing(Database(sqlite_url(Path(folder)))) as database:
        database.open()
        database.hold()
        app = create_app(settings, database, initialise=initialise)
        async with app.router.lifespan_context(app):
            yield app


class Client:
    """One POST: its lines as they come, until it goes."""

    def __init__(self, app: FastAPI, body: Any, path: str = PATH) -> None:
        self._content = json.dumps(body).encode()
        self._path = path
        self._app = app
        self._asked = False
        self.gone = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self.lines: list[dict[str, Any]] = []
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "method": "POST",
            "path": self._path,
            "raw_path": self._path.encode(),
            "query_string": b"",
            "scheme": "http",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        }
        await self._app(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._content, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self.reads.wait()
        self.lines += [json.loads(line) for line in message.get("body", b"").splitlines()]


class Solver:
    """Stands in for the solver processes: counts, and answers each question after a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.005) -> None:
        self.begun = self.running = self.most = 0
        self.cancelled = 0

        async def ask(pool: Any, function: Any, question: Question, *_: Any) -> Reply:
            self.begun += 1
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            finally:
                self.running -= 1
            return Reply((b"%d" % question.problem.m, "optimal", {}), 0.0, 0.0)

        for name in ("ask", "ask_patiently"):
            monkeypatch.setattr(SolverPool, name, ask)


def batch(count: int, start: int = 1) -> dict[str, Any]:
    return {"defaults": DEFAULTS, "problems": [{"m": start + n} for n in range(count)]}


@pytest.mark.parametrize(("workers", "share"), [(1, 1), (2, 1), (4, 3)])
def test_batches_together_leave_a_process_to_single_questions(
    monkeypatch: pytest.MonkeyPatch, workers: int, share: int
) -> None:
    solver = Solver(monkeypatch)

    async def go() -> None:
        async with started(workers) as app:
            clients = [Client(app, batch(20, 1000 * (n + 1))) for n in range(3)]
            await asyncio.gather(*(client.task for client in clients))
            for n, client in enumerate(clients):
                assert sorted(line["answer"] for line in client.lines) == [
                    1000 * (n + 1) + each for each in range(20)
                ]

    asyncio.run(go())
    assert (solver.begun, solver.most) == (60, share)


def test_what_a_client_does_not_read_is_not_solved_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    solver = Solver(monkeypatch)

    async def go() -> None:
        async with started(4) as app:
            slow = Client(app, batch(200))
            while len(slow.lines) < 10:
                await asyncio.sleep(0.001)
            slow.reads.clear()
            await asyncio.sleep(0.1)
            held = solver.begun
            assert held <= len(slow.lines) + 10
            other = Client(app, batch(20, 5000))  # a client that stalls holds nobody up
            await other.task
            assert len(other.lines) == 20
            assert solver.begun == held + 20
            slow.reads.set()
            await slow.task
            assert len(slow.lines) == 200

    asyncio.run(go())


@pytest.mark.parametrize("reads", [True, False])
def test_the_rest_is_not_solved_once_the_client_has_gone(
    monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    solver = Solver(monkeypatch)

    async def go() -> None:
        async with started(4) as app:
            client = Client(app, batch(1000))
            while len(client.lines) < 10:
                await asyncio.sleep(0.001)
            if not reads:
                client.reads.clear()
                await asyncio.sleep(0.05)
            client.gone.set()
            await client.task
            begun = solver.begun
            await asyncio.sleep(0.1)
            assert solver.begun == begun < 100
            assert solver.running == 0
            assert app.state.services.batches._value == 3  # and others have their share again

    asyncio.run(go())


@pytest.mark.alone
def test_a_single_question_is_not_kept_waiting_by_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On one process it waits for one question of the batch, not for the batch."""
    seconds = 0.05

    async def body(*_: Any) -> None:
        async with started(1) as app:
            pool = app.state.services.pool
            await pool.ask(nothing)
            real = SolverPool.ask_patiently

            async def slow(pool: SolverPool, *_: Any) -> Reply:
                await real(pool, time.sleep, seconds)
                return Reply((b"1", "optimal", {}), 0.0, 0.0)

            monkeypatch.setattr(SolverPool, "ask_patiently", slow)
            client = Client(app, batch(100))
            while not client.lines:
                await asyncio.sleep(0.001)
            for _ in range(5):
                begun = time.monotonic()
                await pool.ask(nothing)
                assert time.monotonic() - begun < 10 * seconds
            assert len(client.lines) < 50
            client.gone.set()
            await client.task

    asyncio.run(body())


def test_a_defect_is_one_line_that_tells_nothing_of_the_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(pool: Any, function: Any, question: Question, *_: Any) -> Reply:
        if question.problem.m == 2:
            raise RuntimeError("the inside")
        return Reply((b"{}", "optimal", {}), 0.0, 0.0)

    monkeypatch.setattr(SolverPool, "ask_patiently", broken)

    async def go() -> list[dict[str, Any]]:
        async with started(2) as app:
            client = Client(app, batch(5))
            await client.task
            return sorted(client.lines, key=lambda line: int(line["index"]))

    lines = asyncio.run(go())
    assert [line["index"] for line in lines] == [0, 1, 2, 3, 4]
    assert [index for index, line in enumerate(lines) if "error" in line] == [1]
    assert lines[1]["error"]["type"] == "urn:warpwright:problem:internal-error"
    assert "inside" not in json.dumps(lines)


def test_a_batch_goes_on_after_its_solver_process_was_killed() -> None:
    others = set(multiprocessing.active_children())

    async def go() -> None:
        async with started(1, warm) as app:
            pool = app.state.services.pool
            while not pool.ready:
                await asyncio.sleep(0.05)
            client = Client(app, batch(20))
            while len(client.lines) < 5:
                await asyncio.sleep(0.001)
            for child in set(multiprocessing.active_children()) - others:
                child.kill()
            await client.task
            assert pool.restarts == 1
            assert sorted(line["index"] for line in client.lines) == list(range(20))
            assert all("answer" in line for line in client.lines), client.lines

    asyncio.run(go())


@pytest.mark.parametrize("window", [1, 3])
def test_no_more_are_under_way_or_unread_than_the_window_holds(window: int) -> None:
    begun = 0

    async def line(index: int, item: int) -> bytes:
        nonlocal begun
        begun += 1
        await asyncio.sleep(0)
        return b"%d %d" % (index, item)

    async def go() -> None:
        read = 0
        async for text in as_completed(range(100, 120), line, window=window):
            index, item = text.split()
            assert int(item) == int(index) + 100
            assert begun <= read + window
            read += 1
        assert read == 20

    asyncio.run(go())
