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
import json
import random
from typing import Any

import numpy as np

from kernels.sources import commit, source_hash
from solver.config import Config
from solver.device import load_profile
from solver.pick import best_rows, price
from solver.problem import LAYOUTS, Problem
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


def varied_problems(seed: int, count: int) -> list[Problem]:
    """Problems of the suites in other layouts, output types and pitches, all aligned."""
    rng = random.Random(seed)
    known = [*load_suite("llm"), *load_suite("paper")[::16]]
    problems: list[Problem] = []
    while len(problems) < count:
        base = rng.choice(known)
        m = base.m if rng.random() < 0.5 else rng.choice([8, 24, 200, 1000, 3000])
        layout = LAYOUTS[len(problems) % len(LAYOUTS)]
        out = rng.choice(["bf16", "bf16", "bf16", "fp32", "fp16"])
        gap = rng.choice([0, 0, 8, 64])
        if m * base.n * base.k > 2**38:
            continue
        a_length, b_length = (
            base.k if layout[0] == "t" else m,
            base.k if layout[1] == "n" else base.n,
        )
        problems.append(
            Problem(
                m,
                base.n,
                base.k,
                layout=layout,
                out_dtype=out,
                lda=None if m == 1 and layout[0] == "n" else -(-a_length // 8) * 8 + gap,
                ldb=b_length + gap,
                ldc=base.n + gap,
            )
        )
    return problems


def unaligned_problems(seed: int, count: int) -> list[Problem]:
    """Problems that TMA can't take as they are: odd extents, pitches or bases; small and large."""
    rng = random.Random(seed)
    problems = []
    for index in range(count):
        m = rng.choice([rng.randint(1, 64), rng.randint(65, 600), rng.randint(601, 4100)])
        n, k = rng.randint(300, 8300), rng.randint(300, 8300)
        kind = index % 5
        if kind != 0:
            n -= n % 8
        if kind not in (1, 2):
            k -= k % 8
        problems.append(
            Problem(
                m,
                n,
                k,
                layout="tn" if kind == 1 else LAYOUTS[index % len(LAYOUTS)],
                lda=None if kind != 3 else max(m, k) | 1,
                a_offset=1 if kind == 4 else 0,
                c_offset=3 if kind == 4 and index % 2 else 0,
            )
        )
    return problems


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


def main() -> None:
    """Write the plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--per-problem", type=int, default=9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    suites = {
        "llm": list(load_suite("llm")),
        "paper": list(load_suite("paper"))[::8],
        "odd": odd_problems(arguments.seed, 24),
        "varied": varied_problems(arguments.seed, 60),
        "unaligned": unaligned_problems(arguments.seed, 30),
    }
    rows: list[dict[str, Any]] = []
    for suite, problems in suites.items():
        for problem in problems:
            for config in sample(problem, arguments.device, arguments.per_problem, rng):
                rows.append(
                    {
                        "suite": suite,
                        "cache": "warm" if suite == "paper" else "cold",
                        "role": "sample",
                        "check": False,
                        **problem.to_dict(),
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
