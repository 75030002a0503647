"""How fast questions are answered, and whether the answers are right."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from solver import oracle
from solver.conflict import Unsatisfiable
from solver.constraints import NONE, Constraints
from solver.device import load_profile
from solver.engine import Engine
from solver.errors import ProofError
from solver.objective import DEFAULT, Objective, Pareto
from solver.pick import Row
from solver.problem import Problem
from solver.question import Question
from solver.report import naming
from solver.solution import Proof
from solver.space import build_space

PASSES = 3

Progress = Callable[[int, int], None]


def bench_solve(
    problems: Sequence[Problem],
    device: str = "h200",
    *,
    objective: Objective = DEFAULT,
    constraints: Constraints = NONE,
    check: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Answer every problem with proof, uncached, three times; report the best pass.

    Times are wall milliseconds of pick + proof per problem. With ``check`` every answer is
    also compared with brute force over its whole space by the simulator, and two false claims
    must fail to prove. ``reference_ms`` is a fixed piece of pure Python work, so that a slow
    machine shows.
    """
    started = time.perf_counter()
    engine = Engine()
    engine.warm([device])
    startup_s = time.perf_counter() - started
    questions = [
        Question(problem, device=device, objective=objective, constraints=constraints)
        for problem in problems
    ]
    if check:
        for question in questions:
            with naming(question.problem):
                asked = build_space(
                    question.problem, load_profile(device), question.pricing, constraints
                )
            oracle.check_playable(question.problem, asked.legal)
    total = len(questions) * (PASSES + bool(check))
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    passes: list[list[dict[str, Any]]] = []
    for _ in range(PASSES):
        rows = []
        for question in questions:
            with naming(question.problem):
                rows.append(_solve_once(engine, question))
            step()
        passes.append(rows)
    best = min(passes, key=lambda rows: float(np.median([row["total_ms"] for row in rows])))
    totals = [row["total_ms"] for row in best]
    space = [row["configurations"] for row in best]
    result = {
        "device": device,
        "objective": objective.to_dict(),
        "constraints": constraints.to_dict(),
        "cores": len(os.sched_getaffinity(0)),
        "shapes": len(best),
        "optimal": sum(row["optimal"] for row in best),
        "p50_ms": float(np.percentile(totals, 50)),
        "p99_ms": float(np.percentile(totals, 99)),
        "pick_p50_ms": float(np.median([row["pick_ms"] for row in best])),
        "space_min": min(space),
        "space_p50": float(np.median(space)),
        "space_max": max(space),
        "startup_s": startup_s,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "reference_ms": reference_ms(),
        "by_shape": best,
    }
    if check:
        equal, controls = 0, 0
        for question in questions:
            right, refused = _check(engine, question)
            equal += right
            controls += refused
            step()
        result["equal_to_brute_force"] = equal
        result["controls_refused"] = controls
    return result


def _solve_once(engine: Engine, question: Question) -> dict[str, Any]:
    problem = question.problem
    started = time.perf_counter()
    solution, figures, why = None, {"pick": 0.0}, None
    try:
        answer = engine.optimize(question)
        solution, figures = answer.solution, answer.timings_ms
    except (ProofError, Unsatisfiable) as error:
        why = str(error)
    ended = time.perf_counter()
    proof = solution.proof if solution and isinstance(solution.proof, Proof) else None
    return {
        **problem.to_dict(),
        "configurations": solution.space.allowed.size if solution else 0,
        "groups": proof.groups if proof else 0,
        "refuted_exactly": proof.refuted_exactly if proof else 0,
        "front": len(solution.front.points) if solution and solution.front else None,
        "optimal": proof is not None,
        "why_not": why,
        "pick_ms": figures["pick"],
        "total_ms": (ended - started) * 1e3,
    }


def _check(engine: Engine, question: Question) -> tuple[bool, bool]:
    """(answer equals brute force, both false claims are refused)."""
    solution = engine.optimize(replace(question, proof="none")).solution
    space, objective = solution.space, question.objective.to_dict()
    constraints = question.constraints.to_dict()
    rows: Sequence[Row]
    if isinstance(question.objective, Pareto):
        assert solution.front is not None
        rows, expected = solution.front.points, oracle.front(space.legal, objective, constraints)
    else:
        rows, expected = solution.rows, oracle.first_rows(space.legal, objective, 1, constraints)
    equal = [(*row.values, row.config) for row in rows] == [
        (*row.values, row.config) for row in expected
    ]
    refused = 0
    for name in ("time", "wait"):
        wrong = replace(rows[0], **{name: getattr(rows[0], name) + 1})
        try:
            if isinstance(question.objective, Pareto):
                assert solution.front is not None
                false = replace(solution.front, points=(wrong, *rows[1:]))
                engine.prover.prove_front(space, false, question.objective)
            else:
                engine.prover.prove(space, [wrong], question.objective.ranking)
        except ProofError:
            refused += 1
    return equal, refused == 2


def reference_ms() -> float:
    """Best of five of a fixed loop of integer arithmetic, milliseconds."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        total = 0
        for i in range(200_000):
            total = (total * 31 + i) % 1_000_003
        times.append((time.perf_counter() - started) * 1e3)
    return min(times)
