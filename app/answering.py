"""Questions to answers: kept ones at once, identical ones that come together solved once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from app import answers
from app.answer_cache import Answer, AnswerCache, canonical
from app.metrics import Metrics
from app.solver_pool import SolverPool
from solver.device import profiles_revision
from solver.question import Question


@dataclass(frozen=True, slots=True)
class Given:
    """An answer, and how this caller came by it.

    ``source`` is ``hit``, ``joined`` or ``miss``; ``timings_ms`` are there where this caller
    waited.
    """

    answer: Answer
    source: str
    timings_ms: Mapping[str, float]


@dataclass(slots=True)
class _Flight:
    """A question that is being solved, and how many callers wait for it."""

    task: asyncio.Task[tuple[Answer, dict[str, float]]]
    callers: int = field(default=0)


class Answering:
    """What the routes ask; one for each service, on its event loop."""

    def __init__(self, pool: SolverPool, cache: AnswerCache, metrics: Metrics) -> None:
        self._pool = pool
        self._cache = cache
        self._metrics = metrics
        self._flights: dict[str, _Flight] = {}
        self._revision = profiles_revision()

    def recall(self, query: bytes) -> Answer | None:
        """The answer that this very query string got before, if it is still kept."""
        self._forget_old()
        answer = self._cache.by_query(query)
        if answer is not None:
            self._metrics.count_answer("hit")
        return answer

    async def answer(
        self,
        question: Question,
        *,
        arrived_s: float | None = None,
        query: bytes | None = None,
        patient: bool = False,
    ) -> Given:
        """The answer, kept, joined or solved; an exception goes to every caller that waits for it.

        A time limit counts from ``arrived_s``. ``query`` will find the answer the next time.
        ``patient`` callers wait for a solver process however many do.
        """
        begun = time.perf_counter()
        key = canonical(question)
        self._forget_old()
        kept = self._cache.get(key)
        if kept is not None:
            given = Given(kept, "hit", {})
        elif question.time_limit_ms is not None:
            # A limit of its own: it can't wait for a question that has another.
            answer, steps_ms = await self._solve(key, question, arrived_s, patient)
            given = Given(answer, "miss", steps_ms | {"total": _since(begun)})
        else:
            given = await self._join(key, question, patient, begun)
        self._metrics.count_answer(given.source)
        if query is not None:
            self._cache.remember(query, key)
        return given

    async def _join(self, key: str, question: Question, patient: bool, begun: float) -> Given:
        flight = self._flights.get(key)
        source = "miss" if flight is None else "joined"
        if flight is None:
            task = asyncio.create_task(self._solve(key, question, None, patient))
            flight = self._flights[key] = _Flight(task)
            task.add_done_callback(lambda _: self._land(key, flight))
        flight.callers += 1
        try:
            # Shielded: a caller that leaves does not take the others' answer with it.
            answer, steps_ms = await asyncio.shield(flight.task)
        finally:
            flight.callers -= 1
            if not flight.callers and not flight.task.done():
                self._land(key, flight)  # nobody may join what is being given up
                flight.task.cancel()
        waited = {"total": _since(begun)}
        return Given(answer, source, steps_ms | waited if source == "miss" else waited)

    def _forget_old(self) -> None:
        """Nothing is kept, or joined, that was answered by profiles which others stand in for."""
        revision = profiles_revision()
        if revision != self._revision:
            self._revision = revision
            self._cache.clear()
            self._flights.clear()

    def _land(self, key: str, flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    async def _solve(
        self, key: str, question: Question, arrived_s: float | None, patient: bool
    ) -> tuple[Answer, dict[str, float]]:
        revision = profiles_revision()
        ask = self._pool.ask_patiently if patient else self._pool.ask
        reply = await ask(answers.optimize_encoded, question, arrived_s)
        body, status, steps_ms = reply.value
        for step, value in steps_ms.items():
            self._metrics.stage_seconds.labels(step).observe(value / 1e3)
        answer = Answer(body, status)
        self._metrics.proofs.labels(status).inc()
        if answer.whole and revision == profiles_revision():
            self._cache.put(key, answer)
        return answer, {**steps_ms, "queue": reply.queue_ms}


def _since(begun: float) -> float:
    return (time.perf_counter() - begun) * 1e3
