"""Random constraint sets, each answer held against brute force over every configuration.

A satisfiable set's pick must be the first row by brute force; of one that is not, the core
must clash while each smaller set of its members does not, by trying all of them, and each
relaxation must be the least that leaves something.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from solver import oracle
from solver.bench import Progress
from solver.conflict import Unsatisfiable
from solver.constraints import CONFIG_FIELDS, NONE, POWER, RESOURCES, Constraints
from solver.device import load_profile
from solver.engine import Engine
from solver.problem import Problem
from solver.question import Question
from solver.report import naming
from solver.space import Pricing, build_space, tabulate
from solver.table import Table

VARIABLES_MAX = 5


def random_constraints(rng: random.Random, table: Table) -> dict[str, Any]:
    """Constraints on one to five variables, in JSON form, their values near the table's own."""
    names = [*(name for name in RESOURCES if name != POWER), *CONFIG_FIELDS]
    given: dict[str, Any] = {}
    for name in rng.sample(names, rng.randint(1, VARIABLES_MAX)):
        variable = name if name in RESOURCES else f"config.{name}"
        _, column = table.column(variable)
        values = sorted(set(column.tolist()))
        place = given if name in RESOURCES else given.setdefault("config", {})
        place[name] = dict(_relations(rng, values))
    return given


def _relations(rng: random.Random, values: list[int]) -> Iterator[tuple[str, Any]]:
    """One or two of min, max and in, with values of the variable or just beside them."""

    def near() -> int:
        return max(0, rng.choice(values) + rng.choice((0, 0, 0, 1, -1)))

    for relation in rng.sample(("min", "max", "in"), rng.choice((1, 1, 1, 2))):
        if relation == "in":
            yield relation, sorted({near() for _ in range(rng.randint(1, 4))})
        else:
            yield relation, near()


def bench_constraints(
    problems: Sequence[Problem],
    device: str = "h200",
    *,
    sets: int = 500,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Ask ``sets`` seeded questions with random constraints and check every answer.

    Times are wall milliseconds of the whole answer, proof included; of a core, until it is
    told.
    """
    rng = random.Random(seed)
    profile, engine = load_profile(device), Engine()
    engine.warm([device])
    for problem in problems:
        with naming(problem):
            space = build_space(problem, profile, Pricing(), NONE)
        oracle.check_playable(problem, space.legal)
    tally = {"equal_to_brute_force": 0, "minimal_cores": 0, "least_relaxations": 0}
    answers_ms: list[float] = []
    cores_ms: list[float] = []
    sizes: list[int] = []
    for done in range(sets):
        problem = rng.choice(problems)
        free = tabulate(problem, profile, "calibrated")
        raw = random_constraints(rng, free)
        constraints = Constraints.from_dict(raw)
        question = Question(problem, device=device, constraints=constraints)
        started = time.perf_counter()
        try:
            row = engine.optimize(question).solution.pick
        except Unsatisfiable as conflict:
            cores_ms.append((time.perf_counter() - started) * 1e3)
            sizes.append(len(conflict.core))
            tally["minimal_cores"] += is_minimal(free, conflict)
            tally["least_relaxations"] += are_least(free, raw, conflict)
        else:
            answers_ms.append((time.perf_counter() - started) * 1e3)
            priced = tabulate(
                problem, profile, "calibrated", grids=constraints.grids(profile.limit("sms"))
            )
            first = oracle.first_rows(priced, question.objective.to_dict(), 1, raw)[0]
            tally["equal_to_brute_force"] += (first.time, first.wait, first.config) == (
                row.time,
                row.wait,
                row.config,
            )
        if progress:
            progress(done + 1, sets)
    return {
        "device": device,
        "sets": sets,
        "seed": seed,
        "satisfiable": len(answers_ms),
        "unsatisfiable": len(cores_ms),
        **tally,
        "core_sizes": {str(n): sizes.count(n) for n in sorted(set(sizes))},
        **_percentiles("core", cores_ms),
        **_percentiles("answer", answers_ms),
    }


def is_minimal(table: Table, conflict: Unsatisfiable) -> bool:
    """Whether the core clashes and no smaller set of its members does, by trying them all."""
    given = [(*_named(r["path"]), r["given"]) for r in conflict.relaxations]
    return oracle.is_minimal_core(table, given)


def are_least(table: Table, raw: dict[str, Any], conflict: Unsatisfiable) -> bool:
    """Whether each relaxation is the nearest value that leaves something, by trying them all.

    ``table`` is priced without constraints, ``raw`` are all of the question's.
    """
    given = list(oracle.atoms(raw))
    paths = [atom[:2] for atom in given]
    return all(
        relaxation["relaxed"]
        == oracle.least_change(table, given, paths.index(_named(relaxation["path"])))
        for relaxation in conflict.relaxations
    )


def _named(path: str) -> tuple[str, str]:
    variable, _, relation = path.removeprefix("constraints.").rpartition(".")
    return variable, relation


def _percentiles(name: str, times: list[float]) -> dict[str, float | None]:
    if not times:
        return {f"{name}_p50_ms": None, f"{name}_p99_ms": None}
    return {
        f"{name}_p50_ms": float(np.percentile(times, 50)),
        f"{name}_p99_ms": float(np.percentile(times, 99)),
    }
