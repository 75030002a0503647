"""A plan of (problem, configuration) samples to calibrate the Hopper family's constants from.

    python -m bench.sample_plan --per-problem 14 --seed 1 --out plan.json

Problems are the LLM suite, every eighth of the paper suite and odd ones; for each, the
model's first few rows and a seeded draw over the legal space, one per work, leaning to rows
within three times the best so that GPU time goes where picks are made. The GPU host runs it
with ``python -m kernels.bench plan.json --out result.json``.
"""

from __future__ import annotations

import argparse
import json
import random
from typing import Any

import numpy as np

from app.plan import commit
from kernels.sources import source_hash
from solver.config import Config
from solver.device import load_profile
from solver.pick import best_rows, price
from solver.problem import Problem
from solver.space import tabulate
from solver.suites import load_suite


def odd_problems(seed: int, count: int) -> list[Problem]:
    """Problems that are no multiple of any tile, M from 1 to 3,000."""
    rng = random.Random(seed)
    problems: list[Problem] = []
    while len(problems) < count:
        m = rng.choice([rng.randint(1, 64), rng.randint(65, 600), rng.randint(601, 3000)])
        n, k = rng.randint(300, 9000), 8 * (rng.randint(50, 900) | 1)
        if len(problems) % 2:
            n -= n % 8
        if n % 64 and k % 64:
            problems.append(Problem(m, n, k))
    return problems


def sample(problem: Problem, device: str, count: int, rng: random.Random) -> list[Config]:
    """``count`` configurations: a third the model's first rows, the rest drawn by work."""
    table = tabulate(problem, load_profile(device), "calibrated")
    first = [row.config for row in best_rows(table, 64)]
    chosen = first[:2] + rng.sample(first[2:], max(1, count // 3 - 2))
    work, kernel = table.rows(np.arange(len(table.first)))
    time, _ = price(table, work, kernel)
    near = np.flatnonzero(time <= 3 * time.min())
    works = sorted(set(work[near].tolist()))
    rng.shuffle(works)
    for w in works:
        if len(chosen) >= count:
            break
        options = near[work[near] == w]
        i = options[rng.randrange(len(options))]
        config = table.config(int(work[i]), int(kernel[i]))
        if config not in chosen:
            chosen.append(config)
    return chosen


def main() -> None:
    """Write the plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--per-problem", type=int, default=14)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    suites = {
        "llm": list(load_suite("llm")),
        "paper": list(load_suite("paper"))[::8],
        "odd": odd_problems(arguments.seed, 24),
    }
    rows: list[dict[str, Any]] = []
    for suite, problems in suites.items():
        for problem in problems:
            for config in sample(problem, arguments.device, arguments.per_problem, rng):
                rows.append(
                    {
                        "suite": suite,
                        "cache": "warm" if suite == "paper" else "cold",
                        "dtype": problem.dtype,
                        "layout": problem.layout,
                        "role": "sample",
                        "check": False,
                        "m": problem.m,
                        "n": problem.n,
                        "k": problem.k,
                        "config": config.to_dict(),
                    }
                )
    rng.shuffle(rows)
    with open(arguments.out, "w", encoding="utf-8") as file:
        head = {"suite": "calibration", "commit": commit(), "source_hash": source_hash()}
        json.dump(head | {"rows": rows}, file)
    print(f"{len(rows)} rows in {arguments.out}")


if __name__ == "__main__":
    main()
