"""The lemmas that extend one turn of the ring to a whole run, proved by Z3."""

from __future__ import annotations

import pytest
import z3

from solver.proof import UNROLLED


def maximum(a: z3.ArithRef, b: z3.ArithRef) -> z3.ArithRef:
    return z3.If(a >= b, a, b)


class Ring:
    """Symbols for one unit: b, λ, C, e, and i·b and i·C as free integers (all else linear)."""

    def __init__(self, slots: int) -> None:
        self.q = slots
        self.b, self.lam, self.c, self.e = z3.Ints("b lam c e")
        self.x, self.y, self.k = z3.Ints("ib iC kd")  # i·b, i·C, floor(i/Q)·d
        self.ramp = self.lam + self.b + self.c
        self.pace = maximum(self.b, self.c)
        self.d = maximum(z3.IntVal(0), self.ramp - self.e - slots * self.pace)
        self.axioms = [
            self.b >= 0,
            self.lam >= 0,
            self.c >= 0,
            self.e >= 0,
            self.e <= self.c,
        ]

    def later(self, least: int) -> list[z3.BoolRef]:
        """What i ≥ least says of i·b and i·C."""
        return [
            z3.Implies(self.b >= self.c, self.x - self.y >= least * (self.b - self.c)),
            z3.Implies(self.b < self.c, self.y - self.x >= least * (self.c - self.b)),
            self.x >= least * self.b,
            self.y >= least * self.c,
        ]

    def lm(self, back: int, turns_less: int) -> z3.ArithRef:
        """LM(i - back), its floor(·/Q) being that of i less ``turns_less``."""
        reach = maximum(self.x - back * self.b, self.y - back * self.c)
        return self.ramp + reach + self.k - turns_less * self.d


def refuted(axioms: list[z3.BoolRef], claim: z3.BoolRef) -> bool:
    solver = z3.Solver()
    solver.add(*axioms, z3.Not(claim))
    return bool(solver.check() == z3.unsat)


@pytest.mark.parametrize("slots", range(1, UNROLLED + 1))
def test_ring_lemma_holds_by_induction_over_iterations(slots: int) -> None:
    """From iterations i-1 and i-Q to i, inside one unit, i ≥ Q."""
    r = Ring(slots)
    for first_of_turn in (True, False):
        if slots == 1 and not first_of_turn:
            continue  # with one slot every iteration starts a turn
        for second_turn in (True, False):  # floor(i/Q) = 1, or ≥ 2
            least = (1 if second_turn else 2) * slots + (0 if first_of_turn else 1)
            turns = r.k == r.d if second_turn else r.k >= 2 * r.d
            axioms = [*r.axioms, *r.later(least), turns, z3.Implies(r.d == 0, r.k == 0)]
            wraps = 1 if first_of_turn else 0
            issue_before = r.x - r.b
            if not (second_turn and first_of_turn):  # i-1 ≥ Q
                issue_before = maximum(issue_before, r.lm(slots + 1, 1 + wraps) - r.e)
            issue = maximum(issue_before + r.b, r.lm(slots, 1) - r.e)
            end = maximum(r.lm(1, wraps), issue + r.lam + r.b) + r.c
            claim = z3.And(issue == maximum(r.x, r.lm(slots, 1) - r.e), end == r.lm(0, 0))
            assert refuted(axioms, claim)


def test_ring_lemma_starts() -> None:
    """i < Q: no slot is waited for; math_end[i] = Λ + i·g."""
    r = Ring(1)
    axioms = [*r.axioms, *r.later(1), r.k == 0]
    end = maximum(r.lm(1, 0), r.x + r.lam + r.b) + r.c
    assert refuted(axioms, end == r.lm(0, 0))
    late = maximum(r.lm(1, 0), r.x + 1 + r.lam + r.b) + r.c
    assert not refuted(axioms, late == r.lm(0, 0)), "a load a tick late must be noticed"


def test_a_wrong_ring_lemma_is_refuted() -> None:
    """Control: with the stall counted a tick too long the induction fails."""
    r = Ring(4)
    r.d = r.d + 1
    axioms = [*r.axioms, *r.later(8), r.k >= 2 * r.d]
    issue = maximum(maximum(r.x - r.b, r.lm(5, 1) - r.e) + r.b, r.lm(4, 1) - r.e)
    end = maximum(r.lm(1, 0), issue + r.lam + r.b) + r.c
    assert (
        refuted(axioms, end == r.lm(0, 0)) is False
        or refuted(axioms, issue == maximum(r.x, r.lm(4, 1) - r.e)) is False
    )


def test_every_event_is_monotone_in_times_and_events_before_it() -> None:
    """One step of the recurrence: no input grows without its outputs staying or growing."""
    names = "issue slot ready latency load math epilogue early"
    low = z3.Ints(names)
    high = z3.Ints(" ".join(f"{n}_high" for n in names.split()))

    def step(v: list[z3.ArithRef]) -> tuple[z3.ArithRef, z3.ArithRef]:
        issue, slot, ready, latency, load, math, epilogue, early = v
        issued = maximum(issue + load, slot - early)
        return issued, maximum(ready + epilogue, issued + latency + load) + math

    grows = [a <= b for a, b in zip(low[:-1], high[:-1], strict=True)]
    solver = z3.Solver()
    solver.add(*grows, low[-1] >= high[-1])  # a slot is released no earlier
    before, after = step(low), step(high)
    solver.add(z3.Or(*(a > b for a, b in zip(before, after, strict=True))))
    assert solver.check() == z3.unsat


def test_two_states_over_units_follow_the_closed_power() -> None:
    """B_m of the max-plus power from B_{m-1} and A_{m-1}, where crossing paths can be swapped."""
    aa, ab, ba, bb, a0, b0, p = z3.Ints("aa ab ba bb a0 b0 p")  # p = (m-2)·max(aa, bb)
    m_aa, m_bb = z3.Ints("m_aa m_bb")  # (m-1)·aa, (m-1)·bb
    best = maximum(aa, bb)
    a_m = maximum(maximum(a0 + m_aa, b0 + ba + p), a0 + ab + ba + p - best)
    b_m = maximum(maximum(b0 + m_bb, a0 + ab + p), b0 + ba + ab + p - best)
    solver = z3.Solver()
    solver.add(ab + ba <= aa + bb, p >= 0, aa >= 0, bb >= 0)
    solver.add(p + best == maximum(m_aa, m_bb))
    solver.add(z3.Implies(aa >= bb, p + best == m_aa), z3.Implies(aa < bb, p + best == m_bb))
    next_b = maximum(a_m + ab, b_m + bb)
    closed = maximum(maximum(b0 + m_bb + bb, a0 + ab + p + best), b0 + ba + ab + p)
    solver.add(next_b != closed)
    assert solver.check() == z3.unsat
