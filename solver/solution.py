"""What a question led to: the space, the rows that answer it, and what is proved of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from solver.device import DeviceProfile
from solver.objective import Pareto
from solver.pick import Front, Row
from solver.question import Asked
from solver.simulator import Event
from solver.space import Space


@dataclass(frozen=True, slots=True)
class Proof:
    """What was proved, over what; ``timeline`` is the first turn of the ring, from Z3's model.

    ``configurations`` are those refuted by their group or exactly, the finalists, and the
    further ones that the claim lists.
    """

    configurations: int
    excluded: int
    groups: int
    refuted_by_group: int
    refuted_exactly: int
    finalists: int
    listed: int
    unrolled: int
    table_sha256: str
    timeline: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What is known where the deadline came first: of the ``undecided`` configurations Z3 has
    shown only that their first rank (of a front, their time) is no less than ``lower_bound``."""

    configurations: int
    undecided: int
    lower_bound: int


@dataclass(frozen=True, slots=True)
class Solution:
    """``rows`` are the pick and its alternatives, or the first point of ``front`` alone."""

    question: Asked
    device: DeviceProfile
    space: Space
    rows: tuple[Row, ...]
    front: Front | None
    proof: Proof | Unfinished | None = None

    @property
    def pick(self) -> Row:
        """The row that is answered."""
        return self.rows[0]

    @property
    def listed(self) -> tuple[Row, ...]:
        """The points of the front that are listed; () without one."""
        objective = self.question.objective
        if self.front is None or not isinstance(objective, Pareto):
            return ()
        return self.front.points[: objective.cap]

    def proved(self, proof: Proof | Unfinished) -> Solution:
        """The same with its proof."""
        return dataclasses.replace(self, proof=proof)

    @property
    def first_rank_name(self) -> str:
        """What gaps compare, by name: the objective's first rank, of a front the time."""
        objective = self.question.objective
        return "time" if isinstance(objective, Pareto) else objective.ranking.names[0]

    def first_rank(self, row: Row) -> int:
        """What gaps compare: the objective's first rank, of a front the time."""
        objective = self.question.objective
        if isinstance(objective, Pareto):
            return row.time
        return int(objective.ranking.ranks(row.values)[0])

    @property
    def best_rank(self) -> int:
        """What gaps are from: the pick's first rank, of a front the least time."""
        return self.first_rank(self.pick if self.front is None else self.front.fastest)

    def gap(self, row: Row) -> float | None:
        """The row's first rank over the best one, less one; None where the best is 0."""
        best = self.best_rank
        return self.first_rank(row) / best - 1 if best else None

    def score(self, row: Row) -> float | None:
        """The row's weighted score; None for other objectives."""
        objective = self.question.objective
        if isinstance(objective, Pareto) or objective.ranking.weights is None:
            return None
        return objective.ranking.in_unit(self.first_rank(row))
