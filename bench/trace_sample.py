"""Which configurations are traced: a seeded sample of the ground truth's, and two to be shown."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernels.bench_plan import read_plan
from kernels.launch_plan import plan_launch
from kernels.protocol import TRACE
from kernels.trace_launch import TraceTask
from kernels.trace_records import STEP_ROOM
from solver.config import Config
from solver.device import DeviceProfile
from solver.errors import IllegalConfig, InvalidInput
from solver.families import sm90_gemm as family
from solver.families.sm90_gemm_legality import check
from solver.ground_truth import GroundTruthGroup, load_ground_truth
from solver.row_price import price_rows
from solver.split import is_held_out

LONGEST_US = 3000.0
SHOWN_ITERATIONS = (32, 1024)
"""k-iterations of a CTA that is shown: enough to see a rhythm."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A configuration to trace: ``role`` is ``sample``, or ``math`` or ``loads`` for the timelines
    that are shown; ``measured_us`` is the ground truth's median, None where a plan is traced."""

    role: str
    suite: str
    task: TraceTask
    measured_us: float | None

    def to_dict(self) -> dict[str, Any]:
        """What a record's row says of it."""
        problem = self.task.problem
        return {
            "role": self.role,
            "suite": self.suite,
            "cache": self.task.protocol.cache,
            "held_out": is_held_out(problem.m, problem.n, problem.k),
            "problem": problem.to_dict(),
            "config": self.task.config.to_dict(),
            "measured_us": self.measured_us,
        }


def chosen(path: Path, device: DeviceProfile, count: int, seed: int) -> list[Traced]:
    """``count`` configurations of as many problems, suite after suite, and the two shown.

    Raises InvalidInput for a table that can't be read or has too few problems.
    """
    groups = load_ground_truth(path)
    sample = _sample(groups, device, count, seed)
    if len(sample) < count:
        raise InvalidInput("sample", f"{path} has {len(sample)} problems to trace, not {count}")
    return [*shown(groups, device), *sample]


def planned(path: Path, device: DeviceProfile) -> list[Traced]:
    """The rows of a plan of ``kernels.bench``, whatever their role, each configuration once.

    Raises InvalidInput for a file that is no plan, or a row that no kernel of the device runs.
    """
    found: dict[TraceTask, Traced] = {}
    for row in read_plan(path).rows:
        try:
            check(row.config, row.problem, device)
        except IllegalConfig as error:
            raise InvalidInput("plan", f"{path}: {error}") from error
        task = TraceTask(row.problem, row.config, device.name, TRACE.with_cache(row.cache))
        found.setdefault(task, Traced("sample", row.suite, task, None))
    return list(found.values())


def _sample(
    groups: Sequence[GroundTruthGroup], device: DeviceProfile, count: int, seed: int
) -> list[Traced]:
    draw = random.Random(seed)
    suites: dict[str, list[GroundTruthGroup]] = {}
    for group in groups:
        suites.setdefault(group.suite, []).append(group)
    for each in suites.values():
        draw.shuffle(each)
    found: list[Traced] = []
    while len(found) < count and any(suites.values()):
        for waiting in suites.values():
            traced = _of_group(waiting.pop(), device, draw) if waiting else None
            if traced is not None and len(found) < count:
                found.append(traced)
    return found


def _of_group(group: GroundTruthGroup, device: DeviceProfile, draw: random.Random) -> Traced | None:
    """One of a problem's rows that can be traced whole; None where none can."""
    rows = list(range(len(group.measured_us)))
    draw.shuffle(rows)
    return next((t for t in (_traced(group, row, device) for row in rows) if t is not None), None)


def _config(group: GroundTruthGroup, row: int) -> Config:
    return Config(family.NAME, **{name: int(values[row]) for name, values in group.columns.items()})


def _iterations(group: GroundTruthGroup, config: Config, device: DeviceProfile) -> tuple[int, int]:
    """k-iterations and units of a launch's busiest CTA, at the most."""
    plan = plan_launch(group.problem, config, device)
    units = -(-plan.units // plan.grid)
    return units * -(-group.problem.k // config.tile_k // config.split_k), units


def _traced(
    group: GroundTruthGroup, row: int, device: DeviceProfile, role: str = "sample"
) -> Traced | None:
    measured_us = float(group.measured_us[row])
    config = _config(group, row)
    try:
        check(config, group.problem, device)
    except IllegalConfig:
        return None
    iterations, units = _iterations(group, config, device)
    if measured_us > LONGEST_US or iterations + 2 * units > STEP_ROOM:
        return None
    protocol = TRACE.with_cache("cold" if group.cold else "warm")
    task = TraceTask(group.problem, config, device.name, protocol)
    return Traced(role, group.suite, task, measured_us)


def shown(groups: Sequence[GroundTruthGroup], device: DeviceProfile) -> Iterator[Traced]:
    """Of the LLM suite's fastest configurations, the one in which MATH waits for the least part of
    its predicted time, and the one in which it waits for the most."""
    found: list[tuple[float, Traced]] = []
    for group in groups:
        if group.suite != "llm":
            continue
        row = int(np.argmin(group.measured_us))
        traced = _traced(group, row, device)
        if traced is None:
            continue
        iterations, _ = _iterations(group, traced.task.config, device)
        if SHOWN_ITERATIONS[0] <= iterations <= SHOWN_ITERATIONS[1]:
            columns = {name: values[row : row + 1] for name, values in group.columns.items()}
            time, wait = price_rows(group.problem, device, columns, cold=group.cold)
            found.append((float(wait[0] / time[0]), traced))
    if found:
        for role, pick in (("math", min), ("loads", max)):
            one = pick(found, key=lambda each: each[0])[1]
            yield Traced(role, one.suite, one.task, one.measured_us)
