"""How fast questions are answered, and whether the answers are right."""

from __future__ import annotations

import dataclasses
import os
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from solver.brute_force import brute_force
from solver.device import load_profile
from solver.engine import Engine, tabulate
from solver.errors import ProofError
from solver.pick import best_rows
from solver.problem import Problem
from solver.proof import Prover

PASSES = 3

Progress = Callable[[int, int], None]


def bench_solve(
    problems: Sequence[Problem],
    device: str = "h200",
    *,
    check: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Answer every problem with proof, uncached, three times; report the best pass.

    Times are wall milliseconds of pick + proof per problem. With ``check`` every pick is
    also compared with brute force over its whole legal space by the simulator, and claims
    of one tick more time and of one tick more wait must fail to prove. ``reference_ms`` is a
    fixed piece of pure Python work, so that a slow machine shows.
    """
    started = time.perf_counter()
    profile = load_profile(device)
    prover = Prover()
    Engine(prover).warm([device])
    startup_s = time.perf_counter() - started
    total = len(problems) * (PASSES + bool(check))
    done = 0

    passes: list[list[dict[str, Any]]] = []
    for _ in range(PASSES):
        rows = []
        for problem in problems:
            rows.append(_solve_once(problem, profile.name, prover))
            done += 1
            if progress:
                progress(done, total)
        passes.append(rows)
    best = min(passes, key=lambda rows: float(np.median([row["total_ms"] for row in rows])))
    totals = [row["total_ms"] for row in best]
    space = [row["configurations"] for row in best]
    result = {
        "device": device,
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
        "reference_ms": _reference_ms(),
        "by_shape": best,
    }
    if check:
        equal, controls = 0, 0
        for problem in problems:
            right, refused = _check(problem, profile.name, prover)
            equal += right
            controls += refused
            done += 1
            if progress:
                progress(done, total)
        result["equal_to_brute_force"] = equal
        result["controls_refused"] = controls
    return result


def _solve_once(problem: Problem, device: str, prover: Prover) -> dict[str, Any]:
    profile = load_profile(device)
    optimal, groups, exactly = True, 0, 0
    started = time.perf_counter()
    table = tabulate(problem, profile, "calibrated")
    best = best_rows(table)[0]
    picked = time.perf_counter()
    try:
        proof = prover.prove(table, best)
        groups, exactly = proof.groups, proof.refuted_exactly
    except ProofError:
        optimal = False
    ended = time.perf_counter()
    return {
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "configurations": table.size,
        "groups": groups,
        "refuted_exactly": exactly,
        "optimal": optimal,
        "pick_ms": (picked - started) * 1e3,
        "total_ms": (ended - started) * 1e3,
    }


def _check(problem: Problem, device: str, prover: Prover) -> tuple[bool, bool]:
    """(pick equals brute force, both control claims are refused)."""
    table = tabulate(problem, load_profile(device), "calibrated")
    best = best_rows(table)[0]
    refused = 0
    for field in ("time", "wait"):
        wrong = dataclasses.replace(best, **{field: getattr(best, field) + 1})
        try:
            prover.prove(table, wrong)
        except ProofError:
            refused += 1
    return brute_force(table) == (best.time, best.wait, best.config), refused == 2


def _reference_ms() -> float:
    """Best of five of a fixed loop of integer arithmetic, milliseconds."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        total = 0
        for i in range(200_000):
            total = (total * 31 + i) % 1_000_003
        times.append((time.perf_counter() - started) * 1e3)
    return min(times)
