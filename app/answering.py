"""Questions to answers: kept ones at once, identical ones that come together solved once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from app import answers
from app.answer_cache import Answer, AnswerCache, canonical
from app.measured_answer import Winner
from app.metrics import Metrics
from app.solver_pool import SolverPool
from app.winners import Winners
from solver.device import profiles_revision
from solver.question import NormQuestion, Question


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

    def __init__(
        self, pool: SolverPool, cache: AnswerCache, metrics: Metrics, winners: Winners
    ) -> None:
        self._pool = pool
        self._cache = cache
        self._metrics = metrics
        self._winners = winners
        self._flights: dict[str, _Flight] = {}
        self._profiles, self._races = self._revisions()

    def recall(self, query: bytes) -> Answer | None:
        """The answer that this very query string got before, if it is still kept."""
        self._keep_up()
        answer = self._cache.by_query(query)
        if answer is not None:
            self._metrics.count_answer("hit")
        return answer

    async def answer(
        self,
        question: Question | NormQuestion,
        *,
        arrived_s: float | None = None,
        query: bytes | None = None,
        patient: bool = False,
        model_only: bool = False,
    ) -> Given:
        """The answer, kept, joined or solved; an exception goes to every caller that waits for it.

        A time limit counts from ``arrived_s``. ``query`` will find the answer the next time.
        ``patient`` callers wait for a solver process however many do. ``model_only``: whatever was
        measured.
        """
        begun = time.perf_counter()
        self._keep_up()
        revisions = self._profiles, self._races
        winner = None if model_only else self._winners.find(question)
        key = canonical(question)
        if winner is not None:
            key += f" measured {winner.number}"
        kept = self._cache.get(key)
        if kept is not None:
            given = Given(kept, "hit", {})
        elif question.time_limit_ms is not None:
            # A limit of its own: it can't wait for a question that has another.
            answer, steps_ms = await self._solve(key, question, winner, arrived_s, patient)
            given = Given(answer, "miss", steps_ms | {"total": _since(begun)})
        else:
            given = await self._join(key, question, winner, patient, begun)
        self._metrics.count_answer(given.source)
        if query is not None and self._revisions() == revisions:
            self._cache.remember(query, key)
        return given

    def _revisions(self) -> tuple[object, int]:
        """Of the profiles, and of what races found."""
        return profiles_revision(), self._winners.revision

    def _keep_up(self) -> None:
        """Keep, and join, nothing that was answered by profiles which others stand in for; read
        query strings again whose answers a race may have changed since they were asked."""
        profiles, races = self._revisions()
        if profiles != self._profiles:
            self._cache.clear()
            self._flights.clear()
        elif races != self._races:
            self._cache.forget_queries()
        self._profiles, self._races = profiles, races

    async def _join(
        self,
        key: str,
        question: Question | NormQuestion,
        winner: Winner | None,
        patient: bool,
        begun: float,
    ) -> Given:
        flight = self._flights.get(key)
        source = "miss" if flight is None else "joined"
        if flight is None:
            task = asyncio.create_task(self._solve(key, question, winner, None, patient))
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

    def _land(self, key: str, flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    async def _solve(
        self,
        key: str,
        question: Question | NormQuestion,
        winner: Winner | None,
        arrived_s: float | None,
        patient: bool,
    ) -> tuple[Answer, dict[str, float]]:
        revision = profiles_revision()
        ask = self._pool.ask_patiently if patient else self._pool.ask
        reply = await ask(answers.optimize_encoded, question, arrived_s, winner)
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
