"""A sweep of given problems on this host's GPU: many configurations of each timed, unchecked, by
the measuring code of a ground truth. ``kernels.sweep`` is the sweep that makes one.

The rows are chosen in a GPU process too, so that a service that sweeps goes on answering.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kernels.bench import compile_all
from kernels.bench_runner import START_DEADLINE_S
from kernels.errors import GpuLost
from kernels.gpu_lock import RELEASE_S, release, take_in
from kernels.host import HostGpu
from kernels.process import Worker
from kernels.protocol import SAMPLE
from kernels.sources import commit
from kernels.steps import call_step, value_of
from kernels.sweep_host import host_facts, lasting
from kernels.sweep_runner import Figures, SweepRunner
from kernels.worker import device_facts
from solver.device import load_profile
from solver.model_version import MODEL_VERSION
from solver.problem_sweep import PlannedRow, ProblemSweep, planned_rows, visits_of

DESIGN_DEADLINE_S = 600.0

Tell = Callable[[str, int, int], None]
"""Hears how far a sweep is: the step, how much of it is done, of how much."""


class Rows(Protocol):
    """Where rows go as they are measured."""

    def begin(self, basis: str) -> Mapping[int, Mapping[str, Any]]:
        """Those that were measured before under the same ``basis``, by number."""

    def add(self, number: int, data: Mapping[str, Any]) -> None:
        """A further one."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What came of it: how many rows failed, and a record of JSON values."""

    failed: int
    record: dict[str, Any]


def plan(sweep: ProblemSweep, device: str) -> tuple[PlannedRow, ...]:
    """In a GPU process: the rows to measure. No CUDA here."""
    return planned_rows(sweep, load_profile(device))


def sweep_problems(
    sweep: ProblemSweep, gpu: HostGpu, device: str, worker: Worker, rows: Rows, tell: Tell
) -> SweepResult:
    """Measure every row that was not measured before on this host as it is now.

    A row that fails is a result, with its reason. Raises CompilerAbsent, GpuLost where the GPU or
    its process fails, and StepFailed where a step goes wrong for another reason.
    """
    begun = time.monotonic()
    tell("design", 0, 1)
    planned = call_step(worker, plan, (sweep, device), DESIGN_DEADLINE_S)
    tell("design", 1, 1)
    facts = {
        **host_facts(gpu, call_step(worker, device_facts, (), START_DEADLINE_S)),
        "uuid": gpu.uuid,
        "profile": device,
        "profile_sha256": load_profile(device).sha256,
        "model_version": MODEL_VERSION,
        "protocol": SAMPLE.with_cache(sweep.cache).to_dict(),
    }
    found = dict(rows.begin(_basis(facts, planned)))
    try:
        _measure(sweep, planned, found, gpu, device, worker, rows, tell)
    finally:
        if worker.running:
            worker.call(release, (), RELEASE_S)
    record = {
        **facts,
        "commit": commit(),
        "planned": len(planned),
        "measured": sum(row["reason"] is None for row in found.values()),
        "failed": sum(row["reason"] is not None for row in found.values()),
        "seconds": round(time.monotonic() - begun, 1),
        "problems": [_summary(place, found) for place in range(len(sweep.problems))],
    }
    return SweepResult(record["failed"], record)


def _measure(
    sweep: ProblemSweep,
    planned: tuple[PlannedRow, ...],
    found: dict[int, Mapping[str, Any]],
    gpu: HostGpu,
    device: str,
    worker: Worker,
    rows: Rows,
    tell: Tell,
) -> None:
    """Compile and measure what is not ``found`` yet, and add it there."""
    visits = visits_of(planned, sweep.seed, frozenset(found))
    keys = sorted({planned[number].row.key for visit in visits for number in visit.rows})
    compiled = 0

    def advance() -> None:
        nonlocal compiled
        if worker.halted:
            raise GpuLost("the sweep was ended while it compiled")
        compiled += 1
        tell("compile", compiled, len(keys))

    failures = lasting(compile_all(keys, advance)) if keys else {}
    tell("measure", len(found), len(planned))

    def done(number: int, _turn: int, figures: Figures) -> None:
        row = found[number] = _row(planned[number], figures)
        rows.add(number, row)
        tell("measure", len(found), len(planned))

    value_of(take_in(worker, gpu.uuid), "the GPU's lock")
    measured = [each.row for each in planned]
    SweepRunner(measured, device, failures, done, worker, alone_on=gpu.uuid).run(visits)


def _row(planned: PlannedRow, figures: Figures) -> dict[str, Any]:
    return {
        "problem": planned.problem,
        "role": planned.row.role,
        "pick": planned.pick,
        "config": planned.row.config.to_dict(),
        "predicted_us": planned.predicted_us,
        "median_us": figures.median_us,
        "p95_us": figures.p95_us,
        "sm_clock_mhz": figures.sm_clock_mhz,
        "power_w": figures.power_w,
        "throttle": list(figures.throttle),
        "reason": figures.reason,
    }


def _basis(facts: Mapping[str, Any], planned: tuple[PlannedRow, ...]) -> str:
    """Digest of what rows must agree in to stand beside one another."""
    rows = [
        (each.problem, each.row.problem.to_dict(), each.row.config.to_dict()) for each in planned
    ]
    return hashlib.sha256(json.dumps([facts, rows], sort_keys=True).encode()).hexdigest()


def _summary(place: int, found: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """What a problem's rows come to. ``regret`` is the pick's time over the best one, less 1."""
    mine = {number: row for number, row in found.items() if row["problem"] == place}
    timed = {number: row for number, row in mine.items() if row["median_us"] is not None}
    best = min(timed, key=lambda number: (timed[number]["median_us"], number), default=None)
    pick = next((number for number in sorted(timed) if timed[number]["pick"]), None)
    regret = None
    if best is not None and pick is not None:
        regret = timed[pick]["median_us"] / timed[best]["median_us"] - 1
    return {
        "rows": len(mine),
        "failed": len(mine) - len(timed),
        "best": None if best is None else _named(best, timed[best]),
        "pick": None if pick is None else _named(pick, timed[pick]),
        "regret": regret,
    }


def _named(number: int, row: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("config", "predicted_us", "median_us", "p95_us")
    return {"number": number, **{name: row[name] for name in kept}}
