"""An answer in time: the best so far, and how far the proof came."""

from __future__ import annotations

import dataclasses
import random
import time

import pytest

from solver.certificate import certificate
from solver.deadline import Deadline
from solver.engine import Engine
from solver.errors import InvalidInput
from solver.objective import Pareto, objective_from_dict
from solver.problem import Problem
from solver.question import TIME_LIMIT_MS_MAX, Question
from solver.solution import Proof, Unfinished

LARGE = Problem(4096, 4096, 4096)
OBJECTIVES = [
    {"kind": "lexicographic", "order": ["time", "wait"]},
    {"kind": "lexicographic", "order": ["wait", "smem"]},
    {"kind": "weighted", "weights": {"time": 1, "smem": 0.05}},
    {"kind": "pareto", "axes": ["time", "smem"], "within": 2},
]


@pytest.fixture(scope="module")
def engine() -> Engine:
    engine = Engine()
    engine.warm(["h200"])
    return engine


def busy_ms(engine: Engine, question: Question) -> float:
    """Processor time of an answer: what a machine with other work to do takes longer for."""
    begun = time.process_time()
    engine.optimize(question)
    return (time.process_time() - begun) * 1e3


@pytest.mark.parametrize("value", [0, -1, TIME_LIMIT_MS_MAX + 1, 5.0, "5", True])
def test_a_wrong_time_limit_is_named(value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        Question(LARGE, time_limit_ms=value)  # type: ignore[arg-type]
    assert caught.value.field == "time_limit_ms"


@pytest.mark.parametrize("raw", OBJECTIVES, ids=str)
def test_an_answer_that_ran_out_of_time_has_the_pick_and_the_gap(
    raw: dict[str, object], engine: Engine
) -> None:
    objective = objective_from_dict(raw)
    whole = engine.optimize(Question(LARGE, objective=objective))
    cut = engine.optimize(Question(LARGE, objective=objective, time_limit_ms=1))
    proof = cut.body["proof"]
    assert cut.config == whole.config
    assert proof["status"] == "timeout"
    assert proof["undecided"] == proof["space"]["configurations"]
    assert 0 <= proof["gap"] < 1
    assert proof["gap_in"] == {"weighted": "score"}.get(str(raw["kind"]), proof["gap_in"])
    assert "scope" not in proof
    if raw["kind"] == "pareto":
        assert cut.body["complete"] is False


def test_the_gap_shrinks_as_the_proof_goes_on_and_no_row_is_below_it(engine: Engine) -> None:
    whole = engine.optimize(Question(LARGE)).solution
    best = whole.pick.time
    gaps, undecided = [], []
    for limit in range(1, 30, 2):
        answer = engine.optimize(Question(LARGE, time_limit_ms=limit))
        proof = answer.solution.proof
        if isinstance(proof, Unfinished):
            assert proof.lower_bound <= best
            gaps.append(answer.body["proof"]["gap"])
            undecided.append(proof.undecided)
    assert undecided[0] == whole.space.legal.size
    assert gaps[0] == max(gaps)


@pytest.mark.alone
def test_no_answer_is_more_than_50_ms_late(engine: Engine) -> None:
    rng = random.Random(3)
    late = []
    for _ in range(60):
        limit = rng.randint(1, 40)
        question = Question(
            LARGE, objective=objective_from_dict(rng.choice(OBJECTIVES)), time_limit_ms=limit
        )
        late.append(busy_ms(engine, question) - limit)
    assert max(late) < 50


@pytest.mark.alone
def test_a_front_too_large_for_the_limit_is_cut_to_its_first_points(engine: Engine) -> None:
    raw = {"kind": "pareto", "axes": ["time", "wait", "smem", "registers"], "within": 100}
    question = Question(LARGE, objective=objective_from_dict(raw), proof="none")
    whole = engine.optimize(question).solution.front
    limited = dataclasses.replace(question, proof="full", time_limit_ms=1)
    assert busy_ms(engine, limited) < 51
    cut = engine.optimize(limited)
    assert whole is not None
    assert cut.solution.front is not None
    points = cut.solution.front.points
    assert points == whole.points[: len(points)]
    assert len(points) < len(whole.points)
    assert cut.body["complete"] is False
    assert cut.body["proof"]["status"] == "timeout"


def test_a_limit_that_is_long_enough_changes_nothing(engine: Engine) -> None:
    question = Question(Problem(64, 4096, 4096), top_k=3)
    whole = engine.optimize(question)
    limited = engine.optimize(Question(question.problem, top_k=3, time_limit_ms=60_000))
    assert limited.body == whole.body


def test_a_question_that_waited_past_its_limit_still_gets_its_pick(engine: Engine) -> None:
    asked = time.monotonic() - 5
    answer = engine.optimize(Question(LARGE, time_limit_ms=100), asked_s=asked)
    assert answer.body["proof"]["status"] == "timeout"


def test_nothing_is_certified_that_was_not_proved(engine: Engine) -> None:
    for question, field in (
        (Question(LARGE, time_limit_ms=1), "time_limit_ms"),
        (Question(LARGE, proof="none"), "proof"),
    ):
        solution = engine.optimize(question).solution
        with pytest.raises(InvalidInput) as caught:
            certificate(solution)
        assert caught.value.field == field


def test_the_next_question_is_not_touched_by_one_that_ran_out_of_time(engine: Engine) -> None:
    question = Question(Problem(64, 4096, 4096))
    before = engine.optimize(question).body
    for limit in range(1, 25):
        engine.optimize(Question(LARGE, time_limit_ms=limit))
    assert engine.optimize(question).body == before


class Looks(Deadline):
    """A deadline that passes once it has been looked at so often."""

    def __init__(self, left: int) -> None:
        super().__init__(at_s=time.monotonic() + 1e6)
        object.__setattr__(self, "left", left)

    @property
    def passed(self) -> bool:
        object.__setattr__(self, "left", self.left - 1)  # type: ignore[attr-defined]
        return bool(self.left < 0)  # type: ignore[attr-defined]


@pytest.mark.parametrize("raw", OBJECTIVES, ids=str)
def test_wherever_time_runs_out_the_bound_holds_and_less_and_less_is_undecided(
    raw: dict[str, object], engine: Engine
) -> None:
    solution = engine.optimize(
        Question(Problem(64, 2048, 2048), objective=objective_from_dict(raw), proof="none", top_k=1)
    ).solution
    objective, space = solution.question.objective, solution.space
    left, undecided = 0, [space.allowed.size]
    while True:
        if isinstance(objective, Pareto):
            assert solution.front is not None
            proof = engine.prover.prove_front(space, solution.front, objective, Looks(left))
        else:
            proof = engine.prover.prove(space, solution.rows, objective.ranking, Looks(left))
        if isinstance(proof, Proof):
            break
        assert 1 <= proof.undecided <= undecided[-1]
        assert 0 <= proof.lower_bound <= solution.best_rank
        undecided.append(proof.undecided)
        left += 1 + left // 8
    assert len(undecided) > 5
    assert undecided[-1] < undecided[0] / 10


def test_a_deadline_never_gives_z3_less_than_a_millisecond() -> None:
    assert Deadline(time.monotonic() - 1).left_ms == 1
    assert Deadline(time.monotonic() - 1).passed
    assert not Deadline().passed
