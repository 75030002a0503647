"""Everything that is asked of Z3. The one module that imports it.

Ground questions (``Smt``'s methods) are terms built once over free variables: numerals are
substituted and Z3's simplifier decides. ``EventSolver`` holds the recurrence over event
arrays, ``clash`` asks the SMT core about sets of constraints. What is asked, of which rows, in
which order, is ``solver.proof``'s to say.
"""

from __future__ import annotations

import functools
import gc
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, ParamSpec, TypeVar

import z3
from z3 import z3core

from solver.cover import CHAIN, EXTREMES, PARAMETERS, time_bound, value_bounds
from solver.errors import ProofError
from solver.objective import AXES, Ranking, Values
from solver.recurrence import INTEGERS, chain_ticks, first_unit_end, several_units_end
from solver.simulator import Event

P = ParamSpec("P")
R = TypeVar("R")

UNROLLED = 12
"""Iterations unrolled in the event arrays: one turn of the deepest ring."""

RESOURCES = ("smem_bytes", "registers", "code")
ROW = (*PARAMETERS, *RESOURCES)
"""A row's numbers: its parameters, its resources, its configuration packed into an integer."""

NEVER_MS = 2**32 - 1  # Z3's own word for no time limit


class OutOfTime(Exception):
    """The deadline passed before Z3 had decided."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of ``time.monotonic``, or none."""

    at_s: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the moment has come."""
        return self.at_s is not None and time.monotonic() >= self.at_s

    @property
    def left_ms(self) -> int:
        """Milliseconds left, as Z3 takes them; at least 1."""
        if self.at_s is None:
            return NEVER_MS
        return max(1, int((self.at_s - time.monotonic()) * 1e3))


NEVER = Deadline()


def collector_off(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` without Python's cyclic collector: a collection amid calls of Z3 has crashed
    other projects, and with Z3's objects on the heap it takes some 40 ms."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        enabled = gc.isenabled()
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            if enabled:
                gc.enable()

    return wrapped


class _Z3Algebra:
    """The closed form's operations over Z3 integers."""

    def maximum(self, a: Any, b: Any) -> Any:
        return z3.If(a >= b, a, b)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return z3.If(condition, a, b)

    def quotient(self, a: Any, b: Any) -> Any:
        return a / b  # Int division; floor for the non-negative a and positive b it gets


ALGEBRA = _Z3Algebra()


class _Numerals:
    """Integer numerals of one context, kept so that recurring values are made once."""

    LIMIT = 20_000
    DROPPED = 500  # at a time: dropping all at once would take 30 ms

    def __init__(self, context: z3.Context) -> None:
        self._context, self._sort = context, z3.IntSort(context)
        self._known: dict[int, Any] = {}

    def ready(self) -> dict[int, Any]:
        """The numerals known so far, the oldest dropped where there are too many."""
        if len(self._known) > self.LIMIT:
            for value in list(itertools.islice(self._known, self.DROPPED)):
                z3core.Z3_dec_ref(self._context.ref(), self._known.pop(value))
        return self._known

    def add(self, value: int) -> Any:
        """A new numeral, held for this context."""
        if -(2**63) <= value < 2**63:
            numeral = z3core.Z3_mk_int64(self._context.ref(), value, self._sort.ast)
        else:
            numeral = z3core.Z3_mk_numeral(self._context.ref(), str(value), self._sort.ast)
        z3core.Z3_inc_ref(self._context.ref(), numeral)
        self._known[value] = numeral
        return numeral


class _Ground:
    """A Z3 term over named integer variables, decided by substitution and simplification.

    Goes through z3's low-level interface: one evaluation takes 30 µs instead of 250.
    """

    def __init__(self, numerals: _Numerals, names: Sequence[str], term: z3.ExprRef) -> None:
        self._numerals, self.names = numerals, tuple(names)
        self._term = z3.simplify(term)
        self._variables = {name: z3.Int(name, term.ctx) for name in names}
        self._from = (z3.Ast * len(names))(*[v.as_ast() for v in self._variables.values()])

    def decide(self, values: Sequence[int]) -> bool:
        """Truth of the term at ``values``, in the order of ``names``."""
        ref = self._term.ctx.ref()
        known = self._numerals.ready()
        target = (z3.Ast * len(self.names))()
        for i, value in enumerate(values):
            numeral = known.get(value)
            target[i] = self._numerals.add(value) if numeral is None else numeral
        ground = z3core.Z3_substitute(ref, self._term.as_ast(), len(values), self._from, target)
        z3core.Z3_inc_ref(ref, ground)
        decided = z3core.Z3_simplify(ref, ground)
        z3core.Z3_inc_ref(ref, decided)
        truth = z3core.Z3_get_bool_value(ref, decided)
        z3core.Z3_dec_ref(ref, ground)
        z3core.Z3_dec_ref(ref, decided)
        if truth == z3.Z3_L_UNDEF:
            raise ProofError(f"a ground term over {self.names} stayed undecided at {values}")
        return bool(truth == z3.Z3_L_TRUE)


def _before(place: Sequence[Any], other: Sequence[Any]) -> z3.BoolRef:
    """``place`` comes strictly before ``other`` in lexicographic order."""
    result = place[-1] < other[-1]
    for mine, theirs in list(zip(place, other, strict=True))[-2::-1]:
        result = z3.Or(mine < theirs, z3.And(mine == theirs, result))
    return result


class Smt:
    """Terms and solvers of one Z3 context; build once per process, never share by threads."""

    def __init__(self) -> None:
        self._context = context = z3.Context()
        self._numerals = _Numerals(context)
        self._p = p = self._variables(EXTREMES)
        self._code = z3.Int("code", context)
        time_, end = time_bound(p, ALGEBRA)
        busy = p.units * p.iterations * p.math + (p.units - 1) * p.epilogue
        self._row_values = (time_, p.waves * (end - busy), p.smem_bytes, p.registers)
        self._group_values = value_bounds(p, ALGEBRA)
        self._by_ranking: dict[Any, tuple[_Ground, _Ground]] = {}
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
        first = first_unit_end(p, ALGEBRA)
        self._finalist_holds = self._ground(
            (*PARAMETERS, *Finalist.DERIVED), Finalist.definition(p, first, end, busy)
        )
        self.events = EventSolver(context)

    def _variables(self, names: Sequence[str]) -> SimpleNamespace:
        return SimpleNamespace(**{name: z3.Int(name, self._context) for name in names})

    def _ground(self, names: Sequence[str], term: z3.ExprRef) -> _Ground:
        return _Ground(self._numerals, names, term)

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
        _, before = self._ranked(ranking)
        return before.decide([*row, *(ranking.weights or ()), *place])

    def group_beaten(
        self, extremes: Sequence[int], limit: int, least: int, point: Sequence[int]
    ) -> bool:
        """Whether each row under these extremes takes longer than ``limit``, or is nowhere
        better than ``point`` and no faster than ``least``."""
        return self._group_beaten.decide([*extremes, limit, least, *point])

    def row_beaten(self, row: Sequence[int], limit: int, least: int, point: Sequence[int]) -> bool:
        """The same of one row."""
        return self._row_beaten.decide([*row, limit, least, *point])

    def row_is(self, row: Sequence[int], values: Values) -> bool:
        """Whether a row has these values."""
        return self._row_is.decide([*row, *values])

    def derive(self, row: Sequence[int]) -> Finalist:
        """A row with its derived numbers, checked by Z3 against the ring and unit lemmas."""
        finalist = Finalist.of(row)
        if not self._finalist_holds.decide([*row[: len(PARAMETERS)], *finalist.derived]):
            raise ProofError(f"the ring lemma's terms are wrong for {row}")
        return finalist

    def _ranked(self, ranking: Ranking) -> tuple[_Ground, _Ground]:
        """(group comes after, row comes before) for rankings of this form."""
        form = (ranking.weights is not None, ranking.order)
        if form not in self._by_ranking:
            weights = [z3.Int(f"weight_{name}", self._context) for name in AXES]
            ranks = [f"claim_rank_{i}" for i in range(len(ranking.names))]
            claim = [z3.Int(name, self._context) for name in ranks]
            code = z3.Int("claim_code", self._context)
            symbolic = Ranking(tuple(weights), ranking.order, ranking.unit) if form[0] else ranking
            named = [f"weight_{name}" for name in AXES] if form[0] else []
            self._by_ranking[form] = (
                self._ground(
                    (*EXTREMES, *named, *ranks), _before(claim, symbolic.ranks(self._group_values))
                ),
                self._ground(
                    (*ROW, *named, *ranks, "claim_code"),
                    _before([*symbolic.ranks(self._row_values), self._code], [*claim, code]),
                ),
            )
        return self._by_ranking[form]

    def bound_holds(self, relation: str, values: Sequence[int], value: int) -> bool:
        """Whether ``value`` satisfies a user's bound."""
        x = z3.IntVal(value, self._context)
        if relation == "in":
            return self._decided(z3.Or(*(x == v for v in values)))
        return self._decided(x >= values[0] if relation == "min" else x <= values[0])

    def none_between(self, values: Sequence[int], low: int, high: int) -> bool:
        """Whether none of ``values`` lies from ``low`` to ``high``."""
        v = [z3.IntVal(value, self._context) for value in values]
        return self._decided(z3.And(*(z3.Or(x < low, x > high) for x in v)))

    @staticmethod
    def _decided(term: z3.ExprRef) -> bool:
        return bool(z3.is_true(z3.simplify(term)))

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
        first = first_unit_end(p, INTEGERS)
        end = several_units_end(p, first, INTEGERS) if p.units > 1 else first
        until = first_unit_end(
            SimpleNamespace(**{**vars(p), "iterations": remainder + 1}), INTEGERS
        )
        busy = p.units * p.iterations * p.math + (p.units - 1) * p.epilogue
        rest = end - until + (p.waves - 1) * end
        return cls(tuple(values), (turns, remainder, rest, p.waves * busy))

    @staticmethod
    def definition(p: Any, first: Any, end: Any, busy: Any) -> z3.BoolRef:
        """What the derived numbers must satisfy, over Z3 variables."""
        turns, remainder, rest, idle = (z3.Int(n, first.ctx) for n in Finalist.DERIVED)
        pace = ALGEBRA.maximum(p.load, p.math)
        stall = ALGEBRA.maximum(0, p.latency + p.load + p.math - p.early - p.slots * pace)
        return z3.And(
            turns * p.slots + remainder == p.iterations - 1,
            remainder >= 0,
            remainder < p.slots,
            p.slots <= UNROLLED,
            rest == turns * (p.slots * pace + stall) + end - first + (p.waves - 1) * end,
            idle == p.waves * busy,
        )


class EventSolver:
    """The recurrence over event arrays, asserted once; finalists are pushed and popped."""

    FIELDS = ("load", "latency", "math", "early", "slots", "frame", *RESOURCES)
    EXTENSION = ("remainder", "rest", "busy")

    def __init__(self, context: z3.Context) -> None:
        self._context = context
        self._solver = z3.Solver(ctx=context)
        # Simplex over the older core and no auto-configuration: 2.5 times faster here.
        self._solver.set("arith.solver", 2)
        self._solver.set("auto_config", False)
        integer = z3.IntSort(context)
        self._arrays = [
            z3.Array(name, integer, integer)
            for name in ("load_issue", "load_end", "math_start", "math_end")
        ]
        self._row = z3.Int("row", context)
        self._v = {n: z3.Int(f"row_{n}", context) for n in (*self.FIELDS, *self.EXTENSION)}
        self._times = [[z3.Int(f"{a}_{i}", context) for a in self._arrays] for i in range(UNROLLED)]
        v, (issue, arrive, start, end) = self._v, self._arrays
        for i in range(UNROLLED):
            after = issue[i - 1] + v["load"] if i else z3.IntVal(0, context)
            ready = end[i - 1] if i else z3.IntVal(0, context)
            slot = z3.If(v["slots"] <= i, end[i - v["slots"]] - v["early"], after)
            self._solver.add(
                issue[i] == ALGEBRA.maximum(after, slot),
                arrive[i] == issue[i] + v["latency"] + v["load"],
                start[i] == ALGEBRA.maximum(ready, arrive[i]),
                end[i] == start[i] + v["math"],
                *(t == array[i] for t, array in zip(self._times[i], self._arrays, strict=True)),
            )
        last = end[v["remainder"]] + v["rest"]
        self._values = (v["frame"] + last, last - v["busy"], v["smem_bytes"], v["registers"])

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
        claim, better, *controls = z3.Bools("claim better control_0 control_1", self._context)
        with _Scope(self._solver, deadline) as ask:
            self._add_rows(finalists)
            self._solver.add(z3.Implies(claim, z3.And(self._row == 0, *self._are(values))))
            self._solver.add(z3.Implies(better, self._comes_before(ranking, [*ranks, code])))
            for control, false_ranks in zip(controls, false_claims, strict=True):
                before = self._comes_before(ranking, [*false_ranks, code])
                self._solver.add(z3.Implies(control, before))
            # One model answers three questions: the claim is real, and comes before both.
            if not ask(claim, *controls):
                if not ask(claim):
                    raise ProofError("the claimed row does not have the claimed values")
                raise ProofError("a false claim of one more was not refuted")
            timeline = self._timeline(self._solver.model(), finalists[0])
            if ask(better):
                raise ProofError("a finalist comes before the claim")
            return timeline

    def confirm(
        self, rows: Sequence[Finalist], values: Sequence[Values], deadline: Deadline
    ) -> tuple[Event, ...]:
        """Show that each row has its values; returns the timeline of the first."""
        claim, wrong = z3.Bools("claim wrong", self._context)
        with _Scope(self._solver, deadline) as ask:
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

    def first(self, rows: Sequence[Finalist], ranking: Ranking) -> int:
        """Index of the row that none comes before, by repeated improvement to UNSAT."""
        with _Scope(self._solver, NEVER) as ask:
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
            self._solver.add(z3.Implies(self._row == i, z3.And(*equal)))

    def _are(self, values: Values) -> list[z3.BoolRef]:
        return [mine == value for mine, value in zip(self._values, values, strict=True)]

    def _comes_before(self, ranking: Ranking, place: Sequence[int]) -> z3.BoolRef:
        mine = [*ranking.ranks(self._values), self._v["code"]]
        return _before(mine, [z3.IntVal(value, self._context) for value in place])

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
