"""Making a lock: each pick solved and, where asked, measured; what the old lock had is compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.errors import EnvironmentLacks, NoPick
from app.picks.change import Change, Kind, changes, origin_causes
from app.picks.check import Progress, run_of
from app.picks.file import Pick, Picks
from app.picks.gpu import Runner
from app.picks.lock import document, entry, origin
from app.picks.measured import kept, measurement, numerics
from app.picks.solving import Found, Solved
from app.picks.step import Status
from app.schemas.locks import LockedPick, LockFile


@dataclass(frozen=True, slots=True)
class Made:
    """A new lock, and how it differs from the one before (nothing where there was none)."""

    document: dict[str, Any]
    causes: tuple[str, ...]
    changes: tuple[Change, ...]


def make_lock(
    picks: Picks,
    old: LockFile | None,
    solved: Sequence[Solved],
    runner: Runner | None,
    progress: Progress,
) -> Made:
    """The lock of picks that were solved, measured by ``runner`` where there is one.

    Without one a measured time stays with the same pick of the same problem. Raises NoPick, and
    EnvironmentLacks where a pick can't be run.
    """
    locked = {} if old is None else {pick.name: pick for pick in old.picks}
    entries = []
    for place, (pick, each) in enumerate(zip(picks.picks, solved, strict=True)):
        if each.found is None:
            raise NoPick(f"{picks.path}: {pick.name}: {each.steps[-1].words}")
        before = _measured_before(pick, each.found, locked.get(pick.name))
        if runner is not None:
            progress(place, len(solved))
            before = _measure(picks, pick, each.found, before, runner)
        entries.append(entry(pick, each.found, before))
    if runner is not None:
        progress(len(solved), len(solved))
    made = document(picks.device, entries)
    if old is None:
        return Made(made, (), ())
    now = origin(picks.device)
    found = changes(old, now, list(entries), [pick.name for pick in picks.picks])
    moved = tuple(change for change in found if change.kind is not Kind.SAME)
    return Made(made, origin_causes(old, now), moved)


def _measured_before(pick: Pick, found: Found, old: LockedPick | None) -> dict[str, Any] | None:
    """The old lock's measurement, where it is of the same kernel on the same operands."""
    if old is None or old.measured is None:
        return None
    question = pick.question
    same = (
        old.config.model_dump() == found.config
        and old.problem.model_dump() == question.problem.to_dict()
        and old.cache == question.cache
    )
    return old.measured.model_dump() if same else None


def _measure(
    picks: Picks, pick: Pick, found: Found, before: dict[str, Any] | None, runner: Runner
) -> dict[str, Any]:
    ran = runner.run(run_of(pick, found, ()))
    step = numerics(ran.status, ran.reason, ran.result, ran.elapsed_s)
    if step.status is Status.LACKS:
        raise EnvironmentLacks(f"{picks.path}: {pick.name}: {step.words}")
    if step.status is not Status.HOLDS:
        raise NoPick(f"{picks.path}: {pick.name}: {step.words}")
    return kept(before, measurement(ran.result))
