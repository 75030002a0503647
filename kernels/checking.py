"""Launching a configuration on inputs whose product is known, and looking at every element."""

from __future__ import annotations

from dataclasses import dataclass

import cupy as cp

from kernels.inputs import (
    chunks,
    normal,
    sparse_draws,
    sparse_order,
    sparse_signs,
    ternary,
)
from kernels.launch import GemmLaunch, LoadedKernel, Workspace, address
from kernels.launch_plan import LaunchPlan, plan_launch
from kernels.numerics import (
    GUARD_ELEMENTS,
    REL_ERROR_LIMIT,
    Finding,
    GuardedOutput,
    check_exact,
    check_statistical,
)
from kernels.reference import reference_exact, reference_magnitude, reference_sum
from kernels.session import Session
from solver.config import Config
from solver.problem import Problem

RANDOM_ELEMENTS = 256  # outputs over which the random round's Frobenius error is taken
STACK_ROWS = 128  # draws of a small m share one reference product of this many rows


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
    """A poisoned, guarded C and everything to launch into it."""

    def __init__(self, session: Session, kernel: LoadedKernel, plan: LaunchPlan) -> None:
        problem = plan.problem
        self._stream = session.stream
        self._kernel = kernel
        self._plan = plan
        self._workspace = Workspace(plan)
        self.guarded = GuardedOutput(problem.m, problem.n, plan.ldc)
        self.buffer = cp.empty(self.guarded.elements, cp.uint16)

    def run(self, a: cp.ndarray, b: cp.ndarray, finding: Finding) -> cp.ndarray:
        """Poison, launch, wait; C's rows as a view. Guards go into the finding."""
        self.guarded.poison(self.buffer)
        first = address(self.buffer) + self.buffer.itemsize * GUARD_ELEMENTS
        GemmLaunch(
            self._plan,
            self._kernel,
            address(a),
            address(b),
            first,
            self._workspace,
        ).launch(self._stream)
        self._stream.synchronize()
        finding.guards_changed += self.guarded.guards_changed(cp, self.buffer)
        finding.counters_left += not self._workspace.counters_are_zero()
        return self.guarded.output(self.buffer)


def _exact_round(
    session: Session, kernel: LoadedKernel, plan: LaunchPlan, seed: int
) -> tuple[Finding, int, float]:
    problem = plan.problem
    m, n, k, dtype = problem.m, problem.n, problem.k, problem.dtype
    target = _Target(session, kernel, plan)
    planned = sparse_draws(m, k)
    b = ternary(cp, n, k, dtype, seed, stream=1)
    order = sparse_order(cp, k, seed)
    finding = Finding()
    per_stack = max(1, STACK_ROWS // m)
    for first in range(0, planned.draws, per_stack):
        draws = range(first, min(planned.draws, first + per_stack))
        stack = cp.concatenate([sparse_signs(cp, order, m, dtype, seed, draw) for draw in draws])
        if len(draws) > 1:
            expected = reference_exact(stack, b, dtype)
            for index in range(len(draws)):
                rows = slice(index * m, (index + 1) * m)
                got = target.run(stack[rows], b, finding)
                check_exact(cp, finding, got, expected[rows], dtype)
            continue
        got = target.run(stack, b, finding)
        for low, high in chunks(m, n):
            expected = reference_exact(stack[low:high], b, dtype)
            check_exact(cp, finding, got[low:high], expected, dtype, low)
    return finding, planned.draws, planned.k_coverage


def _random_round(session: Session, kernel: LoadedKernel, plan: LaunchPlan, seed: int) -> Finding:
    problem = plan.problem
    m, n, k, dtype = problem.m, problem.n, problem.k, problem.dtype
    target = _Target(session, kernel, plan)
    finding = Finding()
    # Rounding one element may alone miss the limit: small outputs are drawn several times.
    for draw in range(-(-RANDOM_ELEMENTS // (m * n))):
        a = normal(cp, m, k, dtype, seed, stream=2 + 2 * draw)
        b = normal(cp, n, k, dtype, seed, stream=3 + 2 * draw)
        got = target.run(a, b, finding)
        for low, high in chunks(m, n):
            rows = a[low:high]
            check_statistical(
                cp,
                finding,
                got[low:high],
                reference_sum(rows, b, dtype),
                reference_magnitude(rows, b, dtype),
                k,
                dtype,
                low,
            )
    return finding


def check_config(
    session: Session,
    kernel: LoadedKernel,
    problem: Problem,
    config: Config,
    sms: int,
    seed: int,
) -> CheckResult:
    """Both rounds of ``design``'s protocol for one configuration.

    The exact round has C packed; the random round leaves a gap between its rows, checked as
    a guard like the bands before and after. Inputs come from ``seed``. Raises LaunchFailed
    or CUDA's own error where the launch faults.
    """
    packed = plan_launch(problem, config, sms)
    gapped = plan_launch(problem, config, sms, problem.n + (1 if problem.n % 8 else 8))
    exact, draws, coverage = _exact_round(session, kernel, packed, seed)
    details = [] if exact.exact else [exact.describe("exact round")]
    random = _random_round(session, kernel, gapped, seed)
    limit = REL_ERROR_LIMIT[problem.dtype]
    if not random.exact:
        details.append(random.describe("random round"))
    if not random.rel_error <= limit:
        details.append(f"random round: relative error {random.rel_error:.3g}, limit {limit:g}")
    return CheckResult(exact.exact, draws, coverage, random.rel_error, tuple(details))
