"""The check: each pick solved, held to the lock and, where asked, to the compiler and a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.errors import EnvironmentLacks
from app.picks.change import Change, Kind, changes, origin_causes
from app.picks.file import Pick, Picks
from app.picks.gpu import Ran, Run, Runner
from app.picks.lock import Entry, entry, lock_command, origin
from app.picks.measured import numerics, regret, time_against
from app.picks.parallel import run_all
from app.picks.report import PickReport, Report
from app.picks.solving import Found, Solved, solve
from app.picks.step import Status, Step
from app.schemas.locks import LockedPick, LockFile
from solver.config import Config
from solver.report import config_words

Progress = Callable[[int, int], None]

HOLDS = (Kind.SAME, Kind.STALE)
"""Kinds of changes that leave a pick as it is; what it came of is the whole lock's step."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is checked: ``static`` needs no GPU, ``runner`` is where kernels are run; ``jobs``
    processes solve and compile. ``began_s`` is when, as ``time.monotonic`` has it."""

    static: bool
    runner: Runner | None
    jobs: int
    began_s: float


def solve_all(picks: Picks, asked: Asked, progress: Progress) -> list[Solved]:
    """Every pick's question, solved; candidates for the fastest come where kernels are run."""
    top_k = 1 if asked.runner is None else picks.tolerances.top_k
    compiled_here = asked.runner is not None and asked.runner.compiles_here
    calls = [(pick.question, asked.static, top_k, compiled_here) for pick in picks.picks]
    return run_all(solve, calls, asked.jobs, progress)


def entries_of(picks: Picks, solved: Sequence[Solved]) -> list[Entry | None]:
    """Each pick as a lock would have it, without measurements; None where there is none."""
    return [
        None if each.found is None else entry(pick, each.found)
        for pick, each in zip(picks.picks, solved, strict=True)
    ]


def check(
    picks: Picks, lock: LockFile, solved: Sequence[Solved], asked: Asked, progress: Progress
) -> Report:
    """The report on picks that were solved. ``progress`` is told of runs on the GPU."""
    now = origin(picks.device)
    names = [pick.name for pick in picks.picks]
    found = changes(lock, now, entries_of(picks, solved), names)
    locked = {pick.name: pick for pick in lock.picks}
    reports = []
    for place, (pick, each, change) in enumerate(zip(picks.picks, solved, found, strict=False)):
        steps = [_lock_step(change, picks), *each.steps]
        if asked.runner is not None:
            progress(place, len(names))
            steps += _gpu_steps(picks, pick, each, locked.get(pick.name), asked.runner)
        config = "" if each.found is None else config_words(each.found.config)
        predicted_us = None if each.found is None else each.found.predicted["time_us"]
        reports.append(PickReport(pick.name, config, predicted_us, tuple(steps)))
    if asked.runner is not None:
        progress(len(names), len(names))
    return Report(
        str(picks.path),
        str(picks.lock_path),
        None if asked.runner is None else asked.runner.where,
        (_whole_step(picks, lock, now, found[len(names) :]),),
        tuple(reports),
        time.monotonic() - asked.began_s,
    )


def _whole_step(picks: Picks, lock: LockFile, now: dict[str, Any], gone: Sequence[Change]) -> Step:
    """Whether the lock is of this file, and of this version."""
    causes = origin_causes(lock, now)
    words = []
    if causes:
        words.append(f"the lock is stale: {'; '.join(causes)}")
    if gone:
        listed = ", ".join(repr(change.name) for change in gone)
        words.append(f"the lock has picks that the picks file no longer has: {listed}")
    if words:
        return Step("lock", Status.FAILS, f"{'; '.join(words)}. {_remedy(picks)}")
    return Step("lock", Status.HOLDS, f"made by model version {lock.model_version}, as this one")


def _lock_step(change: Change, picks: Picks) -> Step:
    if change.kind in HOLDS:
        return Step("lock", Status.HOLDS, change.words, 0.0, change.to_dict())
    words = f"{change.words}. {_remedy(picks)}"
    return Step("lock", Status.FAILS, words, 0.0, change.to_dict())


def _remedy(picks: Picks) -> str:
    return f"`{lock_command(picks.path)}` writes the lock anew, for review"


def _gpu_steps(
    picks: Picks, pick: Pick, solved: Solved, locked: LockedPick | None, runner: Runner
) -> list[Step]:
    if solved.found is None:
        return [Step("numerics", Status.SKIPPED, "there is no pick to run")]
    try:
        ran = runner.run(run_of(pick, solved.found, solved.others))
    except EnvironmentLacks as error:
        return [Step("numerics", Status.LACKS, str(error))]
    ended = numerics(ran.status, ran.reason, ran.result, ran.elapsed_s)
    if ended.status is not Status.HOLDS:
        return [ended]
    return [ended, _time_step(picks, solved.found, locked, ran), _regret_step(picks, pick, ran)]


def _time_step(picks: Picks, found: Found, locked: LockedPick | None, ran: Ran) -> Step:
    measured = None if locked is None else locked.measured
    step = time_against(measured, ran.result, picks.tolerances.time)
    if locked is not None and locked.config.model_dump() != found.config:
        words = f"(the lock's time is of another pick) {step.words}"
        return Step(step.name, step.status, words, step.elapsed_s, step.figures)
    return step


def _regret_step(picks: Picks, pick: Pick, ran: Ran) -> Step:
    return regret(pick.question, ran.result, picks.tolerances.regret)


def run_of(pick: Pick, found: Found, others: Sequence[dict[str, Any]]) -> Run:
    """A found pick as something to run."""
    return Run(
        pick.question,
        Config.from_dict(found.config),
        found.predicted["time_us"],
        found.kernel_id,
        tuple(Config.from_dict(other) for other in others),
    )
