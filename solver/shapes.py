"""Seeded problems beyond the suites: odd extents and pitches, other layouts and types, unaligned.

One seed makes the same problems on every machine, in an order of which more are a continuation.
"""

from __future__ import annotations

import random

from solver.problem import LAYOUTS, Problem
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
