"""The event recurrence as Z3 arrays: what the finalists of a proof are put into.

load_issue, load_end, math_start and math_end are arrays of type Int → Int, unrolled for one
turn of the deepest ring; the ring and unit lemmas extend that turn to the whole run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import z3

from solver.cover import PARAMETERS, RESOURCES
from solver.deadline import NEVER_MS, Deadline, OutOfTime
from solver.errors import ProofError
from solver.objective import Ranking, Values
from solver.recurrence import INTEGERS, busy_ticks, first_unit_end, run_end
from solver.simulator import Event
from solver.z3_algebra import ALGEBRA, before

UNROLLED = 12
"""Iterations unrolled in the event arrays: one turn of the deepest ring."""

ROW = (*PARAMETERS, *RESOURCES, "code")
"""A row's numbers: its parameters, its resources, its configuration packed into an integer."""


@dataclass(frozen=True, slots=True)
class Finalist:
    """A row for the event solver: ROW's values, and what extends one turn to the whole run.

    The first unit's last iteration lies ``turns`` whole turns after iteration ``remainder``;
    ``rest`` is the time from that iteration's math_end to the last wave's end by the ring and
    unit lemmas; ``busy`` is MATH and epilogue time of all waves. Z3 checks them against
    their definition.
    """

    DERIVED: ClassVar[tuple[str, ...]] = ("turns", "remainder", "rest", "busy")

    values: tuple[int, ...]
    derived: tuple[int, ...]

    @classmethod
    def of(cls, values: Sequence[int]) -> Finalist:
        p = SimpleNamespace(**dict(zip(PARAMETERS, values, strict=False)))
        turns, remainder = divmod(p.iterations - 1, p.slots)
        end = run_end(p, INTEGERS)
        until = first_unit_end(
            SimpleNamespace(**{**vars(p), "iterations": remainder + 1}), INTEGERS
        )
        rest = end - until + (p.waves - 1) * end
        return cls(tuple(values), (turns, remainder, rest, p.waves * busy_ticks(p)))

    @staticmethod
    def definition(p: Any) -> z3.BoolRef:
        """What the derived numbers must satisfy, over Z3 variables."""
        first = first_unit_end(p, ALGEBRA)
        turns, remainder, rest, busy = (z3.Int(n, first.ctx) for n in Finalist.DERIVED)
        end = run_end(p, ALGEBRA)
        pace = ALGEBRA.maximum(p.load, p.math)
        stall = ALGEBRA.maximum(0, p.latency + p.load + p.math - p.early - p.slots * pace)
        return z3.And(
            turns * p.slots + remainder == p.iterations - 1,
            remainder >= 0,
            remainder < p.slots,
            p.slots <= UNROLLED,
            rest == turns * (p.slots * pace + stall) + end - first + (p.waves - 1) * end,
            busy == p.waves * busy_ticks(p),
        )


class EventSolver:
    """The recurrence over event arrays, asserted once; rows are pushed and popped.

    Once in RENEWED_AFTER questions it is asserted anew in another solver: what Z3 keeps of rows
    that were popped adds up to some 5 MB in a hundred of them.
    """

    RENEWED_AFTER = 200
    FIELDS = (
        *("load", "latency", "math", "early", "slots", "frame"),
        *("smem_bytes", "registers", "code"),
    )
    EXTENSION = ("remainder", "rest", "busy")

    def __init__(self, context: z3.Context) -> None:
        self._context = context
        integer = z3.IntSort(context)
        self._arrays = [
            z3.Array(name, integer, integer)
            for name in ("load_issue", "load_end", "math_start", "math_end")
        ]
        self._row = z3.Int("row", context)
        self._v = {n: z3.Int(f"row_{n}", context) for n in (*self.FIELDS, *self.EXTENSION)}
        self._times = [[z3.Int(f"{a}_{i}", context) for a in self._arrays] for i in range(UNROLLED)]
        v, end = self._v, self._arrays[-1]
        last = end[v["remainder"]] + v["rest"]
        self._energy = z3.Int("row_energy", context)
        self._values = (
            *(v["frame"] + last, last - v["busy"]),
            *(v["smem_bytes"], v["registers"], self._energy),
        )
        self._renew()

    def _renew(self) -> None:
        """Assert the recurrence in a solver of its own."""
        self._asked = 0
        self._solver = z3.Solver(ctx=self._context)
        # Simplex over the older core and no auto-configuration: 2.5 times faster here.
        self._solver.set("arith.solver", 2)
        self._solver.set("auto_config", False)
        v, (issue, arrive, start, end) = self._v, self._arrays
        for i in range(UNROLLED):
            after = issue[i - 1] + v["load"] if i else z3.IntVal(0, self._context)
            ready = end[i - 1] if i else z3.IntVal(0, self._context)
            slot = z3.If(v["slots"] <= i, end[i - v["slots"]] - v["early"], after)
            self._solver.add(
                issue[i] == ALGEBRA.maximum(after, slot),
                arrive[i] == issue[i] + v["latency"] + v["load"],
                start[i] == ALGEBRA.maximum(ready, arrive[i]),
                end[i] == start[i] + v["math"],
                *(t == array[i] for t, array in zip(self._times[i], self._arrays, strict=True)),
            )

    def _scope(self, deadline: Deadline) -> _Scope:
        """A scope for one question's rows. Who waits for a deadline does not wait for a renewal."""
        if self._asked >= self.RENEWED_AFTER and deadline.at_s is None:
            self._renew()
        self._asked += 1
        return _Scope(self._solver, deadline)

    def decide(
        self, finalists: Sequence[Finalist], ranking: Ranking, values: Values, deadline: Deadline
    ) -> tuple[Event, ...]:
        """Show that no finalist comes before the first one, and that it has ``values``.

        Then asks the same solver the same question of two false claims, one more in the first
        rank and one more in the second: it must find a row that comes before each, or its "none
        comes before" means nothing. Returns the timeline of the first.
        """
        ranks, code = ranking.ranks(values), finalists[0].values[-1]
        false_claims = [[rank + (i == at) for i, rank in enumerate(ranks)] for at in range(2)]
        claim, better, control = z3.Bools("claim better control", self._context)
        with self._scope(deadline) as ask:
            self._add_rows(finalists)
            self._solver.add(z3.Implies(claim, z3.And(self._row == 0, *self._are(values))))
            self._solver.add(z3.Implies(better, self._comes_before(ranking, [*ranks, code])))
            for false_ranks in false_claims:
                false = self._comes_before(ranking, [*false_ranks, code])
                self._solver.add(z3.Implies(control, false))
            if not ask(claim):
                raise ProofError("the claimed row does not have the claimed values")
            timeline = self._timeline(self._solver.model(), finalists[0])
            if ask(better):
                raise ProofError("a finalist comes before the claim")
            if not ask(control):
                raise ProofError("no row was found before a false claim of one more")
            return timeline

    def confirm(
        self, rows: Sequence[Finalist], values: Sequence[Values], deadline: Deadline
    ) -> tuple[Event, ...]:
        """Show that each row has its values; returns the timeline of the first."""
        claim, wrong = z3.Bools("claim wrong", self._context)
        with self._scope(deadline) as ask:
            self._add_rows(rows)
            self._solver.add(z3.Implies(claim, z3.And(self._row == 0, *self._are(values[0]))))
            different = [
                z3.And(self._row == i, z3.Not(z3.And(*self._are(mine))))
                for i, mine in enumerate(values)
            ]
            self._solver.add(z3.Implies(wrong, z3.Or(*different)))
            if not ask(claim):
                raise ProofError("the first row does not have the claimed values")
            timeline = self._timeline(self._solver.model(), rows[0])
            if ask(wrong):
                raise ProofError("a row does not have the claimed values")
            return timeline

    def first(self, rows: Sequence[Finalist], ranking: Ranking, deadline: Deadline) -> int:
        """Index of the row that none comes before, by repeated improvement to UNSAT."""
        with self._scope(deadline) as ask:
            self._add_rows(rows)
            best = -1
            place = [*ranking.ranks(self._values), self._v["code"]]
            while ask():
                model = self._solver.model()
                best = model.eval(self._row).as_long()
                found = [model.eval(rank).as_long() for rank in place]
                self._solver.add(self._comes_before(ranking, found))
            if best < 0:
                raise ProofError("the search found no row at all")
            return best

    def _add_rows(self, rows: Sequence[Finalist]) -> None:
        self._solver.add(self._row >= 0, self._row < len(rows))
        for i, row in enumerate(rows):
            known = dict(zip(ROW, row.values, strict=True))
            known |= dict(zip(Finalist.DERIVED, row.derived, strict=True))
            equal = [self._v[name] == known[name] for name in self._v]
            equal.append(self._energy == known["static"] * self._values[0] + known["dynamic"])
            self._solver.add(z3.Implies(self._row == i, z3.And(*equal)))

    def _are(self, values: Values) -> list[z3.BoolRef]:
        return [mine == value for mine, value in zip(self._values, values, strict=True)]

    def _comes_before(self, ranking: Ranking, place: Sequence[int]) -> z3.BoolRef:
        mine = [*ranking.ranks(self._values), self._v["code"]]
        return before(mine, [z3.IntVal(value, self._context) for value in place])

    def _timeline(self, model: z3.ModelRef, claim: Finalist) -> tuple[Event, ...]:
        known = dict(zip(ROW, claim.values, strict=True))
        events = []
        for i in range(min(UNROLLED, known["iterations"])):
            times = [model[time].as_long() for time in self._times[i]]
            events.append(Event(0, i, i % known["slots"], *times))
        return tuple(events)


class _Scope:
    """Assertions that are taken back at the end, and questions bounded by a deadline."""

    def __init__(self, solver: z3.Solver, deadline: Deadline) -> None:
        self._solver, self._deadline = solver, deadline

    def __enter__(self) -> _Scope:
        self._solver.push()
        return self

    def __exit__(self, *raised: object) -> None:
        self._solver.pop()

    def __call__(self, *assumptions: z3.BoolRef) -> bool:
        """Whether the assertions and assumptions are satisfiable; OutOfTime if that came first."""
        if self._deadline.at_s is not None:
            if self._deadline.passed:
                raise OutOfTime
            self._solver.set("timeout", self._deadline.left_ms)
        try:
            verdict = self._solver.check(*assumptions)
        finally:
            if self._deadline.at_s is not None:
                self._solver.set("timeout", NEVER_MS)
        if verdict == z3.unknown:
            reason = self._solver.reason_unknown()
            if self._deadline.at_s is not None and reason in ("timeout", "canceled"):
                raise OutOfTime  # Z3's own clock may be a millisecond ahead
            raise ProofError(f"Z3 could not decide: {reason}")
        return bool(verdict == z3.sat)
