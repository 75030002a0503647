"""Plan files: what `python -m kernels.bench` runs on a GPU host, chosen here with the model.

A row is one configuration of one problem. `pick` is the model's first; `best` rows are
candidates, the pick among them, of which the bench reports the fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kernels.sources import commit, source_hash
from solver.engine import Engine
from solver.problem import Problem
from solver.question import Question


def make_plan(
    suite: str,
    problems: Sequence[Problem],
    *,
    device: str,
    best: int,
    cache: str,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """The plan of a suite: for each problem the pick, and its first ``best`` configurations.

    ``cache`` is cold or warm; ``progress`` is told (done, total). Predicted times in µs.
    """
    engine = Engine()
    name = Path(suite).stem
    rows: list[dict[str, Any]] = []
    for done, problem in enumerate(problems, start=1):
        question = Question(problem, device=device, proof="none", top_k=max(1, best), cache=cache)
        answer = engine.optimize(question).to_dict()
        shared = {"suite": name, "cache": cache, **problem.to_dict()}
        pick = (answer["config"], answer["predicted"]["time_us"])
        others = [(row["config"], row["time_us"]) for row in answer["alternatives"]]
        planned = [("pick", pick), *(("best", row) for row in [pick, *others][:best])]
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
