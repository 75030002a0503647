"""A plan of (problem, configuration) samples to calibrate the Hopper family's constants from.

    python -m bench.sample_plan --per-problem 9 --seed 1 --out plan.json

Problems are the LLM suite, every eighth of the paper suite, odd ones, others of every layout,
output type and pitch, and unaligned ones; for each, the model's first few rows and a seeded draw
over the legal space, one per work, leaning to rows within three times the best so that GPU time
goes where picks are made. The GPU host runs it with
``python -m kernels.bench plan.json --out result.json``.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.files import write
from kernels.files import check_place
from kernels.sources import commit, source_hash
from solver.config import Config
from solver.device import load_profile
from solver.errors import InvalidInput
from solver.pick import best_rows, price
from solver.problem import Problem
from solver.shapes import odd_problems, unaligned_problems, varied_problems
from solver.space import tabulate
from solver.suites import load_suite


def sample(problem: Problem, device: str, count: int, rng: random.Random) -> list[Config]:
    """``count`` configurations: half the model's first rows, the rest drawn by work."""
    table = tabulate(problem, load_profile(device), "calibrated")
    first = [row.config for row in best_rows(table, 96)]
    chosen = first[:2] + rng.sample(first[2:], max(1, count // 2 - 2))
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the plan; leaves with 2 for a device without the family, or no place for it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--per-problem", type=int, default=9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    rng = random.Random(chosen.seed)
    suites = {
        "llm": list(load_suite("llm")),
        "paper": list(load_suite("paper"))[::8],
        "odd": odd_problems(chosen.seed, 24),
        "varied": varied_problems(chosen.seed, 60),
        "unaligned": unaligned_problems(chosen.seed, 30),
    }
    try:
        check_place(chosen.out)
        rows: list[dict[str, Any]] = [
            {
                "suite": suite,
                "cache": "warm" if suite == "paper" else "cold",
                "role": "sample",
                "check": False,
                **problem.to_dict(),
                "config": config.to_dict(),
            }
            for suite, problems in suites.items()
            for problem in problems
            for config in sample(problem, chosen.device, chosen.per_problem, rng)
        ]
    except InvalidInput as error:
        parser.error(str(error))
    rng.shuffle(rows)
    head = {"suite": "calibration", "commit": commit(), "source_hash": source_hash()}
    write(chosen.out, head | {"rows": rows})
    print(f"{len(rows)} rows in {chosen.out}")


if __name__ == "__main__":
    main()
