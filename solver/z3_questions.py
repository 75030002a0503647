"""Everything a proof asks of Z3, by name; of which rows is ``solver.proof``'s to say."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import z3

from solver.cover import CHAIN, EXTREMES, PARAMETERS, time_bound, value_bounds
from solver.errors import ProofError
from solver.objective import AXES, Ranking, Values, rank_terms
from solver.recurrence import busy_ticks, chain_ticks
from solver.z3_algebra import ALGEBRA, before
from solver.z3_events import ROW, EventSolver, Finalist
from solver.z3_ground import Ground, Numerals


class Smt:
    """Terms and solvers of one Z3 context; build once per process, never share by threads."""

    def __init__(self) -> None:
        self._context = context = z3.Context()
        self._numerals = Numerals(context)
        p = self._variables(EXTREMES)
        self._code = z3.Int("code", context)
        time_, end = time_bound(p, ALGEBRA)
        wait = p.waves * (end - busy_ticks(p))
        energy = p.static * time_ + p.dynamic
        self._row_values = (time_, wait, p.smem_bytes, p.registers, energy)
        self._group_values = value_bounds(p, ALGEBRA)
        self._by_ranking: dict[Any, tuple[Ground, Ground]] = {}
        claim = self._variables([f"claim_{name}" for name in AXES])
        claimed = [getattr(claim, f"claim_{name}") for name in AXES]
        bound = (*PARAMETERS, "claim_time")
        chain = p.frame + p.waves * chain_ticks(p, ALGEBRA)
        self._chain_above = self._ground(bound, chain > claim.claim_time)
        self._closed_above = self._ground(bound, time_ > claim.claim_time)
        self._row_is = self._ground(
            (*ROW, *vars(claim)),
            z3.And(*(v == c for v, c in zip(self._row_values, claimed, strict=True))),
        )
        limits = self._variables(("limit", "least"))
        names = (*vars(limits), *vars(claim))
        self._group_beaten, self._row_beaten = (
            self._ground((*row, *names), _beaten(values, limits, claimed))
            for row, values in ((EXTREMES, self._group_values), (ROW, self._row_values))
        )
        found = self._variables([f"found_{name}" for name in AXES])
        self._values_beaten = self._ground(
            (*vars(found), *vars(claim)),
            z3.And(*(x >= y for x, y in zip(vars(found).values(), claimed, strict=True))),
        )
        self._finalist_holds = self._ground(
            (*PARAMETERS, *Finalist.DERIVED), Finalist.definition(p)
        )
        x, y = z3.Ints("x y", context)
        self._at_most = self._ground(("x", "y"), x <= y)
        self._equal = self._ground(("x", "y"), x == y)
        self.events = EventSolver(context)

    def _variables(self, names: Sequence[str]) -> SimpleNamespace:
        return SimpleNamespace(**{name: z3.Int(name, self._context) for name in names})

    def _ground(self, names: Sequence[str], term: z3.ExprRef) -> Ground:
        return Ground(self._numerals, names, term)

    def time_above(self, extremes: Sequence[int], time_limit: int, how: int) -> bool:
        """Whether no row under these extremes takes at most ``time_limit`` ticks."""
        above = self._chain_above if how == CHAIN else self._closed_above
        return above.decide([*extremes[: len(PARAMETERS)], time_limit])

    def group_after(self, extremes: Sequence[int], ranking: Ranking, ranks: Sequence[int]) -> bool:
        """Whether every row under these extremes comes after ``ranks``."""
        after, _ = self._ranked(ranking)
        return after.decide([*extremes, *(ranking.weights or ()), *ranks])

    def row_before(self, row: Sequence[int], ranking: Ranking, place: Sequence[int]) -> bool:
        """Whether a row comes strictly before ``place``: ranks and configuration code."""
        _, earlier = self._ranked(ranking)
        return earlier.decide([*row, *(ranking.weights or ()), *place])

    def group_beaten(
        self, extremes: Sequence[int], limit: int, least: int, point: Sequence[int]
    ) -> bool:
        """Whether each row under these extremes takes longer than ``limit``, or is nowhere
        better than ``point`` and no faster than ``least``."""
        return self._group_beaten.decide([*extremes, limit, least, *point])

    def row_beaten(self, row: Sequence[int], limit: int, least: int, point: Sequence[int]) -> bool:
        """The same of one row."""
        return self._row_beaten.decide([*row, limit, least, *point])

    def values_beaten(self, values: Values, point: Sequence[int]) -> bool:
        """Whether values, which a row was shown to have, are nowhere better than ``point``."""
        return self._values_beaten.decide([*values, *point])

    def row_is(self, row: Sequence[int], values: Values) -> bool:
        """Whether a row has these values."""
        return self._row_is.decide([*row, *values])

    def derive(self, row: Sequence[int]) -> Finalist:
        """A row with its derived numbers, checked by Z3 against the ring and unit lemmas."""
        finalist = Finalist.of(row)
        if not self._finalist_holds.decide([*row[: len(PARAMETERS)], *finalist.derived]):
            raise ProofError(f"the ring lemma's terms are wrong for {row}")
        return finalist

    def _ranked(self, ranking: Ranking) -> tuple[Ground, Ground]:
        """(group comes after, row comes before) for rankings of this form."""
        form = (ranking.weights is not None, ranking.order)
        if form not in self._by_ranking:
            weights = list(vars(self._variables([f"weight_{name}" for name in AXES])).values())
            claim = self._variables([f"claim_rank_{i}" for i in range(len(ranking.names))])
            ranks = list(vars(claim).values())
            weighed = weights if form[0] else None
            named = [str(weight) for weight in weights] if form[0] else []
            group, row = (
                rank_terms(values, ranking.order, weighed)
                for values in (self._group_values, self._row_values)
            )
            place = [*ranks, z3.Int("claim_code", self._context)]
            self._by_ranking[form] = (
                self._ground((*EXTREMES, *named, *vars(claim)), before(ranks, group)),
                self._ground(
                    (*ROW, *named, *vars(claim), "claim_code"), before([*row, self._code], place)
                ),
            )
        return self._by_ranking[form]

    def bound_holds(self, relation: str, values: Sequence[int], value: int) -> bool:
        """Whether ``value`` satisfies a user's bound; ``values`` of a list are ascending."""
        if relation == "max":
            return self._at_most.decide([value, values[0]])
        if relation == "min":
            return self._at_most.decide([values[0], value])
        at = bisect.bisect_left(values, value)
        if at < len(values) and self._equal.decide([value, values[at]]):
            return True
        # It is none of them: it lies between two that follow one another.
        above = at == 0 or not self._at_most.decide([value, values[at - 1]])
        below = at == len(values) or not self._at_most.decide([values[at], value])
        if not (above and below):
            raise ProofError(f"{value} is neither in {values} nor between two of them")
        return False

    def clash(self, bounds: int, broken: Sequence[Sequence[int]]) -> bool:
        """Whether ``bounds`` bounds clash and no smaller set of them does.

        ``broken`` lists the sets of bounds that the configurations break.
        """
        solver = z3.Solver(ctx=self._context)
        keep = [z3.Bool(f"keep_{i}", self._context) for i in range(bounds)]
        breaks = [z3.Bool(f"breaks_{i}", self._context) for i in range(bounds)]
        cases = [
            z3.And(*(b if i in case else z3.Not(b) for i, b in enumerate(breaks)))
            for case in broken
        ]
        solver.add(z3.Or(*cases))
        solver.add(*(z3.Implies(k, z3.Not(b)) for k, b in zip(keep, breaks, strict=True)))
        smaller = ([k for j, k in enumerate(keep) if j != i] for i in range(bounds))
        return solver.check(*keep) == z3.unsat and all(
            solver.check(*some) == z3.sat for some in smaller
        )


def _beaten(values: Sequence[Any], limits: Any, point: Sequence[Any]) -> z3.BoolRef:
    nowhere_better = [p <= v for p, v in zip(point, values, strict=True)]
    return z3.Or(values[0] > limits.limit, z3.And(values[0] >= limits.least, *nowhere_better))
