"""The pool of solver processes, with tasks that misbehave."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from app.errors import Busy, DeadlinePassed, SolverLost
from app.logs import REQUEST_ID, add_context
from app.solver_pool import SolverPool
from kernels.process import Worker
from solver.errors import IllegalConfig, InvalidInput


def nothing() -> None:
    pass


def forever() -> None:
    time.sleep(3600)


def double(value: int) -> int:
    return 2 * value


def process() -> int:
    return os.getpid()


def refuse(field: str) -> None:
    raise IllegalConfig(field, "is too large")


def break_down() -> None:
    raise ZeroDivisionError("a defect")


def die() -> None:
    os._exit(7)


def die_once(flag: str) -> str:
    if not Path(flag).exists():
        Path(flag).touch()
        os._exit(7)
    return "answered"


def complain(words: str) -> None:
    logging.getLogger("solver").warning(words)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def run(
    body: Callable[[SolverPool], Awaitable[Any]],
    *,
    workers: int = 1,
    waiting: int = 8,
    deadline_s: float = 30.0,
) -> Any:
    async def go() -> Any:
        pool = SolverPool(nothing, workers=workers, waiting=waiting, deadline_s=deadline_s)
        pool.start()
        try:
            return await body(pool)
        finally:
            await pool.stop()

    return asyncio.run(go())


def test_a_task_runs_in_another_process() -> None:
    async def body(pool: SolverPool) -> None:
        assert (await pool.ask(double, 21)).value == 42
        assert (await pool.ask(process)).value != os.getpid()

    run(body)


def test_what_a_process_logs_has_the_id_of_the_request_it_works_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.handler.addFilter(add_context)

    async def ask(pool: SolverPool, name: str) -> None:
        REQUEST_ID.set(name)
        await pool.ask(complain, name)

    async def body(pool: SolverPool) -> None:
        await asyncio.gather(*(asyncio.create_task(ask(pool, name)) for name in ("one", "two")))

    try:
        run(body)
    finally:
        caplog.handler.removeFilter(add_context)
    said = [vars(record) for record in caplog.records if record.name == "solver"]
    assert sorted(line["message"] for line in said) == ["one", "two"]
    assert all(line["request_id"] == line["message"] for line in said)


def test_a_users_mistake_comes_back_as_it_was_raised() -> None:
    async def body(pool: SolverPool) -> None:
        with pytest.raises(IllegalConfig) as caught:
            await pool.ask(refuse, "stages")
        assert (caught.value.field, caught.value.message) == ("stages", "is too large")
        assert isinstance(caught.value, InvalidInput)
        assert pool.restarts == 0

    run(body)


def test_a_defect_is_reported_and_the_process_replaced() -> None:
    async def body(pool: SolverPool) -> None:
        before = (await pool.ask(process)).value
        with pytest.raises(RuntimeError, match="a defect"):
            await pool.ask(break_down)
        assert (await pool.ask(process)).value != before

    run(body)


def test_a_task_whose_process_died_is_tried_once_more(tmp_path: Path) -> None:
    async def body(pool: SolverPool) -> None:
        assert (await pool.ask(die_once, str(tmp_path / "flag"))).value == "answered"
        assert pool.restarts == 1

    run(body)


def test_a_task_that_kills_two_processes_is_given_up_and_others_go_on() -> None:
    async def body(pool: SolverPool) -> None:
        with pytest.raises(SolverLost):
            await pool.ask(die)
        assert (await pool.ask(double, 1)).value == 2

    run(body)


def test_a_task_past_its_deadline_is_ended_and_others_go_on() -> None:
    async def body(pool: SolverPool) -> None:
        await _until(lambda: pool.ready)  # a process may take longer to start than a task may
        begun = time.monotonic()
        with pytest.raises(DeadlinePassed):
            await pool.ask(sleep, 60.0)
        assert time.monotonic() - begun < 10
        await _until(lambda: pool.ready)
        assert (await pool.ask(double, 1)).value == 2

    run(body, deadline_s=1.0)


def test_a_poisonous_task_does_not_disturb_its_neighbours() -> None:
    async def body(pool: SolverPool) -> None:
        tasks = [pool.ask(sleep, 0.3), pool.ask(die), pool.ask(sleep, 0.3)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[1], SolverLost)
        assert not isinstance(results[0], BaseException)
        assert not isinstance(results[2], BaseException)

    run(body, workers=2)


@pytest.mark.alone
def test_more_tasks_than_may_wait_are_refused_at_once() -> None:
    async def body(pool: SolverPool) -> None:
        await pool.ask(nothing)
        busy = asyncio.create_task(pool.ask(sleep, 0.5))
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(pool.ask(double, 1))
        await asyncio.sleep(0.05)
        with pytest.raises(Busy, match="at most 1 may"):
            await pool.ask(double, 1)
        assert (await waiting).value == 2
        await busy

    run(body, waiting=1)


@pytest.mark.alone
def test_a_cancelled_request_does_not_free_a_process_at_work() -> None:
    async def body(pool: SolverPool) -> None:
        await pool.ask(nothing)
        request = asyncio.create_task(pool.ask(sleep, 0.5))
        await asyncio.sleep(0.05)
        request.cancel()
        reply = await pool.ask(double, 1)
        assert reply.value == 2
        assert reply.queue_ms > 200

    run(body)


@pytest.mark.alone
def test_the_event_loop_runs_while_a_process_works() -> None:
    async def body(pool: SolverPool) -> None:
        await pool.ask(nothing)
        task = asyncio.create_task(pool.ask(sleep, 0.4))
        longest = 0.0
        while not task.done():
            before = time.monotonic()
            await asyncio.sleep(0.005)
            longest = max(longest, time.monotonic() - before)
        assert longest < 0.2

    run(body)


def test_stopping_ends_a_process_at_work() -> None:
    async def body(pool: SolverPool) -> float:
        await pool.ask(nothing)
        request = asyncio.create_task(pool.ask(sleep, 60.0))
        await asyncio.sleep(0.1)
        request.cancel()
        return time.monotonic()

    begun = run(body)
    assert time.monotonic() - begun < 10


async def _until(condition: Callable[[], bool], within_s: float = 20.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), RuntimeError("no thread")])
@pytest.mark.parametrize("inside", ["_connect", "call"])
def test_a_slot_outlives_a_process_that_could_not_be_started(
    monkeypatch: pytest.MonkeyPatch, error: Exception, inside: str
) -> None:
    """At the start, and again while it held a question."""
    monkeypatch.setattr("app.restarts.MOST_S", 0.05)
    failures = 2
    real = getattr(Worker, inside)

    def flaky(self: Worker, *arguments: Any) -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise error
        return real(self, *arguments)

    monkeypatch.setattr(Worker, inside, flaky)

    async def body(pool: SolverPool) -> None:
        nonlocal failures
        assert (await pool.ask(double, 2)).value == 4
        assert pool.ready
        failures = 2
        with suppress(type(error)):  # or it is asked again and answered
            await pool.ask(double, 2)
        assert (await pool.ask(double, 2)).value == 4
        assert (pool.workers, pool.restarts) == (1, 1)

    run(body)


def test_a_question_that_cannot_be_sent_leaves_the_slot() -> None:
    async def body(pool: SolverPool) -> None:
        with pytest.raises(Exception, match="pickle"):
            await pool.ask(double, lambda: None)
        assert (await pool.ask(double, 2)).value == 4

    run(body)


@pytest.mark.parametrize("watch_s", [0.02, 3600.0])
def test_a_process_that_dies_idle_is_counted_and_replaced_warm(
    monkeypatch: pytest.MonkeyPatch, watch_s: float
) -> None:
    monkeypatch.setattr("app.solver_pool.WATCH_S", watch_s)

    async def body(pool: SolverPool) -> None:
        pid = (await pool.ask(process)).value
        os.kill(pid, signal.SIGKILL)
        if watch_s < 1:
            await _until(lambda: pool.restarts == 1)
        else:
            await _until(lambda: not pool.ready)
        assert (await pool.ask(process)).value != pid
        assert (pool.restarts, pool.workers) == (1, 1)

    run(body)


def test_stopping_kills_no_process_by_an_id_that_may_be_anothers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.solver_pool.WATCH_S", 3600.0)
    killed: list[int] = []
    real = os.kill

    def kill(pid: int, number: int) -> None:
        killed.append(pid)
        real(pid, number)

    async def body(pool: SolverPool) -> int:
        pid: int = (await pool.ask(process)).value
        os.kill(pid, signal.SIGKILL)
        await _until(lambda: not pool.ready)  # reaped: the id is free from here on
        monkeypatch.setattr(os, "kill", kill)
        return pid

    pid = run(body)
    assert pid not in killed


def test_stopping_does_not_wait_for_a_process_that_starts() -> None:
    async def go() -> None:
        pool = SolverPool(forever, workers=2, waiting=1, deadline_s=1.0)
        pool.start()
        await asyncio.sleep(0.05)
        await pool.stop()

    begun = time.monotonic()
    asyncio.run(go())
    assert time.monotonic() - begun < 10
