"""Launching a configuration on inputs whose product is known, and looking at every element."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import cupy as cp
import numpy as np

from kernels.bits import to_float32
from kernels.inputs import (
    chunks,
    integers,
    normal,
    sparse_draws,
    sparse_order,
    sparse_signs,
)
from kernels.launch import GemmLaunch, LoadedKernel, Workspace
from kernels.launch_plan import LaunchPlan, plan_launch
from kernels.numerics import (
    RANDOM_ELEMENTS,
    Finding,
    Scaling,
    check_exact,
    check_statistical,
    rel_error_limit,
)
from kernels.placed import place_operands
from kernels.process import report
from kernels.reference import reference_exact, reference_magnitude, reference_sum
from kernels.session import Session
from solver.config import Config
from solver.problem import MAX_EXTENT, VECTOR_BYTES, Problem

PLAIN = Scaling()
EXACT_SCALINGS = (Scaling(-1.0, 1.0), Scaling(2.0, -1.0), Scaling(0.5, 2.0), Scaling(2.0, 0.0))
SCALED_NONZEROS = 64
"""Non-zeros in a row of A where alpha and beta come in: so few that, with C at most
``C_BOUND``, all of EXACT_SCALINGS are exact in every output type."""
C_BOUND = 32
ROUNDS = 3
"""Of a check, as it reports them: exact, exact with alpha and beta, random."""
STACK_ROWS = 128  # draws of a small m share one reference product of this many rows,
STACK_ELEMENTS = 1 << 28  # and of this many elements of A

Draw = Callable[[int, int, Any], Any]
"""Rows first to last of what C holds before a launch, as bits, into an array where given."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What both rounds of a verification found.

    ``exact``: every output of every exact draw matched bit for bit and no guard changed.
    ``k_coverage``: the part of k that the exact draws met within each 64 rows, 1.0 unless k
    is extreme. ``rel_error``: relative Frobenius error of the random round, NaN where the
    output held one. ``details`` is empty where everything passed.
    """

    exact: bool
    draws: int
    k_coverage: float
    rel_error: float
    details: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Nothing wrong in either round."""
        return not self.details


class _Target:
    """A, B and C of a plan, each between guards, and everything to launch on them.

    ``a`` (m×k) and ``b`` (n×k) are views to fill; what lies around them is NaN.
    """

    def __init__(self, session: Session, kernel: LoadedKernel, plan: LaunchPlan) -> None:
        self._stream = session.stream
        self._kernel = kernel
        self._plan = plan
        self._workspace = Workspace(plan)
        self._operands = place_operands(cp, plan.problem)
        self.a, self.b = self._operands.a.view, self._operands.b.view

    def run(self, finding: Finding, scaling: Scaling, held: Draw) -> Any:
        """Launch on a C that holds ``held``, or poison where beta is 0, and wait: C as a view.

        Guards and counters go into the finding.
        """
        c = self._operands.c
        c.poison()
        if scaling.beta != 0:
            held(0, self._plan.problem.m, c.view)
        GemmLaunch(
            self._plan,
            self._kernel,
            self._operands.a.address,
            self._operands.b.address,
            c.address,
            self._workspace,
            alpha=scaling.alpha,
            beta=scaling.beta,
        ).launch(self._stream)
        self._stream.synchronize()
        finding.guards_changed += c.surroundings_changed()
        finding.counters_left += not self._workspace.counters_are_zero()
        return c.view


def _held(draw: Draw, scaling: Scaling, low: int, high: int, out: str) -> Any:
    """Values of C's rows before a launch; None where nothing may look at them."""
    return to_float32(cp, draw(low, high, None), out) if scaling.beta != 0 else None


def _words(round_name: str, scaling: Scaling) -> str:
    if scaling == PLAIN:
        return round_name
    return f"{round_name} with alpha {scaling.alpha:g}, beta {scaling.beta:g}"


class _ExactRound:
    """Sparse A and ternary B of integers: every output is known bit for bit."""

    def __init__(self, session: Session, kernel: LoadedKernel, plan: LaunchPlan, seed: int) -> None:
        problem = plan.problem
        self._problem = problem
        self._seed = seed
        self._target = _Target(session, kernel, plan)
        self._order = sparse_order(cp, problem.k, seed)
        self.planned = sparse_draws(problem.m, problem.k)
        integers(cp, problem.n, problem.k, 1, problem.dtype, seed, stream=1, out=self._target.b)

    def _signs(self, draw: int, **options: Any) -> Any:
        m, dtype = self._problem.m, self._problem.dtype
        return sparse_signs(cp, self._order, m, dtype, self._seed, draw, **options)

    def _held(self, low: int, high: int, out: Any) -> Any:
        n, kind = self._problem.n, self._problem.out
        return integers(
            cp, high - low, n, C_BOUND, kind, self._seed, stream=0, first_row=low, out=out
        )

    def _look(self, findings: list[tuple[Scaling, Finding]]) -> None:
        """Launch on what A holds now, once for each scaling, and look at every element."""
        a, b, problem = self._target.a, self._target.b, self._problem

        @lru_cache(maxsize=1)  # the launches share it where C is a single chunk
        def products(low: int, high: int) -> Any:
            return reference_exact(a[low:high], b, problem.dtype)

        for scaling, finding in findings:
            got = self._target.run(finding, scaling, self._held)
            for low, high in chunks(problem.m, problem.n):
                held = _held(self._held, scaling, low, high, problem.out)
                expected = scaling.of(products(low, high), held)
                check_exact(cp, finding, got[low:high], expected, problem.out, low)

    def cover(self) -> Finding:
        """Draws of A that between them meet every k, alpha 1 and beta 0."""
        problem, target = self._problem, self._target
        m, k = problem.m, problem.k
        finding = Finding()
        per_stack = max(1, min(STACK_ROWS // m, STACK_ELEMENTS // (m * k)))
        for first in range(0, self.planned.draws, per_stack):
            draws = range(first, min(self.planned.draws, first + per_stack))
            if len(draws) == 1:
                self._signs(first, out=target.a)
                self._look([(PLAIN, finding)])
                continue
            stack = cp.concatenate([self._signs(draw) for draw in draws])
            expected = reference_exact(stack, target.b, problem.dtype)
            for index in range(len(draws)):
                rows = slice(index * m, (index + 1) * m)
                target.a[...] = stack[rows]
                got = target.run(finding, PLAIN, self._held)
                check_exact(cp, finding, got, expected[rows], problem.out)
        return finding

    def scale(self) -> list[tuple[str, Finding]]:
        """One more draw of A, sparser, with alpha and beta."""
        self._signs(self.planned.draws, nonzeros=SCALED_NONZEROS, out=self._target.a)
        findings = [(scaling, Finding()) for scaling in EXACT_SCALINGS]
        self._look(findings)
        return [(_words("exact round", scaling), finding) for scaling, finding in findings]


def _random_scaling(seed: int) -> Scaling:
    """Scalars that fp32 holds, at most 1 so that no fp16 output overflows."""
    rng = random.Random(seed)
    alpha, beta = (np.float32(rng.choice((-1, 1)) * rng.uniform(0.25, 1)) for _ in range(2))
    return Scaling(float(alpha), float(beta))


def _random_round(
    session: Session, kernel: LoadedKernel, plan: LaunchPlan, seed: int
) -> list[tuple[str, Finding]]:
    """Normal inputs against fp64 sums: alpha 1 and beta 0, then both at random."""
    problem = plan.problem
    m, n, k, dtype, out = problem.m, problem.n, problem.k, problem.dtype, problem.out
    target = _Target(session, kernel, plan)
    a, b = target.a, target.b
    findings = [(PLAIN, Finding()), (_random_scaling(seed), Finding())]
    # Rounding one element may alone miss the limit: small outputs are drawn several times.
    for draw in range(-(-RANDOM_ELEMENTS // (m * n))):
        normal(cp, m, k, dtype, seed, stream=2 + 3 * draw, out=a)
        normal(cp, n, k, dtype, seed, stream=3 + 3 * draw, out=b)

        def held(low: int, high: int, into: Any, stream: int = 4 + 3 * draw) -> Any:
            return normal(cp, high - low, n, out, seed, stream, first_row=low, out=into)

        @lru_cache(maxsize=1)  # both launches share it where C is a single chunk
        def sums(low: int, high: int) -> tuple[Any, Any]:
            rows = a[low:high]
            return reference_sum(rows, b, dtype), reference_magnitude(rows, b, dtype)

        for scaling, finding in findings:
            got = target.run(finding, scaling, held)
            for low, high in chunks(m, n):
                products, magnitude = sums(low, high)
                c = _held(held, scaling, low, high, out)
                check_statistical(
                    cp,
                    finding,
                    got[low:high],
                    scaling.of(products, c),
                    scaling.slack(k, magnitude, c),
                    out,
                    low,
                )
    return [(_words("random round", scaling), finding) for scaling, finding in findings]


def _gapped(problem: Problem) -> Problem:
    """The problem with a gap between C's rows where it has none, aligned as before."""
    vector = VECTOR_BYTES // problem.out_bytes
    ldc = problem.n + (1 if problem.n % vector else vector)
    if problem.c.pitch > problem.n or ldc > MAX_EXTENT:
        return problem
    return replace(problem, ldc=ldc)


def check_config(
    session: Session,
    kernel: LoadedKernel,
    problem: Problem,
    config: Config,
    sms: int,
    seed: int,
) -> CheckResult:
    """Both rounds of a verification for one configuration, on fresh inputs.

    The exact round takes the problem as it is. The random round leaves a gap between C's rows
    where they are packed, checked as a guard like the bands before and after. Inputs come from
    ``seed``. Raises LaunchFailed or CUDA's own error where the launch faults.
    """
    report("checking", round=1, rounds=ROUNDS)
    exact_round = _ExactRound(session, kernel, plan_launch(problem, config, sms), seed)
    planned = exact_round.planned
    exact = [("exact round", exact_round.cover())]
    report("checking", round=2, rounds=ROUNDS)
    exact += exact_round.scale()
    del exact_round  # a large problem's memory
    report("checking", round=3, rounds=ROUNDS)
    gapped = plan_launch(_gapped(problem), config, sms)
    rounds = _random_round(session, kernel, gapped, seed)
    limit = rel_error_limit(problem.out, problem.k)
    details = [finding.describe(name) for name, finding in (*exact, *rounds) if not finding.exact]
    details += [
        f"{name}: relative error {finding.rel_error:.3g}, limit {limit:g}"
        for name, finding in rounds
        if not finding.rel_error <= limit
    ]
    return CheckResult(
        all(finding.exact for _, finding in exact),
        planned.draws,
        planned.k_coverage,
        rounds[0][1].rel_error,
        tuple(details),
    )
