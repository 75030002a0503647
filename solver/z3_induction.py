"""Induction with Z3 over the steps of a protocol: what the proofs of all kernels share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import z3

from solver.errors import ProofError


@dataclass(frozen=True, slots=True)
class Lemma:
    """One statement that Z3 proved, in words."""

    name: str
    words: str


@dataclass(frozen=True, slots=True)
class Step:
    """A step of one warp: when it can be taken, what must hold then, and what it changes."""

    name: str
    guard: z3.BoolRef
    safe: z3.BoolRef
    after: Mapping[Any, Any]

    def prove(self, context: z3.Context, invariant: z3.BoolRef) -> None:
        """Prove that the step is safe wherever the invariant holds, and keeps it. Raises
        ProofError."""
        can = z3.And(invariant, self.guard)
        prove(context, f"{self.name}, safe", z3.Implies(can, self.safe))
        moved = z3.substitute(invariant, *self.after.items())
        prove(context, f"{self.name}, kept", z3.Implies(can, moved))


def prove(context: z3.Context, name: str, claim: z3.BoolRef) -> None:
    """Prove a claim. Raises ProofError with a state in which it does not hold."""
    solver = z3.Solver(ctx=context)
    solver.add(z3.Not(claim))
    verdict = solver.check()
    if verdict == z3.sat:
        raise ProofError(f"ring protocol: {name} does not hold: {_state(solver.model())}")
    if verdict != z3.unsat:
        raise ProofError(f"ring protocol: {name}: Z3 could not decide")


def _state(model: z3.ModelRef) -> str:
    return ", ".join(sorted(f"{each.name()} = {model[each]}" for each in model.decls()))
