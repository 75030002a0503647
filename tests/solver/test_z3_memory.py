"""What Z3 keeps of questions that are answered does not add up."""

from __future__ import annotations

import random

import pytest
import z3

from solver.engine import Engine
from solver.problem import Problem
from solver.question import Question
from solver.z3_events import EventSolver
from solver.z3_ground import Numerals


def _problem(rng: random.Random) -> Problem:
    return Problem(rng.randint(1, 8192), rng.randint(64, 16384), rng.randint(64, 16384))


def test_what_z3_keeps_of_answered_questions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventSolver, "RENEWED_AFTER", 20)
    monkeypatch.setattr(Numerals, "LIMIT", 1000)
    engine, rng = Engine(), random.Random(5)

    def kept_after(questions: int) -> float:
        for _ in range(questions):
            engine.optimize(Question(_problem(rng)))
        return float(z3.Z3_get_estimated_alloc_size())

    kept_after(21)  # the last one has renewed the solver
    first = kept_after(20)
    assert kept_after(100) < first + 1e6  # five times as many: 4 to 5 MB where nothing is renewed


def test_a_renewed_solver_answers_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    questions = [Question(_problem(rng)) for _ in range(4)]
    engine = Engine()
    wanted = [engine.optimize(question).to_dict() for question in questions]
    monkeypatch.setattr(EventSolver, "RENEWED_AFTER", 1)
    renewed = Engine()
    again = [renewed.optimize(question).to_dict() for question in questions]
    for answers in (wanted, again):
        for answer in answers:
            answer.pop("timing", None)
    assert again == wanted
