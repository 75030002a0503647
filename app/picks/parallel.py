"""Many calls in processes of their own, several at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

from app.errors import EnvironmentLacks
from kernels.process import Outcome, OutcomeKind, Worker

DEADLINE_S = 600.0
"""Longest time of one call."""


JOBS_USUAL_MAX = 16
"""A process takes some 200 MB: one for each core of a large machine would be a lot."""


def usual_jobs() -> int:
    """One for each core that this process may use, up to JOBS_USUAL_MAX."""
    able = getattr(os, "sched_getaffinity", None)
    cores = len(able(0)) if able is not None else os.cpu_count() or 1
    return min(cores, JOBS_USUAL_MAX)


def run_all(
    function: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    jobs: int,
    progress: Callable[[int, int], None],
) -> list[Any]:
    """``function`` of each tuple of arguments, in order, in ``jobs`` processes; with one, here.

    Raises EnvironmentLacks where a process is lost or takes too long, RuntimeError where the
    function raises. ``progress`` is told (done, total).
    """
    progress(0, len(calls))
    if min(jobs, len(calls)) == 1:
        values = []
        for call in calls:
            values.append(function(*call))
            progress(len(values), len(calls))
        return values
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker()) for _ in range(min(jobs, len(calls)))]
        idle: SimpleQueue[Worker] = SimpleQueue()
        for worker in workers:
            idle.put(worker)

        def one(call: tuple[Any, ...]) -> Outcome:
            worker = idle.get()
            try:
                return worker.call(function, call, DEADLINE_S)
            finally:
                idle.put(worker)

        pool = stack.enter_context(ThreadPoolExecutor(len(workers)))
        waiting = [pool.submit(one, call) for call in calls]
        try:
            for done, ended in enumerate(as_completed(waiting), start=1):
                _value(ended.result())
                progress(done, len(calls))
        except BaseException:  # the others are not waited for
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.halt()
            raise
        return [_value(each.result()) for each in waiting]


def _value(outcome: Outcome) -> Any:
    match outcome.kind:
        case OutcomeKind.OK:
            return outcome.value
        case OutcomeKind.ERROR:
            raise RuntimeError(f"{outcome.error_type}: {outcome.message}\n{outcome.traceback}")
        case _:
            raise EnvironmentLacks(
                f"a solver process was lost: {outcome.message}; where memory is short, fewer at a "
                "time take less (--jobs)"
            )
