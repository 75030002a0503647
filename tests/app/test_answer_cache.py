"""Answers are kept up to a size, and identical questions solved once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from app.answer_cache import QUERIES_EACH, QUERY_BYTES, Answer, AnswerCache, canonical
from app.answering import Answering
from app.errors import SolverLost
from app.measured_answer import Winner
from app.metrics import Metrics
from app.schemas.questions import OptimizeRequest
from app.solver_pool import Reply
from app.winners import Winners
from solver.config import Config
from solver.question import Question

PROBLEM = {"m": 512, "n": 512, "k": 512}


def question(**members: Any) -> Question:
    return OptimizeRequest.read({**PROBLEM, **members}).question("h200")


def answer(text: str = "{}", status: str = "optimal") -> Answer:
    return Answer(text.encode(), status)


def dense(size: int, seed: int = 0) -> Answer:
    """An answer of so many bytes that no packing makes fewer; another for each seed."""
    return Answer(Random(seed + 1).randbytes(size), "optimal")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"device": "h200", "dtype": "bf16", "lda": 512, "out_dtype": None}),
        ({}, {"time_limit_ms": 50}),
        ({"divergence": 1}, {"divergence": 1.0}),
        (
            {"objective": {"kind": "weighted", "weights": {"time": 1, "smem": 2.0}}},
            {"objective": {"weights": {"smem": 2, "time": 1.0}, "kind": "weighted"}},
        ),
        (
            {"constraints": {"sms": {"max": 9, "min": 2}, "smem_bytes": {"max": 65536}}},
            {"constraints": {"smem_bytes": {"max": 65536}, "sms": {"min": 2, "max": 9}}},
        ),
        ({"constraints": {}}, {"constraints": {"config": {}}}),
    ],
)
def test_what_is_written_differently_and_means_the_same_is_one_question(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    assert canonical(question(**first)) == canonical(question(**second))


@pytest.mark.parametrize(
    "members",
    [
        {"m": 513},
        {"device": "h20"},
        {"proof": "none"},
        {"top_k": 2},
        {"cache": "warm"},
        {"ldc": 520},
        {"c_offset": 1},
        {"objective": {"kind": "lexicographic", "order": ["time"]}},
        {"constraints": {"sms": {"max": 132}}},
    ],
)
def test_what_is_answered_with_other_bytes_is_another_question(members: dict[str, Any]) -> None:
    assert canonical(question(**members)) != canonical(question())


def test_zeros_of_two_signs_are_two_questions_because_the_answer_repeats_them() -> None:
    first, second = (
        question(objective={"kind": "weighted", "weights": {"time": 1, "smem": zero}})
        for zero in (0.0, -0.0)
    )
    assert first == second
    assert canonical(first) != canonical(second)


def test_the_tag_is_a_digest_of_the_body() -> None:
    assert answer("a").etag == answer("a").etag != answer("b").etag


def test_the_answers_used_last_stay_within_the_size() -> None:
    cache = AnswerCache(10_000)
    for n in range(50):
        cache.put(f"key {n}", dense(1000, n))
        cache.get("key 0")
        assert cache.size <= 10_000
    assert cache.get("key 0") is not None
    assert cache.get("key 49") is not None
    assert cache.get("key 1") is None
    assert 2 <= len(cache) <= 9


def test_an_answer_is_packed_until_it_is_asked_for_again() -> None:
    cache = AnswerCache(10_000)
    text = "abcdefgh" * 500
    for n in range(10):
        cache.put(f"key {n}", answer(text))
    assert len(cache) == 10
    packed = cache.size
    assert packed < 10 * 1000
    assert cache.get("key 0") == answer(text)
    assert cache.size > packed + 3500
    grown = cache.size
    assert cache.get("key 0") is cache.get("key 0")
    assert cache.size == grown
    for n in range(1, 10):  # as they are sent, two have room
        assert cache.get(f"key {n}") in (answer(text), None)
        assert cache.size <= 10_000
    assert cache.get("key 9") == answer(text)
    assert len(cache) == 2
    cache.clear()
    assert cache.size == 0


@pytest.mark.parametrize("first", [1, 100, 2**15, 200_000])
def test_packed_answers_come_back_as_they_were(first: int) -> None:
    cache = AnswerCache(10**7)
    sizes = (first, 200_000, 1, 2**15 + 1, first)
    for round_ in range(2):
        kept = {f"{round_} {n}": dense(size, n) for n, size in enumerate(sizes)}
        for key, each in kept.items():
            cache.put(key, each)
        for key, each in kept.items():
            assert cache.get(key) == each
        cache.clear()


def test_an_answer_larger_than_the_cache_pushes_nothing_out() -> None:
    cache = AnswerCache(10_000)
    cache.put("small", answer("x"))
    cache.put("large", dense(10_000))
    assert cache.get("large") is None
    assert cache.get("small") is not None


def test_a_cache_of_no_size_keeps_nothing() -> None:
    cache = AnswerCache(0)
    cache.put("key", answer())
    cache.remember(b"query", "key")
    assert (cache.get("key"), cache.by_query(b"query"), cache.size) == (None, None, 0)


@pytest.mark.parametrize("status", ["timeout", "not_requested"])
def test_an_answer_that_is_not_proved_is_never_kept(status: str) -> None:
    with pytest.raises(ValueError, match=status):
        AnswerCache(10_000).put("key", answer(status=status))


def test_a_query_finds_its_answer_until_that_is_pushed_out() -> None:
    cache = AnswerCache(20_000)
    cache.remember(b"m=1", "key")
    assert cache.by_query(b"m=1") is None
    cache.put("key", dense(1000))
    cache.remember(b"m=1", "key")
    assert cache.by_query(b"m=1") == dense(1000)
    for n in range(20):
        cache.put(f"other {n}", dense(1000, n))
    assert cache.by_query(b"m=1") is None
    cache.put("key", dense(1000))
    assert cache.by_query(b"m=1") is None


def test_queries_count_against_the_size_and_are_few_and_short() -> None:
    cache = AnswerCache(20_000)
    cache.put("key", answer())
    for n in range(1000):
        cache.remember(b"m=%d" % n, "key")
        cache.remember(b"m=%d" % n, "key")
    found = sum(cache.by_query(b"m=%d" % n) is not None for n in range(1000))
    assert found == QUERIES_EACH
    cache.put("other", answer())
    before = cache.size
    cache.remember(b"x" * (QUERY_BYTES + 1), "other")
    assert cache.size == before
    cache.remember(b"x" * QUERY_BYTES, "other")
    assert cache.size > before + QUERY_BYTES
    for n in range(100):
        cache.put(f"key {n}", dense(5000, n))
    assert cache.size <= 20_000
    assert cache.by_query(b"x" * QUERY_BYTES) is None


class Pool:
    """Stands in for the solver processes: answers when it is told to."""

    def __init__(self, status: str = "optimal") -> None:
        self.status = status
        self.asked: list[Question] = []
        self.winners: list[Winner | None] = []
        self.cancelled = 0
        self.end = asyncio.Event()
        self.failure: Exception | None = None

    async def ask(
        self, function: Any, question: Question, arrived_s: float | None, winner: Winner | None
    ) -> Reply:
        self.asked.append(question)
        self.winners.append(winner)
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failure is not None:
            raise self.failure
        body = f"{len(self.asked)}".encode()
        return Reply((body, self.status, {"pick": 1.0, "proof": 2.0}), 0.5, 3.0)

    ask_patiently = ask


def run(
    body: Callable[[Answering, Pool], Awaitable[None]],
    *,
    status: str = "optimal",
    limit: int = 100_000,
    winners: Winners | None = None,
) -> str:
    """Run ``body`` on an event loop; the metrics it leaves."""
    metrics = Metrics()

    async def go() -> None:
        pool = Pool(status)
        known = Winners() if winners is None else winners
        await body(Answering(pool, AnswerCache(limit), metrics, known), pool)  # type: ignore[arg-type]

    asyncio.run(go())
    return metrics.text().decode()


def test_identical_questions_that_come_together_are_solved_once() -> None:
    async def body(answering: Answering, pool: Pool) -> None:
        callers = [asyncio.create_task(answering.answer(question())) for _ in range(20)]
        other = asyncio.create_task(answering.answer(question(m=1024)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(pool.asked) == 2
        pool.end.set()
        given = await asyncio.gather(*callers)
        assert {each.answer.body for each in given} == {given[0].answer.body}
        assert [each.source for each in given] == ["miss"] + 19 * ["joined"]
        assert list(given[0].timings_ms) == ["pick", "proof", "queue", "total"]
        assert list(given[1].timings_ms) == ["total"]
        await other
        assert (await answering.answer(question())).source == "hit"
        assert len(pool.asked) == 2

    text = run(body)
    for line in ('{source="miss"} 2.0', '{source="joined"} 19.0', '{source="hit"} 1.0'):
        assert f"warpwright_answers_total{line}" in text


def test_a_caller_that_leaves_does_not_take_the_others_answer_with_it() -> None:
    async def body(answering: Answering, pool: Pool) -> None:
        first, second = (asyncio.create_task(answering.answer(question())) for _ in range(2))
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.sleep(0.01)
        third = asyncio.create_task(answering.answer(question()))
        await asyncio.sleep(0.01)
        pool.end.set()
        assert (await second).answer.body == (await third).answer.body == b"1"
        assert first.cancelled()
        assert (len(pool.asked), pool.cancelled) == (1, 0)

    run(body)


def test_a_question_that_nobody_waits_for_is_given_up_and_can_be_asked_anew() -> None:
    async def body(answering: Answering, pool: Pool) -> None:
        callers = [asyncio.create_task(answering.answer(question())) for _ in range(3)]
        await asyncio.sleep(0.01)
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        again = asyncio.create_task(answering.answer(question()))
        await asyncio.sleep(0.01)
        assert (len(pool.asked), pool.cancelled) == (2, 1)
        pool.end.set()
        assert (await again).source == "miss"

    run(body)


def test_a_failure_goes_to_all_who_wait_and_is_not_kept() -> None:
    async def body(answering: Answering, pool: Pool) -> None:
        pool.failure = SolverLost("two processes ended")
        callers = [asyncio.create_task(answering.answer(question())) for _ in range(3)]
        await asyncio.sleep(0.01)
        pool.end.set()
        ends = await asyncio.gather(*callers, return_exceptions=True)
        assert [type(end) for end in ends] == 3 * [SolverLost]
        pool.failure = None
        assert (await answering.answer(question())).source == "miss"
        assert len(pool.asked) == 2

    run(body)


@pytest.mark.parametrize("status", ["timeout", "not_requested"])
def test_an_unproved_answer_is_solved_each_time(status: str) -> None:
    async def body(answering: Answering, pool: Pool) -> None:
        pool.end.set()
        for n in (1, 2):
            given = await answering.answer(question(proof="none"), query=b"q")
            assert (given.source, given.answer.body) == ("miss", b"%d" % n)
            assert answering.recall(b"q") is None

    run(body, status=status)


def test_a_time_limit_waits_for_nobody_elses_question_but_takes_what_is_kept() -> None:
    async def body(answering: Answering, pool: Pool) -> None:
        limited = replace(question(), time_limit_ms=50)
        callers = [
            asyncio.create_task(answering.answer(each)) for each in (question(), limited, limited)
        ]
        await asyncio.sleep(0.01)
        assert sorted(each.time_limit_ms or 0 for each in pool.asked) == [0, 50, 50]
        pool.end.set()
        await asyncio.gather(*callers)
        assert (await answering.answer(limited)).source == "hit"

    run(body)


def test_a_query_is_remembered_with_its_first_answer() -> None:
    async def body(answering: Answering, pool: Pool) -> None:
        pool.end.set()
        assert answering.recall(b"m=512") is None
        given = await answering.answer(question(), query=b"m=512")
        assert answering.recall(b"m=512") == given.answer

    run(body)


def won(number: int) -> Winner:
    config = Config("sm90_gemm", 64, 64, 64, 4)
    return Winner(number, config, (config,), {"measurements_revision": number})


def test_a_race_that_ends_has_a_kept_question_answered_anew() -> None:
    winners = Winners("h200")

    async def body(answering: Answering, pool: Pool) -> None:
        pool.end.set()
        first = await answering.answer(question(), query=b"m=512")
        assert answering.recall(b"m=512") == first.answer
        winners.adopt(question().problem, "cold", 7, won(7))
        assert answering.recall(b"m=512") is None
        measured = await answering.answer(question(), query=b"m=512")
        assert (measured.source, pool.winners) == ("miss", [None, won(7)])
        assert answering.recall(b"m=512") == measured.answer != first.answer
        assert (await answering.answer(question(), model_only=True)).answer == first.answer
        winners.adopt(question().problem, "cold", 8, None)
        assert (await answering.answer(question(), query=b"m=512")).answer == first.answer
        assert len(pool.asked) == 2

    run(body, winners=winners)


def test_an_answer_that_a_race_overtook_is_not_what_its_query_finds_from_then_on() -> None:
    winners = Winners("h200")

    async def body(answering: Answering, pool: Pool) -> None:
        overtaken = asyncio.create_task(answering.answer(question(), query=b"m=512"))
        await asyncio.sleep(0.01)
        winners.adopt(question().problem, "cold", 3, won(3))
        asked_after = asyncio.create_task(answering.answer(question(), query=b"m=512"))
        await asyncio.sleep(0.01)
        pool.end.set()
        await asked_after
        await overtaken
        assert answering.recall(b"m=512") == (await asked_after).answer
        assert pool.winners == [None, won(3)]

    run(body, winners=winners)


@pytest.mark.parametrize(
    "members",
    [
        {"m": 513},
        {"cache": "warm"},
        {"device": "h20"},
        {"device": "a6000", "model": "paper"},
        {"objective": {"kind": "lexicographic", "order": ["wait", "time"]}},
        {"objective": {"kind": "pareto", "axes": ["time", "smem"]}},
        {"constraints": {"sms": {"max": 120}}},
    ],
)
def test_a_winner_answers_its_own_problem_alone_where_time_is_what_counts(
    members: dict[str, Any],
) -> None:
    winners = Winners("h200")
    winners.adopt(question().problem, "cold", 1, won(1))
    assert winners.find(question(constraints={"smem_bytes": {"max": 65536}})) == won(1)
    assert winners.find(question(**members)) is None


def test_a_race_that_is_known_already_changes_nothing() -> None:
    winners = Winners("h200")
    winners.adopt(question().problem, "cold", 5, won(5))
    winners.adopt(question().problem, "cold", 4, None)
    assert (winners.find(question()), winners.revision) == (won(5), 5)


def test_forgetting_queries_keeps_answers_and_gives_their_memory_back() -> None:
    cache = AnswerCache(10_000)
    cache.put("q", answer())
    size = cache.size
    for query in (b"a", b"b"):
        cache.remember(query, "q")
    assert cache.size > size
    cache.forget_queries()
    assert (cache.size, cache.by_query(b"a"), cache.get("q")) == (size, None, answer())
    cache.remember(b"a", "q")
    assert cache.by_query(b"a") == answer()
