"""A race of norm_activation configurations over one problem, in a GPU process."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import cupy as cp

from kernels.bits import poison
from kernels.measure import measure
from kernels.norm.cells import Cell
from kernels.norm.compile import compile_key
from kernels.norm.device import norm_profile
from kernels.norm.launch import loaded
from kernels.norm.numerics import REL_ERROR_LIMIT, NormFinding, check
from kernels.norm.run import NormArrays, bind, enqueues
from kernels.process import report
from kernels.protocol import Protocol, rotation_sets
from kernels.replay import Side
from kernels.session import session
from solver.families.norm_activation import NormProblem

CHECKED_ROWS = 512  # spread over the rows; that all are written is looked at besides


def check_cell(cell: Cell) -> str:
    """Launch a cell once; why its output is wrong, or empty."""
    arrays = _arrays(_inputs_of(cell.problem), 1)[0]
    return _failure(cell, arrays, arrays.expected(cell.problem, _sample(cell.problem)))


def measure_race(cells: list[Cell], protocol: Protocol) -> list[dict[str, Any]]:
    """Check each cell's output, then time all of them in turn; a row of figures for each."""
    current = session()
    problem = cells[0].problem
    count, flush = rotation_sets(problem.storage_bytes, current.l2_bytes, protocol)
    sets = _arrays(_inputs_of(problem), count)
    wanted = sets[0].expected(problem, _sample(problem))
    rows: list[dict[str, Any]] = []
    sides = []
    for index, cell in enumerate(cells):
        report("check", cell=index)
        failure = _failure(cell, sets[0], wanted)
        plan, function = bind(problem, cell.config, cell.reserved_smem_bytes)
        compiled, _ = loaded(compile_key(problem, cell.config), norm_profile(current.gpu).arch)
        rows.append(
            {
                "status": "failed" if failure else "passed",
                "details": failure or None,
                "kernel_id": compiled.kernel_id,
                "registers": compiled.registers,
                "grid": plan.grid,
                "threads": plan.threads,
                "smem_bytes": plan.smem_bytes,
                "resident_blocks": plan.resident_blocks,
            }
        )
        launches = [arrays.launch(plan, function) for arrays in sets]
        sides.append(Side(enqueues(launches, current.stream, sets), len(launches)))
    measured = measure(current, sides, protocol, flush)
    for row, timing in zip(rows, measured.timings, strict=True):
        row |= {
            "median_us": timing.median_us,
            "low_us": timing.low_us,
            "high_us": timing.high_us,
            "p95_us": timing.p95_us,
            "p99_us": timing.p99_us,
            "replays": timing.replays,
            "launches_per_replay": timing.launches_per_replay,
            "sets": count,
            "flushed": flush,
            "sm_clock_before_mhz": measured.clock_before.sm_clock_mhz,
            "sm_clock_mhz": measured.clock_after.sm_clock_mhz,
            "power_w": measured.clock_after.power_w,
            "throttle": list(measured.clock_after.throttle),
        }
    return rows


def _inputs_of(problem: NormProblem) -> NormProblem:
    """The problem's rows without its transformation: which arrays serve it."""
    return NormProblem(problem.rows, problem.width, problem.dtype)


@lru_cache(maxsize=1)
def _cached(inputs: NormProblem, count: int) -> list[NormArrays]:
    return [NormArrays.of(inputs, seed) for seed in range(1, count + 1)]


_kept: list[tuple[NormProblem, int]] = []


def _arrays(inputs: NormProblem, count: int) -> list[NormArrays]:
    if _kept != [(inputs, count)]:
        _cached.cache_clear()  # before the next are made: both may not fit
        _kept[:] = [(inputs, count)]
    return _cached(inputs, count)


def _sample(problem: NormProblem) -> slice:
    return slice(0, problem.rows, max(1, problem.rows // CHECKED_ROWS))


def _failure(cell: Cell, arrays: NormArrays, wanted: Any) -> str:
    plan, function = bind(cell.problem, cell.config, cell.reserved_smem_bytes)
    arrays.y.poison()
    arrays.launch(plan, function).launch(session().stream)
    finding = NormFinding(rel_limit=REL_ERROR_LIMIT[cell.problem.dtype])
    y = arrays.y.view
    sample = cp.ascontiguousarray(y[_sample(cell.problem)])
    check(cp, finding, sample, wanted, cell.problem.dtype)
    finding.guards_changed = arrays.y.surroundings_changed()
    finding.unwritten = int((y == poison(y)).sum())
    return "" if finding.right and not finding.unwritten else str(finding)
