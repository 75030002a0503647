"""What shared memory is worth: as a hard limit, and as a penalty beside time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from solver.bench import Progress
from solver.constraints import NONE, Constraints
from solver.engine import Engine
from solver.objective import DEFAULT, Objective, Weighted
from solver.problem import Problem
from solver.question import Question
from solver.report import naming

LIMITS_KIB = (192, 128, 96, 64, 48, 32)
PENALTIES = (0.0001, 0.001, 0.01, 0.1, 1.0)
"""Weights of shared memory, µs for each KiB: time weighs 1 for each µs."""


def bench_memory(
    problems: Sequence[Problem], device: str = "h200", progress: Progress | None = None
) -> dict[str, Any]:
    """Answers with memory limited, and with memory weighed, against those without either.

    Each row has the picks' predicted times over the free picks' (geometric mean and worst) and
    the shared memory they take (median, largest; KiB).
    """
    ways: list[tuple[str, float | None, Objective, Constraints]] = [("free", None, DEFAULT, NONE)]
    ways += [
        ("limit", kib, DEFAULT, Constraints.from_dict({"smem_bytes": {"max": kib * 1024}}))
        for kib in LIMITS_KIB
    ]
    ways += [
        ("penalty", weight, Weighted((("time", 1), ("smem", weight))), NONE) for weight in PENALTIES
    ]
    engine = Engine()
    free_us: list[int] = []
    rows: list[dict[str, Any]] = []
    for kind, value, objective, constraints in ways:
        times, smem = [], []
        for problem in problems:
            question = Question(
                problem, device=device, objective=objective, constraints=constraints, proof="none"
            )
            with naming(problem):
                pick = engine.optimize(question).solution.pick
            times.append(pick.time)
            smem.append(pick.smem_bytes / 1024)
            if progress:
                progress(len(rows) * len(problems) + len(times), len(ways) * len(problems))
        free_us = free_us or times
        ratios = [time / free for time, free in zip(times, free_us, strict=True)]
        rows.append(
            {
                "kind": kind,
                "value": value,
                "time_ratio_geomean": math.exp(float(np.mean(np.log(ratios)))),
                "time_ratio_worst": max(ratios),
                "smem_kib_p50": float(np.median(smem)),
                "smem_kib_max": max(smem),
            }
        )
    return {"device": device, "shapes": len(problems), "rows": rows}
