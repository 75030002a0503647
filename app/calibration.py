"""Calibrations to this machine's GPU, as jobs of the service."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.store.job import UNREADABLE, Job, Outcome
from kernels.calibration import Asked, calibrate
from kernels.errors import GpuLost, KernelError
from kernels.verify import Reason
from solver.calibration.profile import check_folder, store_profile
from solver.device import PROFILES_VARIABLE, profiles_folder
from solver.errors import InvalidInput

if TYPE_CHECKING:
    from app.turn import Turn

KIND = "calibration"


def request_of(asked: Asked, dry_run: bool) -> dict[str, Any]:
    """What a job of this kind keeps of its question.

    Raises InvalidInput (field ``dry_run``) where a profile would have no place.
    """
    if not dry_run:
        _folder()
    return {
        "from_scratch": asked.scratch,
        "rows": asked.rows,
        "seed": asked.seed,
        "dry_run": dry_run,
    }


def run_calibration(job: Job, turn: Turn) -> Outcome:
    """The work of one job. It passes where a profile came out that predicts no worse than the
    present one, which is stored but for a dry run; the result has it either way."""
    try:
        asked, dry_run = _asked(job.request)
    except (InvalidInput, KeyError, TypeError, ValueError) as error:
        return Outcome("failed", UNREADABLE, {"details": f"the request can't be read: {error}"})

    def tell(step: str, done: int, total: int) -> None:
        turn.on_report({"stage": step, "done": done, "total": total})

    folder, stored = None, None
    try:
        if not dry_run:
            folder = _folder()
            check_folder(folder)
        found = calibrate(asked, turn.worker, tell, turn.gpu)
        if found.refusal is not None or found.text is None:
            why = found.refusal
            words = {} if why is None else {"details": why.details}
            return Outcome("failed", why.reason if why else None, {**found.record, **words})
    except GpuLost as error:
        return Outcome("failed", Reason.WORKER_LOST, {"details": str(error)})
    except (KernelError, InvalidInput) as error:
        return Outcome("failed", Reason.ENVIRONMENT, {"details": str(error)})
    if folder is not None:
        stored = folder / f"{found.device}.json"
        try:
            store_profile(stored, found.text)
        except InvalidInput as error:
            result = {**found.record, "details": str(error)}
            return Outcome("failed", Reason.ENVIRONMENT, result)
    where = None if stored is None else str(stored)
    return Outcome(
        "passed", None, {**found.record, "stored": where, "profile": json.loads(found.text)}
    )


def _folder() -> Path:
    """Where a profile goes that is to be stored."""
    folder = profiles_folder()
    if folder is None:
        raise InvalidInput(
            "dry_run",
            f"must be true where {PROFILES_VARIABLE} names no folder: the profile has no place",
        )
    return folder


def _asked(kept: Mapping[str, Any]) -> tuple[Asked, bool]:
    """What ``request_of`` kept."""
    return Asked(kept["from_scratch"], kept["seed"], kept["rows"]), bool(kept["dry_run"])
