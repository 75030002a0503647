"""The figures of ``warpwright bench accuracy``: recorded rows held against the model as it is now.

Reads and puts together; the arithmetic is in ``solver.accuracy`` and ``solver.raced``. What each
figure is over: ``docs/accuracy.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from app.recorded import Recorded
from app.regret_plan import model_first
from kernels.bench_plan import problem_of
from solver.accuracy import (
    FITTED,
    HELD_OUT,
    Predictor,
    Scored,
    error_figures,
    geomean,
    measured_regret,
    part_figures,
    score,
)
from solver.device import DeviceProfile, load_profile
from solver.engine import Engine
from solver.families import paper
from solver.model_version import MODEL_VERSION
from solver.peers import (
    Roofline,
    nvmmh_estimates,
    problem_key,
    published_times,
    roofline_times,
)
from solver.problem import Problem
from solver.question import Question
from solver.raced import NOTHING, ShapeRegret, regret_figures, shape_regret
from solver.split import CONFIG_PART, FORM, SHAPE_PART, is_held_out

PAPER = "paper"
"""The suite of the published protocol; all others make the part ``llm``."""

SPLIT_WORDS = (
    f"a row is held out where its shape is (one of {SHAPE_PART} by the hash of m, n, k), or the "
    f"form of its configuration (one of {CONFIG_PART} by the hash of {', '.join(FORM)}); constants "
    "are fitted to no such row"
)

Progress = Callable[[int, int], None]


def predictors(recorded: Recorded, device: DeviceProfile) -> dict[str, Predictor]:
    """What peers say of a group's rows, as far as it is recorded."""
    found: dict[str, Predictor] = {}
    if paper.NAME in device.models:
        found["published"] = published_times(device)
    if recorded.nvmmh is not None:
        found["nvmmh"] = nvmmh_estimates(recorded.nvmmh)
    if recorded.ceilings is not None:
        found["roofline"] = roofline_times(Roofline.of(recorded.ceilings["ceilings"]))
    return found


def scored_groups(recorded: Recorded, device: DeviceProfile) -> list[Scored]:
    """All groups of the ground truth with what is predicted of their rows."""
    others = predictors(recorded, device)
    return [score(group, device, others) for group in recorded.groups]


def accuracy(
    recorded: Recorded, device: str, which: str = HELD_OUT, progress: Progress = lambda *_: None
) -> dict[str, Any]:
    """The whole answer. With ``which`` FITTED nothing of what is held out is looked at: errors are
    those of fitted rows, regrets those of shapes that are not held out.

    ``progress`` is told (problems whose picks were looked up, all).
    """
    profile = load_profile(device)
    scored = scored_groups(recorded, profile)
    parts = {
        "paper": [s for s in scored if s.group.suite == PAPER],
        "llm": [s for s in scored if s.group.suite != PAPER],
    }
    facts = recorded.facts
    return {
        "device": device,
        "model_version": MODEL_VERSION,
        "profile_sha256": profile.sha256,
        "measured": {
            name: facts.get(name)
            for name in ("device", "driver", "nvrtc", "commit", "model_version", "complete")
        },
        "rows": which,
        "held_out": SPLIT_WORDS,
        **{name: part_figures(part, which) for name, part in parts.items()},
        "regret": regret(recorded, profile, which, progress)
        | {"over_measured": measured_regret(scored, which)},
        "pick_vs_cublas": pick_vs_cublas(recorded, device, which),
    }


def _chosen(problem: Problem, which: str) -> bool:
    """Whether a regret counts a shape: all of them, or with FITTED those that are not held out."""
    return which != FITTED or not is_held_out(problem.m, problem.n, problem.k)


def raced_shapes(
    recorded: Recorded, device: DeviceProfile, which: str, progress: Progress
) -> list[tuple[Problem, ShapeRegret]]:
    """Each problem that was measured cold with what its race says of today's picks."""
    problems = [group.problem for group in recorded.groups if group.cold]
    problems = [problem for problem in problems if _chosen(problem, which)]
    rows = () if recorded.regret is None else recorded.regret["rows"]
    raced = {problem_of(row): row for row in rows if row["cache"] == "cold"}
    shapes = []
    for done, problem in enumerate(problems, start=1):
        if problem in raced:
            first = [config for config, _ in model_first(problem, device)]
            shapes.append((problem, shape_regret(raced[problem], first)))
        else:
            shapes.append((problem, NOTHING))
        progress(done, len(problems))
    return shapes


def regret(
    recorded: Recorded, device: DeviceProfile, which: str, progress: Progress
) -> dict[str, Any]:
    """Regret from the races, over all shapes, over those held out, and by suite."""
    shapes = raced_shapes(recorded, device, which, progress)
    suite_of = {group.problem: group.suite for group in recorded.groups if group.cold}
    held = [regret for problem, regret in shapes if is_held_out(problem.m, problem.n, problem.k)]
    figures = regret_figures([regret for _, regret in shapes])
    figures["held_out"] = _short(held)
    figures["by_suite"] = {
        suite: _short([regret for problem, regret in shapes if suite_of[problem] == suite])
        for suite in dict.fromkeys(suite_of[problem] for problem, _ in shapes)
    }
    figures["peers"]["nvmmh"] |= {"pick_time": _pick_time_errors(recorded, which)}
    return figures


def _short(shapes: Sequence[ShapeRegret]) -> dict[str, Any]:
    figures = regret_figures(shapes)
    names = (
        *("shapes", "geomean", "worst", "unmeasured", "top5_geomean", "top5_worst"),
        *("contest_shapes", "contest_geomean", "contest_worst"),
        *("learnt_shapes", "learnt_geomean", "learnt_worst"),
    )
    return {name: figures[name] for name in names}


def _pick_time_errors(recorded: Recorded, which: str) -> dict[str, Any]:
    """How far nvMatmulHeuristics' time of its own pick is from that of the configuration that the
    pick was mapped to, raced."""
    said = {
        problem_key(row): row["time_us"]
        for row in (recorded.nvmmh or {"rows": ()})["rows"]
        if row["cache"] == "cold"
    }
    errors = []
    for row in (recorded.regret or {"rows": ()})["rows"]:
        predicted = said.get(problem_key(row))
        for candidate in row.get("candidates") or ():
            measured = candidate["median_us"]
            counts = "nvmmh" in candidate["of"] and _chosen(problem_of(row), which)
            if counts and measured is not None and predicted is not None:
                errors.append(abs(predicted / measured - 1))
    return error_figures(np.array(errors, dtype=float))


def pick_vs_cublas(recorded: Recorded, device: str, which: str = HELD_OUT) -> dict[str, Any]:
    """cuBLAS's time over the pick's, over the LLM suite's recorded picks. ``stale`` picks are not
    today's: they count in no figure."""
    rows: Sequence[Mapping[str, Any]] = ()
    if recorded.best_llm is not None:
        rows = [row for row in recorded.best_llm["rows"] if row["role"] == "pick"]
    engine = Engine()
    ratios, stale, counted = [], 0, 0
    for row in rows:
        problem = problem_of(row)
        if not _chosen(problem, which):
            continue
        counted += 1
        question = Question(problem, device=device, proof="none", cache=row["cache"])
        if engine.optimize(question).config.to_dict() != row["config"]:
            stale += 1
        elif row["status"] == "passed" and row.get("ratio_to_cublas"):
            ratios.append(float(row["ratio_to_cublas"]))
    return {
        "shapes": counted,
        "geomean": geomean(ratios) if ratios else None,
        "worst": min(ratios) if ratios else None,
        "unmeasured": counted - stale - len(ratios),
        "stale": stale,
    }
