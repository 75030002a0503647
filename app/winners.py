"""The configurations that races found faster than the model's picks, in memory: an answer asks no
database."""

from __future__ import annotations

import threading

from app.measured_answer import Winner
from solver.objective import DEFAULT
from solver.problem import Problem
from solver.question import NormQuestion, Question


class Winners:
    """What races on one device found; ``device`` is its profile, None where nothing is measured.

    ``revision`` is the number of the last race that is known: whenever it is the same, so are the
    answers. Any thread may call.
    """

    def __init__(self, device: str | None = None) -> None:
        self.device = device
        self.revision = 0
        self._winners: dict[tuple[Problem, str], Winner] = {}
        self._lock = threading.Lock()

    def find(self, question: Question | NormQuestion) -> Winner | None:
        """What a race of the question's problem found, where it may be answered: for this device
        and by the calibrated model, with the default objective, on all SMs. Races are of products
        alone."""
        if not isinstance(question, Question):
            return None
        if not self._winners or question.device != self.device or question.model != "calibrated":
            return None
        on_fewer_sms = any(bound.variable == "sms" for bound in question.constraints.bounds)
        if on_fewer_sms or question.objective != DEFAULT:
            return None
        return self._winners.get((question.problem, question.cache))

    def adopt(self, problem: Problem, cache: str, number: int, winner: Winner | None) -> None:
        """Take over what a race came to; one in which nothing beat the pick leaves no winner."""
        with self._lock:
            if number <= self.revision:
                return
            if winner is None:
                self._winners.pop((problem, cache), None)
            else:
                self._winners[problem, cache] = winner
            self.revision = number  # last: who sees it sees the winner too
