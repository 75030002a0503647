"""Launches of norm_activation kernels in a GPU process, checked and bound for timing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cupy as cp

from kernels.bits import bits_type, from_float32, to_float32
from kernels.inputs import normal
from kernels.norm.compile import compile_key
from kernels.norm.device import norm_profile
from kernels.norm.launch import NormLaunch, loaded
from kernels.norm.numerics import REL_ERROR_LIMIT, NormFinding, check
from kernels.norm.plan import EPS, NormPlan, plan_norm
from kernels.norm.reference import Expected, expected
from kernels.norm.run_case import Case
from kernels.placed import Placed, place
from kernels.process import launching, report
from kernels.replay import Side
from kernels.session import session
from solver.families.norm_activation import NormConfig, NormProblem
from solver.problem import Matrix

CHUNK_ELEMENTS = 1 << 23  # of float64 at a time
NAN = {"fp32": 0x7FC00000, "fp16": 0x7E00, "bf16": 0x7FC0}
INFINITY = {"fp32": 0x7F800000, "fp16": 0x7C00, "bf16": 0x7F80}
OFFSET = 100.0  # of a row's mean, in its deviations


@dataclass(slots=True)
class NormArrays:
    """x, scale, shift and y of a problem in device memory, between guard bands, all poisoned but
    for the inputs' own elements."""

    x: Placed
    scale: Placed
    shift: Placed
    y: Placed

    @classmethod
    def of(cls, problem: NormProblem, seed: int, inputs: str = "normal") -> NormArrays:
        """Random normal inputs; ``offset``: rows whose mean is OFFSET deviations away; ``special``:
        rows with NaN, infinities, both, and none in turn."""
        rows, width, dtype = problem.rows, problem.width, problem.dtype

        def placed(lines: int) -> Placed:
            matrix = Matrix(lines, width, width, 0, problem.element_bytes)
            return place(cp, matrix, dtype, False)

        arrays = cls(placed(rows), placed(1), placed(1), placed(rows))
        for stream, array in ((2, arrays.scale), (3, arrays.shift)):
            normal(cp, 1, width, dtype, seed, stream, out=array.view)
        if rows == 0:
            return arrays
        normal(cp, rows, width, dtype, seed, 1, out=arrays.x.view)
        if inputs == "offset":
            values = to_float32(cp, cp.ascontiguousarray(arrays.x.view), dtype)
            arrays.x.view[...] = from_float32(cp, values + cp.float32(OFFSET), dtype)
        if inputs == "special":
            _strew(arrays.x.view, dtype)
        return arrays

    def launch(self, plan: NormPlan, function: Any, eps: float = EPS) -> NormLaunch:
        """A launch on these arrays."""
        x, scale, shift, y = (a.address for a in (self.x, self.scale, self.shift, self.y))
        return NormLaunch(plan, function, x, scale, shift, y, eps)

    def expected(self, problem: NormProblem, rows: slice, eps: float = EPS) -> Expected:
        """The reference for rows of x."""
        x, scale, shift = (
            cp.ascontiguousarray(view)
            for view in (self.x.view[rows], self.scale.view, self.shift.view)
        )
        return expected(cp, x, scale, shift, problem, eps)

    def check(self, finding: NormFinding, problem: NormProblem, eps: float = EPS) -> None:
        """Hold all of y against the reference."""
        step = max(1, CHUNK_ELEMENTS // problem.width)
        for first in range(0, problem.rows, step):
            rows = slice(first, min(first + step, problem.rows))
            wanted = self.expected(problem, rows, eps)
            y = cp.ascontiguousarray(self.y.view[rows])
            check(cp, finding, y, wanted, problem.dtype, first)


def _strew(x: Any, dtype: str) -> None:
    kind = bits_type(cp, dtype)
    sign = kind(1 << (8 * kind().itemsize - 1))
    nan, infinity = kind(NAN[dtype]), kind(INFINITY[dtype])
    last = x.shape[1] - 1
    x[1::6, last // 2] = nan
    x[2::6, last] = infinity
    x[3::6, 0] = infinity | sign
    x[4::6, 0] = infinity
    x[4::6, last] = infinity | sign
    x[5::6, last // 3] = infinity
    x[5::6, last] = nan


def bind(
    problem: NormProblem, config: NormConfig, reserved_smem_bytes: int = 0
) -> tuple[NormPlan, Any]:
    """The plan of a configuration on the GPU beside us and its loaded function."""
    current = session()
    profile = norm_profile(current.gpu)
    compiled, function = loaded(compile_key(problem, config), profile.arch)
    launching(compiled.kernel_id)
    plan = plan_norm(problem, config, compiled, profile, current.sms, reserved_smem_bytes)
    return plan, function


def check_launch(
    problem: NormProblem,
    config: NormConfig,
    *,
    seed: int = 1,
    inputs: str = "normal",
    launches: int = 1,
    eps: float = EPS,
    reserved_smem_bytes: int = 0,
) -> NormFinding:
    """Launch with a poisoned output, ``launches`` times, and check every element and the guards
    after the last; a launch whose bits differ from the first's counts as wrong."""
    stream = session().stream
    arrays = _arrays(problem, seed, inputs)
    plan, function = bind(problem, config, reserved_smem_bytes)
    launch = arrays.launch(plan, function, eps)
    finding = NormFinding()
    if inputs == "normal":
        finding.rel_limit = REL_ERROR_LIMIT[problem.dtype]
    first = None
    for _ in range(launches):
        arrays.y.poison()
        launch.launch(stream)
        if first is None:
            first = arrays.y.buffer.copy() if launches > 1 else None
        elif bool((first != arrays.y.buffer).any()):
            finding.wrong += 1
            finding.first = "a launch gave other bits than the first"
    arrays.check(finding, problem, eps)
    finding.guards_changed = arrays.y.surroundings_changed()
    return finding


def release() -> None:
    """Give back the memory of what was checked last."""
    _arrays.cache_clear()
    cp.get_default_memory_pool().free_all_blocks()


def sides_of(
    problem: NormProblem, configs: Sequence[NormConfig], seeds: Iterable[int]
) -> list[Side]:
    """Sides of a comparison: each configuration's launches on the same sets of random inputs, one
    for each seed."""
    sets = [NormArrays.of(problem, seed) for seed in seeds]
    sides = []
    for config in configs:
        plan, function = bind(problem, config)
        launches = [arrays.launch(plan, function) for arrays in sets]
        sides.append(Side(enqueues(launches, session().stream, sets), len(launches)))
    return sides


def enqueues(
    launches: Sequence[NormLaunch], stream: Any, sets: Sequence[NormArrays]
) -> Callable[[], None]:
    """Enqueues the launches; keeps the ``sets`` that they are bound to."""

    def enqueue(_kept: Sequence[NormArrays] = sets) -> None:
        for launch in launches:
            launch.launch(stream)

    return enqueue


@lru_cache(maxsize=1)
def _arrays(problem: NormProblem, seed: int, inputs: str) -> NormArrays:
    return NormArrays.of(problem, seed, inputs)


def check_cases(cases: list[Case]) -> list[tuple[Case, NormFinding]]:
    """``check_launch`` of each case, reported before it is launched; those that are not right."""
    wrong = []
    for case in cases:
        report("case", case=str(case))
        finding = check_launch(case.problem, case.config, **case.options)
        if not finding.right:
            wrong.append((case, finding))
    return wrong
