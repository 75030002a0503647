"""The lock: picks, and what they came of, one field a line and in one order."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.picks.file import Pick
from app.picks.reading import read_text, validated
from app.picks.solving import Found
from app.schemas.locks import FORMAT, LockedPick, LockFile
from app.strict_json import Refused, load
from kernels.sources import copy_hash, source_hash
from solver.device import load_profile
from solver.errors import InvalidInput
from solver.families.sm90_gemm_registers import register_table
from solver.model_version import MODEL_VERSION

Entry = dict[str, Any]


def origin(device: str) -> dict[str, Any]:
    """What picks for a device come of, besides their questions."""
    return {
        "model_version": MODEL_VERSION,
        "device": device,
        "profile_sha256": load_profile(device).sha256,
        "kernel_source_hash": source_hash(),
        "copy_source_hash": copy_hash(),
        "nvrtc": register_table().nvrtc,
    }


def entry(pick: Pick, found: Found, measured: dict[str, Any] | None = None) -> Entry:
    """A pick as the lock has it."""
    question = pick.question
    objective = question.objective.to_dict()
    objective.pop("units", None)  # an answer's; a question has none
    return {
        "name": pick.name,
        "problem": question.problem.to_dict(),
        "cache": question.cache,
        "objective": objective,
        "constraints": question.constraints.to_dict(),
        "config": found.config,
        "predicted": found.predicted,
        "proof": found.proof,
        "measured": measured,
    }


def document(device: str, entries: Sequence[Entry]) -> dict[str, Any]:
    """The whole lock."""
    return {"format": FORMAT, **origin(device), "picks": list(entries)}


def lock_command(picks_path: Path) -> str:
    """The command that makes a picks file's lock."""
    return f"warpwright lock {shlex.quote(str(picks_path))}"


def read_lock(picks_path: Path, path: Path) -> LockFile:
    """The lock at ``path`` of a picks file. Raises InvalidInput that names the file, the place and
    the limit."""
    if not path.exists():
        raise InvalidInput(str(path), f"is not there; `{lock_command(picks_path)}` makes it")
    text = read_text(path)
    try:
        values = load(text)
    except Refused as refused:
        raise InvalidInput(str(path), f"is no JSON: {refused}") from None
    lock = validated(path, values, LockFile, "a lock file", "JSON object")
    names: set[str] = set()
    for place, pick in enumerate(lock.picks):
        if pick.name in names:
            raise InvalidInput(str(path), f"picks.{place}.name: must be there once")
        names.add(pick.name)
        _check_order(path, place, pick)
    return lock


def _check_order(path: Path, place: int, pick: LockedPick) -> None:
    """Raise InvalidInput where a measured value is not within its own interval."""
    measured = pick.measured
    if measured is None:
        return
    spans = [("time_us", measured.low_us, measured.time_us, measured.high_us)]
    if (reference := measured.reference) is not None:
        spans.append(("reference.ratio", reference.low, reference.ratio, reference.high))
    for name, low, value, high in spans:
        if not low <= value <= high:
            raise InvalidInput(
                str(path),
                f"picks.{place}.measured.{name}: must be between {low} and {high}, got {value}",
            )
