"""The plan of races that a regret is read from (``docs/accuracy.md``).

For each problem of the ground truth that was measured cold: the solver's pick of the whole legal
space, the model's first ones, what a verification would race, the fastest of the ground truth, and
what peers would take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from app.plan import candidates as raced_by_verification
from app.recorded import TRITON_HOW, Recorded
from kernels.bench_plan import problem_of
from kernels.sources import commit, source_hash
from solver.config import Config
from solver.device import DeviceProfile, load_profile
from solver.errors import InvalidInput
from solver.families import sm90_gemm as family
from solver.ground_truth import CONFIG_FIELDS, GroundTruthGroup
from solver.peers import nearest_legal, triton_wishes
from solver.pick import best_rows
from solver.problem import Problem
from solver.question import Question
from solver.raced import CONTEST, PICK, TOP, TOP_COUNT, TRUTH, TRUTH_COUNT
from solver.row_price import price_rows
from solver.space import tabulate
from solver.units import TICKS_PER_US, us_from_ticks

SUITE = "regret"


def model_first(problem: Problem, device: DeviceProfile) -> list[tuple[Config, float]]:
    """The model's first TOP_COUNT of the whole legal space with predicted µs; the first is the
    solver's pick."""
    rows = best_rows(tabulate(problem, device, "calibrated"), TOP_COUNT)
    return [(row.config, us_from_ticks(row.time)) for row in rows]


def fastest(group: GroundTruthGroup, count: int = TRUTH_COUNT) -> list[Config]:
    """The configurations of a group's fastest rows; rows that tie in the table's order."""
    order = np.argsort(group.measured_us, kind="stable")[:count]
    return [
        Config(family.NAME, **{name: int(group.columns[name][row]) for name in CONFIG_FIELDS})
        for row in order
    ]


def peer_wishes(recorded: Recorded) -> dict[str, dict[Problem, Mapping[str, int]]]:
    """What each peer would take of a problem, in this family's fields."""
    triton = {
        problem_of(row): triton_wishes(row[TRITON_HOW])
        for row in recorded.triton
        if row["cache"] == "cold"
    }
    picks = () if recorded.nvmmh is None else recorded.nvmmh["rows"]
    nvmmh = {problem_of(row): row["pick"] for row in picks if row["pick"] is not None}
    return {"nvmmh": nvmmh, "triton": triton}


def predicted_us(problem: Problem, device: DeviceProfile, config: Config) -> float:
    """What the model says of one configuration, cold."""
    columns = {name: np.array([getattr(config, name)]) for name in CONFIG_FIELDS}
    return float(price_rows(problem, device, columns, cold=True)[0][0] / TICKS_PER_US)


def candidates(
    group: GroundTruthGroup,
    device: DeviceProfile,
    wishes: Mapping[str, Mapping[Problem, Mapping[str, int]]],
) -> list[tuple[Config, float, list[str]]]:
    """What is raced of one problem, the pick first, none twice: configuration, predicted µs, and
    all the reasons for which it is tried."""
    problem = group.problem
    first = model_first(problem, device)
    known = dict(first)
    tried: dict[Config, list[str]] = {config: [TOP] for config, _ in first}
    tried[first[0][0]].insert(0, PICK)
    for fields, time_us in raced_by_verification(Question(problem, device.name), TOP_COUNT):
        config = Config.from_dict(fields)
        known[config] = time_us
        tried.setdefault(config, []).append(CONTEST)
    for config in fastest(group):
        tried.setdefault(config, []).append(TRUTH)
    for peer, of in wishes.items():
        if problem in of:
            tried.setdefault(nearest_legal(problem, device, of[problem]), []).append(peer)
    return [
        (config, known.get(config) or predicted_us(problem, device, config), why)
        for config, why in tried.items()
    ]


def make_regret_plan(
    recorded: Recorded,
    device: str,
    progress: Callable[[int, int], None],
    suite: str | None = None,
) -> dict[str, Any]:
    """The plan, of the ground truth's shapes of one suite or of all; ``progress`` is told (done,
    total). Raises InvalidInput for a suite of which there is no shape."""
    profile = load_profile(device)
    wishes = peer_wishes(recorded)
    groups: Sequence[GroundTruthGroup] = [group for group in recorded.groups if group.cold]
    if suite is not None:
        there = sorted({group.suite for group in groups})
        groups = [group for group in groups if group.suite == suite]
        if not groups:
            raise InvalidInput("suite", f"must be one of {', '.join(there)}, got {suite!r}")
    rows: list[dict[str, Any]] = []
    for done, group in enumerate(groups, start=1):
        shared = {"suite": group.suite, "cache": "cold", **group.problem.to_dict()}
        rows += [
            {
                **shared,
                "role": "regret",
                "config": config.to_dict(),
                "predicted_us": time_us,
                "of": why,
            }
            for config, time_us, why in candidates(group, profile, wishes)
        ]
        progress(done, len(groups))
    return {
        "suite": SUITE,
        "cache": "cold",
        "device": device,
        "commit": commit(),
        "source_hash": source_hash(),
        "rows": rows,
    }
