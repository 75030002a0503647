"""Solver processes, warmed at start, so that the event loop never waits for Z3.

Each is a ``kernels.process.Worker``: it holds an Engine and answers one task at a time. One
that dies or passes its deadline is replaced without touching the others; a task whose
process died is tried once more.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from app.errors import Busy, DeadlinePassed, SolverLost, Unavailable
from app.restarts import pause_s
from kernels.errors import KernelError
from kernels.process import OutcomeKind, Worker
from solver.errors import InvalidInput

log = logging.getLogger(__name__)

START_DEADLINE_S = 300.0
"""Longest time for a process to import z3 and build its terms, cold disk included."""

WATCH_S = 1.0
"""How often idle processes are looked at: one that died is replaced before it is needed."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A task's value and how long it waited and ran, in milliseconds."""

    value: Any
    queue_ms: float
    solve_ms: float


@dataclass(frozen=True, slots=True)
class _Refusal:
    """What the user did wrong, or what the compiler refused or misses, on its way back as a value:
    the process is sound."""

    error: InvalidInput | KernelError


def _start(initialise: Callable[[], Any]) -> None:
    """In a solver process: build what answers need."""
    initialise()


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """In a solver process: the function's value, or a refusal."""
    try:
        return function(*arguments)
    except (InvalidInput, KernelError) as error:
        return _Refusal(error)


class _Slot:
    """One worker, whether its process is warm, and whether the queue of idle slots has it.

    A worker belongs to the thread that calls it; only while it is warm and queued does
    nobody call it, and the event loop may look at its process.
    """

    def __init__(self) -> None:
        self.worker = Worker()
        self.warm = False
        self.queued = False

    @property
    def dead(self) -> bool:
        """Whether an idle process has died."""
        return self.warm and self.queued and not self.worker.running


class SolverPool:
    """``workers`` processes, each warmed by ``initialise``.

    ``initialise`` and the tasks' functions are sent by their import path.
    """

    def __init__(
        self,
        initialise: Callable[[], Any],
        *,
        workers: int,
        waiting: int,
        deadline_s: float,
    ) -> None:
        self._initialise = initialise
        self._limit = waiting
        self._deadline_s = deadline_s
        self._slots = [_Slot() for _ in range(workers)]
        self._idle: asyncio.Queue[_Slot] = asyncio.Queue()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="solver-pipe")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting = 0
        self._stopped = False
        self.restarts = 0

    def start(self) -> None:
        """Start every process; returns at once, ``ready`` tells when the first can answer.

        The threads are all started here: one that couldn't be later would leave its call
        queued in the executor, to run at any time.
        """
        together = threading.Barrier(len(self._slots))
        for slot in self._slots:
            self._threads.submit(together.wait)
            self._spawn(self._warm(slot))
        self._spawn(self._watch())

    @property
    def ready(self) -> bool:
        """Whether at least one process is warm."""
        return self.workers > 0

    @property
    def workers(self) -> int:
        """Warm processes, busy ones included."""
        return sum(slot.warm and not slot.dead for slot in self._slots)

    @property
    def waiting(self) -> int:
        """Tasks that wait for a process."""
        return self._waiting

    async def ask(self, function: Callable[..., Any], *arguments: Any) -> Reply:
        """``function(*arguments)`` in a solver process.

        Raises what the function raised if that is an InvalidInput or a KernelError, Busy where too
        many wait, DeadlinePassed, SolverLost after two dead processes, RuntimeError for a defect.
        """
        return await self._ask(function, arguments, patient=False)

    async def ask_patiently(self, function: Callable[..., Any], *arguments: Any) -> Reply:
        """``ask`` by a caller that bounds itself how many it asks at once: it is not refused for
        others that wait, nor are they for it.
        """
        return await self._ask(function, arguments, patient=True)

    async def _ask(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], *, patient: bool
    ) -> Reply:
        asked = time.perf_counter()
        for attempt in (1, 2):
            slot = await self._take(patient)
            begun = time.perf_counter()
            # Shielded: a request that is cancelled must not free a process still at work.
            outcome = await asyncio.shield(self._spawn(self._run(slot, function, arguments)))
            ended = time.perf_counter()
            match outcome.kind:
                case OutcomeKind.OK if isinstance(outcome.value, _Refusal):
                    raise outcome.value.error
                case OutcomeKind.OK:
                    return Reply(outcome.value, (begun - asked) * 1e3, (ended - begun) * 1e3)
                case OutcomeKind.TIMEOUT:
                    raise DeadlinePassed(f"the answer took longer than {self._deadline_s:g} s")
                case OutcomeKind.ERROR:
                    raise RuntimeError(outcome.traceback)
                case OutcomeKind.DIED:
                    log.warning("attempt %d: %s", attempt, outcome.message)
        raise SolverLost("two solver processes ended while they held this question")

    async def stop(self) -> None:
        """End every process, and with it the task it holds."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        ended = asyncio.ensure_future(asyncio.to_thread(self._threads.shutdown))
        while not ended.done():  # again and again: a process may be starting meanwhile
            for slot in self._slots:
                slot.worker.kill()
            await asyncio.wait((ended,), timeout=0.05)
        for slot in self._slots:
            slot.worker.close()

    async def _take(self, patient: bool) -> _Slot:
        if self._stopped:
            raise Unavailable("the service is stopping")
        if not patient and self._waiting >= self._limit:
            raise Busy(f"{self._waiting} questions are waiting; at most {self._limit} may")
        self._waiting += not patient
        try:
            async with asyncio.timeout(self._deadline_s):
                while True:
                    slot = await self._idle.get()
                    dead = slot.dead
                    slot.queued = False
                    if dead:
                        self._replace(slot)
                    elif slot.warm:
                        return slot
        except TimeoutError:
            raise Busy(f"no solver process was free for {self._deadline_s:g} s") from None
        finally:
            self._waiting -= not patient

    async def _run(
        self, slot: _Slot, function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> Any:
        """The task's outcome; the slot is idle again, or being warmed, when this returns."""
        try:
            outcome = await self._call(slot, _answer, (function, arguments), self._deadline_s)
        except Exception:  # a question that can't be sent, say: the slot outlives it
            self._replace(slot)
            raise
        if outcome.kind is OutcomeKind.OK:
            self._offer(slot)
        else:
            self._replace(slot)
        return outcome

    def _offer(self, slot: _Slot) -> None:
        """Put a warm slot among the idle ones, where it may have stayed when it died."""
        if not slot.queued:
            slot.queued = True
            self._idle.put_nowait(slot)

    def _replace(self, slot: _Slot) -> None:
        slot.warm = False
        self.restarts += 1
        self._spawn(self._warm(slot))

    async def _watch(self) -> None:
        """Replace processes that die while they are idle."""
        while True:
            await asyncio.sleep(WATCH_S)
            for slot in self._slots:
                if slot.dead:
                    log.warning("an idle solver process died")
                    self._replace(slot)

    async def _warm(self, slot: _Slot) -> None:
        for attempt in itertools.count():
            await asyncio.sleep(pause_s(attempt))
            try:
                outcome = await self._call(slot, _start, (self._initialise,), START_DEADLINE_S)
            except Exception:
                log.exception("a solver process did not start")
                continue
            if outcome.kind is OutcomeKind.OK:
                slot.warm = True
                self._offer(slot)
                return
            log.error("a solver process did not start: %s", outcome.traceback or outcome.message)

    async def _call(
        self, slot: _Slot, function: Callable[..., Any], arguments: tuple[Any, ...], limit_s: float
    ) -> Any:
        request = contextvars.copy_context()  # whose id what the process logs has
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, request.run, slot.worker.call, function, arguments, limit_s
        )

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
