"""The pool of solver processes, with tasks that misbehave."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from app.errors import Busy, DeadlinePassed, SolverLost
from app.solver_pool import SolverPool
from solver.errors import IllegalConfig, InvalidInput


def nothing() -> None:
    pass


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
        await pool.ask(nothing)
        begun = time.monotonic()
        with pytest.raises(DeadlinePassed):
            await pool.ask(sleep, 60.0)
        assert time.monotonic() - begun < 10
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
