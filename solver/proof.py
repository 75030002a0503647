"""The proof that a pick is first in the whole legal space. The one module that imports z3.

Given a table of integer parameters and a claimed row, Z3 is asked, in this order:

1. Groups. For every group of ``solver.cover`` its bound, the closed form at the group's best
   parameters, must exceed the claimed time.
2. Rows. For every row of the works left open, the exact closed form: the row must not come
   before the claim in (time, wait, shared memory, registers, configuration).
3. Finalists. The claim and the rows nearest to it, in a persistent solver over the event
   recurrence itself: load_issue, load_end, math_start and math_end are arrays of type
   Int → Int, unrolled for a ring's full turn. "Some finalist is better" must be UNSAT, "the
   claimed row has the claimed time and wait" SAT; its model is the timeline.
4. Controls. Claims of one tick more time, and of one tick more wait, must be refuted.

Steps 1 and 2 are ground arithmetic: terms are built once over free variables, then numerals
are substituted and Z3's simplifier decides. What ties the unrolled turn to all iterations is
the ring lemma, and the groups rest on monotony: tests/solver/test_lemmas.py proves the one by
induction and shows what is proved of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import z3
from z3 import z3core

from solver.config import config_code
from solver.cover import PARAMETERS, build_cover
from solver.errors import ProofError
from solver.pick import Row, price
from solver.recurrence import Ticks, chain_ticks, first_unit_end, several_units_end
from solver.simulator import Event
from solver.table import Table

UNROLLED = 12
"""Iterations unrolled in the event arrays: one turn of the deepest ring."""

FINALISTS = 3
RESOURCES = ("smem_bytes", "registers", "code")


class _Z3Algebra:
    """The closed form's operations over Z3 integers."""

    def maximum(self, a: Any, b: Any) -> Any:
        return z3.If(a >= b, a, b)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return z3.If(condition, a, b)

    def quotient(self, a: Any, b: Any) -> Any:
        return a / b  # Int division; floor for the non-negative a and positive b it gets


class _IntegerAlgebra:
    """The same over Python integers."""

    def maximum(self, a: int, b: int) -> int:
        return max(a, b)

    def where(self, condition: bool, a: int, b: int) -> int:
        return a if condition else b

    def quotient(self, a: int, b: int) -> int:
        return a // b


ALGEBRA, INTEGERS = _Z3Algebra(), _IntegerAlgebra()


class _Numerals:
    """Integer numerals of one context, kept so that recurring values are made once."""

    LIMIT = 50_000

    def __init__(self, context: z3.Context) -> None:
        self._context, self._sort = context, z3.IntSort(context)
        self._known: dict[int, Any] = {}

    def ready(self) -> dict[int, Any]:
        """The numerals known so far, emptied where there are too many."""
        if len(self._known) > self.LIMIT:
            for numeral in self._known.values():
                z3core.Z3_dec_ref(self._context.ref(), numeral)
            self._known.clear()
        return self._known

    def add(self, value: int) -> Any:
        """A new numeral, held for this context."""
        numeral = z3core.Z3_mk_int64(self._context.ref(), value, self._sort.ast)
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


@dataclass(frozen=True, slots=True)
class Proof:
    """What was proved, over what; ``timeline`` is the first turn of the ring, from Z3's model."""

    configurations: int
    groups: int
    refuted_by_group: int
    refuted_exactly: int
    finalists: int
    unrolled: int
    table_sha256: str
    timeline: tuple[Event, ...]


CLAIM = tuple(f"claim_{name}" for name in ("time", "wait", *RESOURCES))
ROW = (*PARAMETERS, *RESOURCES)

Place = tuple[int, int, int, int, int]
"""Time, wait, shared memory, registers, configuration code: a row's place in the order."""


def place_of(row: Row) -> Place:
    """The place a row claims."""
    return (row.time, row.wait, row.smem_bytes, row.registers, config_code(row.config))


def _before(place: Sequence[Any], other: Sequence[Any]) -> z3.BoolRef:
    """``place`` comes strictly before ``other`` in lexicographic order."""
    result = place[-1] < other[-1]
    for mine, theirs in list(zip(place, other, strict=True))[-2::-1]:
        result = z3.Or(mine < theirs, z3.And(mine == theirs, result))
    return result


class Prover:
    """Terms and solver of one Z3 context; build once per process, never share by threads."""

    def __init__(self) -> None:
        context = z3.Context()
        numerals = _Numerals(context)
        p = SimpleNamespace(**{name: z3.Int(name, context) for name in PARAMETERS})
        resources = [z3.Int(name, context) for name in RESOURCES]
        claim = [z3.Int(name, context) for name in CLAIM]
        first = first_unit_end(p, ALGEBRA)
        end = z3.If(p.units > 1, several_units_end(p, first, ALGEBRA), first)
        busy = p.units * p.iterations * p.math + (p.units - 1) * p.epilogue
        bound = (*PARAMETERS, CLAIM[0])
        self._chain_above = _Ground(
            numerals, bound, p.frame + p.waves * chain_ticks(p, ALGEBRA) > claim[0]
        )
        self._closed_above = _Ground(numerals, bound, p.frame + p.waves * end > claim[0])
        self._row_before = _Ground(
            numerals,
            (*ROW, *CLAIM),
            _before([p.frame + p.waves * end, p.waves * (end - busy), *resources], claim),
        )
        self._finalist_holds = _Ground(
            numerals, (*PARAMETERS, *_Finalist.DERIVED), _Finalist.definition(p, first, end, busy)
        )
        self._events = _EventSolver(context)

    def search(self, table: Table) -> tuple[int, int]:
        """(work, kernel) of the first row of a small table, found by Z3 without a candidate.

        Each model is a row; asking for one that comes before it ends with the first.
        """
        work, kernel = table.rows(np.arange(len(table.first)))
        rows = [
            self._derive(_row_values(table, int(w), int(k)))
            for w, k in zip(work, kernel, strict=True)
        ]
        best = self._events.first(rows)
        return int(work[best]), int(kernel[best])

    def _derive(self, values: list[int]) -> _Finalist:
        """A row with its derived numbers, checked by Z3 against the ring and unit lemmas."""
        finalist = _Finalist.of(values)
        if not self._finalist_holds.decide([*values[: len(PARAMETERS)], *finalist.derived]):
            raise ProofError(f"the ring lemma's terms are wrong for {values}")
        return finalist

    def prove(self, table: Table, claim: Row) -> Proof:
        """Prove that no row of ``table`` comes before ``claim``; ProofError where one does."""
        place = place_of(claim)
        cover = build_cover(table, claim.time)
        for values, by_chain in zip(cover.best.tolist(), cover.by_chain.tolist(), strict=True):
            above = self._chain_above if by_chain else self._closed_above
            if not above.decide([*values, claim.time]):
                raise ProofError(f"a group's bound at {values} is not above {claim.time} ticks")

        work, kernel = table.rows(cover.open_works)
        nearest, others = _split(table, work, kernel, claim)
        for i in others:
            values = _row_values(table, int(work[i]), int(kernel[i]))
            if self._row_before.decide([*values, *place]):
                raise ProofError(f"{table.config(int(work[i]), int(kernel[i]))} comes first")
        finalists = [
            self._derive(_row_values(table, int(work[i]), int(kernel[i]))) for i in nearest
        ]
        timeline = self._events.decide(finalists, place)
        return Proof(
            configurations=table.size,
            groups=len(cover.start),
            refuted_by_group=table.size - len(work),
            refuted_exactly=len(others),
            finalists=len(nearest),
            unrolled=UNROLLED,
            table_sha256=table.sha256(),
            timeline=timeline,
        )


def _split(table: Table, work: Ticks, kernel: Ticks, claim: Row) -> tuple[list[int], list[int]]:
    """Indices of the finalists, the claim first, and of the other open rows."""
    mine = np.flatnonzero((work == claim.work) & (kernel == claim.kernel))
    if len(mine) != 1:
        raise ProofError("the claimed row is not among the open ones: some row beats its time")
    time, wait = price(table, work, kernel)
    ranked = [int(i) for i in np.lexsort((wait, time)) if i != mine[0]]
    return [int(mine[0]), *ranked[: FINALISTS - 1]], ranked[FINALISTS - 1 :]


def _row_values(table: Table, work: int, kernel: int) -> list[int]:
    """A row's numbers in ROW's order."""
    w, k = table.works, table.kernels
    frame = w.fixed[work] + k.setup[kernel] + w.store[work]
    numbers = [
        w.load[work],
        w.latency[work],
        w.math[work],
        w.early[work],
        w.epilogue[work],
        k.slots[kernel],
        w.iterations[work],
        w.units[work],
        w.waves[work],
        frame,
        k.smem_bytes[kernel],
        k.registers[kernel],
    ]
    return [*map(int, numbers), config_code(table.config(work, kernel))]


@dataclass(frozen=True, slots=True)
class _Finalist:
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
    def of(cls, values: list[int]) -> _Finalist:
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
        turns, remainder, rest, idle = (z3.Int(n, first.ctx) for n in _Finalist.DERIVED)
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


class _EventSolver:
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
        self._ask_claim, self._ask_better, *self._ask_controls = z3.Bools(
            "ask_claim ask_better ask_control_time ask_control_wait", context
        )
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
        self._place = [v["frame"] + last, last - v["busy"], *(v[name] for name in RESOURCES)]

    def decide(self, finalists: list[_Finalist], place: Place) -> tuple[Event, ...]:
        """Show that no finalist comes before ``place`` and that the first one is there.

        Then asks the same solver the same question of two false claims, one tick more time
        and one tick more wait: it must find a row that comes before each, or its "none comes
        before" means nothing. Returns the timeline of the first.
        """
        solver = self._solver
        solver.push()
        try:
            self._add_rows(finalists)
            here = [mine == value for mine, value in zip(self._place, place, strict=True)]
            solver.add(z3.Implies(self._ask_claim, z3.And(self._row == 0, *here)))
            solver.add(z3.Implies(self._ask_better, self._comes_before(place)))
            time, wait, *resources = place
            false_claims = ((time + 1, wait, *resources), (time, wait + 1, *resources))
            for ask, claim in zip(self._ask_controls, false_claims, strict=True):
                solver.add(z3.Implies(ask, self._comes_before(claim)))
            if solver.check(self._ask_claim) != z3.sat:
                raise ProofError("the claimed row does not have the claimed time and wait")
            timeline = self._timeline(solver.model(), finalists[0])
            if solver.check(self._ask_better) != z3.unsat:
                raise ProofError("a finalist comes before the claim")
            for ask in self._ask_controls:
                if solver.check(ask) != z3.sat:
                    raise ProofError(f"{ask}: a false claim of one tick more was not refuted")
            return timeline
        finally:
            solver.pop()

    def first(self, rows: list[_Finalist]) -> int:
        """Index of the row that none comes before, by repeated improvement to UNSAT."""
        solver = self._solver
        solver.push()
        try:
            self._add_rows(rows)
            best = -1
            while (verdict := solver.check()) == z3.sat:
                model = solver.model()
                best = model.eval(self._row).as_long()
                solver.add(self._comes_before([model.eval(x).as_long() for x in self._place]))
            if verdict != z3.unsat or best < 0:
                raise ProofError(f"the search ended {verdict}")
            return best
        finally:
            solver.pop()

    def _add_rows(self, rows: list[_Finalist]) -> None:
        self._solver.add(self._row >= 0, self._row < len(rows))
        for i, row in enumerate(rows):
            known = dict(zip(ROW, row.values, strict=True))
            known |= dict(zip(_Finalist.DERIVED, row.derived, strict=True))
            equal = [self._v[name] == known[name] for name in self._v]
            self._solver.add(z3.Implies(self._row == i, z3.And(*equal)))

    def _comes_before(self, place: Sequence[int]) -> z3.BoolRef:
        return _before(self._place, [z3.IntVal(value, self._context) for value in place])

    def _timeline(self, model: z3.ModelRef, claim: _Finalist) -> tuple[Event, ...]:
        known = dict(zip(ROW, claim.values, strict=True))
        events = []
        for i in range(min(UNROLLED, known["iterations"])):
            times = [model[time].as_long() for time in self._times[i]]
            events.append(Event(0, i, i % known["slots"], *times))
        return tuple(events)
