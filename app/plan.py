"""Plan files: what `python -m kernels.bench` runs on a GPU host, chosen here with the model.

A row is one configuration of one problem. `pick` is the model's first; `best` rows are
candidates, the pick among them, of which the bench reports the fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from kernels.sources import commit, source_hash
from kernels.sustained import LEAST_FLOPS
from solver.config import Config
from solver.device import load_profile
from solver.engine import Engine
from solver.pick import Row, best_rows
from solver.problem import Problem
from solver.question import Question
from solver.report import naming
from solver.space import build_space
from solver.units import us_from_ticks

DEPTH = 1024  # rows of the ranking looked at first for candidates
FRUGAL = 8  # candidates of a large product that load least
FURTHER = 15  # shapes beside the first one's before another row of a shape is a candidate


def _shape(config: Config) -> tuple[int, ...]:
    """What sets a configuration apart by more than the model's error: its tile and how CTAs share
    the work."""
    return (
        config.tile_m,
        config.tile_n,
        config.tile_k,
        config.split_k,
        config.cluster_m,
        config.cluster_n,
    )


def spread(rows: Sequence[Row], count: int) -> list[Row]:
    """Candidates for the best, of rows in the model's order: the first row of each shape, FURTHER
    beside the first, and where more are asked for that many of the first rows too.

    The first ones alone would be one tile's variants, whose predicted times differ by less than
    the model errs: over the LLM suite the first 30 are of 3 shapes in the median and within 0.5 %,
    while 30 so spread reach 5 %. Of five candidates the fastest loses 0.8 % to that of thirty where
    they are of five shapes, and 1.0 % where three are the first rows (5.5 and 11.2 % at worst).
    """
    chosen = list(rows[: max(1, count - FURTHER)])
    seen = {_shape(row.config) for row in chosen}
    for row in rows[len(chosen) :]:
        if len(chosen) == count:
            break
        if _shape(row.config) not in seen:
            seen.add(_shape(row.config))
            chosen.append(row)
    return chosen


def filled(chosen: Sequence[Row], rows: Sequence[Row], count: int) -> list[Row]:
    """``chosen`` and, where the space has no more shapes, as many of its first other rows as are
    missing, in the model's order: a tile that the user asked for has rivals among its variants."""
    kept = set(map(id, chosen))
    others = (id(row) for row in rows if id(row) not in kept)
    kept |= set(islice(others, count - len(chosen)))
    return [row for row in rows if id(row) in kept]


def frugal(rows: Sequence[Row], count: int) -> list[Row]:
    """The first row of each of the shapes whose CTAs ask the L2 for least, per multiply-add.

    A large product runs at the clock that the power limit leaves it, and moving operands takes
    power: held for a second, 256×192 did more than tiles that are faster for a moment.
    """
    first: dict[tuple[int, ...], Row] = {}
    for row in rows:
        first.setdefault(_shape(row.config), row)
    return sorted(first.values(), key=lambda row: _asked_of_l2(row.config))[:count]


def _asked_of_l2(config: Config) -> float:
    """Elements of A and B for each multiply-add; a cluster asks once for what its CTAs share."""
    return 1 / (config.tile_n * config.cluster_n) + 1 / (config.tile_m * config.cluster_m)


def candidates(question: Question, count: int) -> list[tuple[dict[str, Any], float]]:
    """Configuration and predicted µs of ``count`` candidates for the fastest that a question
    allows, the model's first one first; fewer where the space holds fewer."""
    device = load_profile(question.device)
    space = build_space(question.problem, device, question.pricing, question.constraints)
    is_large = question.problem.flops >= LEAST_FLOPS
    depth = space.allowed.size if is_large else DEPTH
    while True:
        rows = best_rows(space.allowed, depth)
        chosen = spread(rows, count)
        if len(chosen) == count or len(rows) < depth or is_large:
            break
        depth *= 4
    chosen = filled(chosen, rows, count)
    if is_large and count > FRUGAL:
        saving = [row for row in frugal(rows, FRUGAL) if row not in chosen]
        chosen = chosen[: count - len(saving)] + saving
    return [(row.config.to_dict(), us_from_ticks(row.time)) for row in chosen]


def make_plan(
    suite: str,
    problems: Sequence[Problem],
    *,
    device: str,
    best: int,
    cache: str,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """The plan of a suite: for each problem the pick, and ``best`` candidates for the best.

    ``cache`` is cold or warm; ``progress`` is told (done, total). Predicted times in µs.
    """
    engine = Engine()
    name = Path(suite).stem
    rows: list[dict[str, Any]] = []
    for done, problem in enumerate(problems, start=1):
        question = Question(problem, device=device, proof="none", cache=cache)
        with naming(problem):
            answer = engine.optimize(question).to_dict()
        shared = {"suite": name, "cache": cache, **problem.to_dict()}
        planned = [("pick", (answer["config"], answer["predicted"]["time_us"]))]
        planned += [("best", each) for each in candidates(question, best)] if best else []
        rows += [
            {**shared, "role": role, "config": config, "predicted_us": time_us}
            for role, (config, time_us) in planned
        ]
        progress(done, len(problems))
    return {
        "suite": name,
        "cache": cache,
        "device": device,
        "commit": commit(),
        "source_hash": source_hash(),
        "rows": rows,
    }
