"""Plans for ``python -m kernels.power``: seeded rows to hold, and answers to be held to.

    python -m bench.power_plan --out plan.json
    python -m bench.power_plan --answers --device h200 --out answers.json

Rows come from the ground truth's problems and configurations, and from squares, by fixed parts;
half of a part's are among the fastest of their problem, since picks are. The answers are the pick,
what a weighted sum of time and energy answers and what a cap on power does; they need constants of
power in the profile (``bench.power_fit``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from bench.files import write
from kernels.files import check_place
from kernels.protocol import BENCH, rotation_sets
from kernels.sources import commit, source_hash
from solver.config import Config
from solver.constraints import Constraints
from solver.device import DeviceProfile, load_profile
from solver.engine import pick
from solver.errors import InvalidInput, WarpwrightError
from solver.ground_truth import GroundTruthGroup, load_ground_truth
from solver.objective import DEFAULT, Objective, Weighted
from solver.pick import price
from solver.problem import Problem
from solver.question import Question
from solver.report import predicted
from solver.solution import Solution
from solver.space import build_space, tabulate
from solver.suites import load_suite
from solver.units import TICKS_PER_US

TRUTH = Path("bench/results/h200/ground_truth.csv.gz")
ROWS, SEED = 200, 9
SQUARES = (512, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
PARTS = {"llm": 0.4, "squares": 0.25, "paper": 0.15, "varied": 0.1, "odd": 0.05, "unaligned": 0.05}
"""Which part of all rows each suite has; ``paper``'s problems are the small ones."""
FAST = 1.5
"""Times the fastest of their problem that half of the rows take at most."""
QUESTIONS = 6
ENERGY_WEIGHT = 10.0
CAP = 0.85
"""Of the pick's predicted power, what the cap leaves."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A row to hold."""

    suite: str
    problem: Problem
    config: Config
    time_us: float | None


def cache_of(problem: Problem, l2_bytes: int) -> str:
    """Cold where its inputs, in rotation, stay so without a flush of the L2; else warm."""
    _, flush = rotation_sets(problem.operand_bytes, l2_bytes, BENCH)
    return "warm" if flush else "cold"


def from_truth(
    groups: Sequence[GroundTruthGroup], suite: str, count: int, random: Random
) -> Iterator[Drawn]:
    """Rows of a suite's problems, each problem as often as another."""
    mine = [group for group in groups if group.suite == suite]
    order = [mine[i % len(mine)] for i in random.sample(range(count), count)] if mine else []
    random.shuffle(mine)
    for number, group in enumerate(order):
        near = group.measured_us <= FAST * group.measured_us.min()
        rows = np.flatnonzero(near) if number % 2 else np.arange(len(near))
        at = random.choice(rows.tolist())
        fields = {name: int(column[at]) for name, column in group.columns.items()}
        config = Config("sm90_gemm", **fields)
        yield Drawn(suite, group.problem, config, float(group.measured_us[at]))


def from_squares(device: DeviceProfile, count: int, random: Random) -> Iterator[Drawn]:
    """Rows of SQUARES by the model."""
    for number in range(count):
        size = SQUARES[number % len(SQUARES)]
        problem = Problem(size, size, size)
        table = tabulate(problem, device, "calibrated")
        work, kernel = table.rows(np.arange(len(table.first)))
        time, _ = price(table, work, kernel)
        most = FAST if number // len(SQUARES) % 2 else 4 * FAST
        at = random.choice(np.flatnonzero(time <= most * time.min()).tolist())
        config: Config = table.config(int(work[at]), int(kernel[at]))
        yield Drawn("squares", problem, config, float(time[at]) / TICKS_PER_US)


def rows(truth: Path, device: DeviceProfile, count: int, seed: int) -> list[Drawn]:
    """``count`` rows in a seeded order, none twice. Raises InvalidInput."""
    random = Random(f"power {seed}")
    groups = load_ground_truth(truth)
    drawn: list[Drawn] = []
    for suite, part in PARTS.items():
        wanted = round(count * part)
        source = (
            from_squares(device, wanted, random)
            if suite == "squares"
            else from_truth(groups, suite, wanted, random)
        )
        drawn += source
    once = {(each.problem, each.config): each for each in drawn}
    while len(once) < count:  # what was drawn twice
        for each in from_truth(groups, "llm", count - len(once), random):
            once.setdefault((each.problem, each.config), each)
    found = list(once.values())[:count]
    random.shuffle(found)
    return found


def row_plan(truth: Path, device: DeviceProfile, count: int, seed: int) -> dict[str, Any]:
    """The plan of rows as JSON."""
    l2_bytes = device.limit("l2_bytes")
    return {
        "suite": "power",
        "cache": "cold",
        "commit": commit(),
        "source_hash": source_hash(),
        "seed": seed,
        "rows": [
            {
                "suite": each.suite,
                "cache": cache_of(each.problem, l2_bytes),
                "role": "sample",
                "check": False,
                **each.problem.to_dict(),
                "config": each.config.to_dict(),
                "predicted_us": each.time_us,
            }
            for each in rows(truth, device, count, seed)
        ],
    }


def answer_plan(
    device: DeviceProfile,
    problems: Sequence[Problem],
    count: int,
    energy_weight: float,
    cap: float,
) -> dict[str, Any]:
    """The plan of answers as JSON: of the ``count`` problems for which the weighted answer is
    predicted to gain most on the pick, since a GPU can tell these apart.

    Raises Unsupported where the device's power was not measured, Unsatisfiable where a cap leaves
    nothing.
    """
    asked = [_question(device, each, energy_weight, cap) for each in problems]
    return {
        "suite": "power_answers",
        "commit": commit(),
        "source_hash": source_hash(),
        "profile_sha256": device.sha256,
        "questions": sorted(asked, key=_score_ratio)[:count],
    }


def _question(
    device: DeviceProfile, problem: Problem, energy_weight: float, cap: float
) -> dict[str, Any]:
    cache = cache_of(problem, device.limit("l2_bytes"))
    weights = {"time": 1.0, "energy": energy_weight}

    def solved(objective: Objective, constraints: dict[str, Any]) -> Solution:
        question = Question(
            problem,
            device=device.name,
            cache=cache,
            objective=objective,
            constraints=Constraints.from_dict(constraints),
        )
        space = build_space(problem, device, question.pricing, question.constraints)
        return pick(question, device, space)

    def told(solution: Solution) -> dict[str, Any]:
        best, table = solution.pick, solution.space.allowed
        figures = predicted(table, best.work, best.kernel, problem)
        return {
            "config": best.config.to_dict(),
            "predicted": {"time_us": figures["time_us"], **figures["sustained"]},
        }

    weighted = told(solved(Weighted(tuple(weights.items())), {}))
    first = told(solved(DEFAULT, {}))
    cap_w = int(cap * first["predicted"]["power_w"])
    capped = told(solved(DEFAULT, {"power_w": {"max": cap_w}}))
    return {
        **problem.to_dict(),
        "cache": cache,
        "weights": weights,
        "cap_w": cap_w,
        "answers": {"pick": first, "weighted": weighted, "capped": capped},
    }


def _score_ratio(question: dict[str, Any]) -> float:
    """The weighted answer's predicted score over the pick's, both held for seconds."""
    weights = question["weights"]

    def score(role: str) -> float:
        figures = question["answers"][role]["predicted"]
        held: float = weights["time"] * figures["time_us"]
        spent: float = weights["energy"] * figures["energy_j"] * 1e3
        return held + spent

    return score("weighted") / score("pick")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a plan; 0, or 2 where there is none to be made."""
    parser = argparse.ArgumentParser(prog="python -m bench.power_plan", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="plan file (JSON)")
    parser.add_argument("--device", default="h200", help="profile that prices")
    parser.add_argument("--truth", type=Path, default=TRUTH, help="ground truth to draw from")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"how many; {ROWS}")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the rows; {SEED}")
    parser.add_argument("--answers", action="store_true", help="instead: answers to be held to")
    parser.add_argument(
        "--questions", type=int, default=QUESTIONS, help=f"with --answers: how many; {QUESTIONS}"
    )
    parser.add_argument(
        "--energy-weight", type=float, default=ENERGY_WEIGHT, help="per mJ, beside 1 per µs of time"
    )
    parser.add_argument("--cap", type=float, default=CAP, help="on power, as a part of the pick's")
    chosen = parser.parse_args(arguments)
    try:
        check_place(chosen.out)
        device = load_profile(chosen.device)
        if chosen.rows < 1 or not 0 < chosen.cap <= 1:
            raise InvalidInput("rows", "must be at least 1, and --cap above 0 and at most 1")
        if chosen.answers:
            problems = [*load_suite("llm"), *(Problem(n, n, n) for n in SQUARES)]
            plan = answer_plan(device, problems, chosen.questions, chosen.energy_weight, chosen.cap)
        else:
            plan = row_plan(chosen.truth, device, chosen.rows, chosen.seed)
    except WarpwrightError as error:
        print(f"bench.power_plan: {error}", file=sys.stderr)
        return 2
    write(chosen.out, plan)
    print(f"{len(plan.get('rows') or plan['questions'])} planned", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
