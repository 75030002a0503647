"""The suites of odd pitches, of unaligned operands, of the ground truth's further shapes, and the
squares that are held for a second.

    python -m bench.make_suites

Writes bench/suites/odd40.csv, unaligned20.csv, further60.csv and squares2.csv, the same each time.
"""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from solver.problem import Problem
from solver.sweep_design import SEED as SWEEP_SEED
from solver.sweep_design import cold_problems

FOLDER = Path(__file__).with_name("suites")
SEED = 5
SWIZZLE_ELEMENTS = 64  # of 16 bits, in 128 bytes
VECTOR_ELEMENTS = 8  # in 16 bytes
MOST_ODD_M = 300
FIELDS = ("layout", "out_dtype", "lda", "ldb", "ldc", "a_offset", "b_offset", "c_offset")


def _odd_multiple(rng: random.Random, low: int, high: int) -> int:
    """A multiple of 16 bytes that is none of 128, in elements, between two bounds."""
    while True:
        value = rng.randrange(low, high, VECTOR_ELEMENTS)
        if value % SWIZZLE_ELEMENTS:
            return value


def odd_pitch(count: int = 40, seed: int = SEED) -> list[Problem]:
    """Rows of A and B that begin on 16 but not on 128 bytes, M from 1 to MOST_ODD_M.

    M is drawn evenly by its logarithm, its ends among them. Three of four have such a K, packed;
    the fourth a K of whole 128 bytes and longer pitches. C is aligned, by its rows too.
    """
    rng = random.Random(seed)
    problems = []
    for index in range(count):
        m = round(MOST_ODD_M ** ((index + rng.random()) / count)) if index else 1
        m = MOST_ODD_M if index == count - 1 else m
        n = rng.randrange(1024, 14337, VECTOR_ELEMENTS)
        if index % 4 < 3:
            problems.append(Problem(m, n, _odd_multiple(rng, 520, 14336)))
            continue
        k = SWIZZLE_ELEMENTS * rng.randint(8, 200)
        lda, ldb = (k + _odd_multiple(rng, 8, 512) for _ in range(2))
        problems.append(Problem(m, n, k, lda=lda, ldb=ldb))
    return problems


def unaligned(seed: int = SEED) -> list[Problem]:
    """20 problems of which TMA can't take some operand as it is, small and large."""
    rng = random.Random(seed)
    return [*_only_c(rng), *_odd_k(rng), *_odd_pitches(rng), *_odd_bases(rng), *_all_odd(rng)]


def _large(rng: random.Random) -> int:
    return 64 * rng.randint(64, 128)


def _only_c(rng: random.Random) -> Iterator[Problem]:
    """Large, and all aligned but C: an odd N, an odd pitch or an odd base."""
    for _ in range(3):
        m, n, k = (_large(rng) for _ in range(3))
        yield Problem(m, n - 1, k)
    m, n, k = (_large(rng) for _ in range(3))
    yield Problem(m, n, k, ldc=n + 1)
    m, n, k = (_large(rng) for _ in range(3))
    yield Problem(m, n, k, c_offset=1)


def _odd_k(rng: random.Random) -> Iterator[Problem]:
    """An odd K, at which neither A nor B can be taken: few rows, some, many."""
    for m in (rng.randint(2, 64), rng.randint(100, 600), 64 * rng.randint(48, 96)):
        yield Problem(m, 64 * rng.randint(32, 100), 2 * rng.randint(1000, 4000) + 1)


def _odd_pitches(rng: random.Random) -> Iterator[Problem]:
    """Extents in whole tiles, every pitch odd."""
    for m in (64, 512, 4096):
        n, k = (64 * rng.randint(24, 96) for _ in range(2))
        odd = [2 * rng.randint(0, 20) + 1 for _ in range(3)]
        yield Problem(m, n, k, lda=k + odd[0], ldb=k + odd[1], ldc=n + odd[2])


def _odd_bases(rng: random.Random) -> Iterator[Problem]:
    """Extents in whole tiles, packed, that begin off a 16-byte boundary: A, B, all of them."""
    for offsets in ((1, 0, 0), (0, 3, 0), (5, 7, 1)):
        m, n, k = (64 * rng.randint(4, 64) for _ in range(3))
        a, b, c = offsets
        yield Problem(m, n, k, a_offset=a, b_offset=b, c_offset=c)


def _all_odd(rng: random.Random) -> Iterator[Problem]:
    """Every extent odd, in every layout; from one row to thousands."""
    for m, layout in ((1, "tn"), (1, "tt"), (17, "nn"), (301, "nt"), (1023, "tt"), (3001, "tn")):
        n, k = (2 * rng.randint(500, 4000) + 1 for _ in range(2))
        yield Problem(m, n, k, layout=layout)


def squares() -> list[Problem]:
    """The squares that ``kernels.bench --sustained`` holds for a second."""
    return [Problem(size, size, size) for size in (8192, 16384)]


def further() -> list[Problem]:
    """The shapes that a ground truth has beside the LLM suite."""
    suites = cold_problems(SWEEP_SEED)
    return [problem for name, problems in suites.items() if name != "llm" for problem in problems]


def as_csv(problems: Sequence[Problem]) -> str:
    """The problems as ``solver.suites`` reads them: columns that differ from the defaults."""
    defaults = [Problem(p.m, p.n, p.k, layout=p.layout) for p in problems]
    told = [
        name
        for name in FIELDS
        if any(_cell(p, plain, name) for p, plain in zip(problems, defaults, strict=True))
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["m", "n", "k", *told])
    for problem, plain in zip(problems, defaults, strict=True):
        cells = [_cell(problem, plain, name) for name in told]
        writer.writerow([problem.m, problem.n, problem.k, *cells])
    return text.getvalue()


def _cell(problem: Problem, plain: Problem, name: str) -> str:
    """A field's cell; empty where it is the default."""
    value = getattr(problem, name)
    default = "tn" if name == "layout" else getattr(plain, name)
    return "" if value == default else str(value)


def suites() -> dict[str, list[Problem]]:
    """Every suite of this module by its file's name."""
    return {
        "odd40": odd_pitch(),
        "unaligned20": unaligned(),
        "further60": further(),
        "squares2": squares(),
    }


def main() -> None:
    """Write the files."""
    for name, problems in suites().items():
        (FOLDER / f"{name}.csv").write_text(as_csv(problems), "utf-8")


if __name__ == "__main__":
    main()
