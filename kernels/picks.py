"""Picks made offline: a table of problems and their configurations, and what it is good for.

``warpwright table`` makes one; ``kernels.gemm`` loads it. Reading needs the standard library alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kernels.errors import TableRefused
from kernels.sources import ARCH, source_hash
from solver.config import Config
from solver.device import DeviceProfile
from solver.errors import InvalidInput
from solver.problem import Problem

FORMAT = "warpwright-table-1"
TABLE_VARIABLE = "WARPWRIGHT_TABLE"
PROBLEM_FIELDS = tuple(field.name for field in fields(Problem))


@dataclass(frozen=True, slots=True, eq=False)
class PickTable:
    """Configurations by problem. ``made_for`` says for which sources and device."""

    picks: Mapping[Problem, Config]
    made_for: Mapping[str, Any]
    origin: str

    def find(self, problem: Problem) -> Config | None:
        """The configuration of exactly this problem, pitches and alignments included."""
        return self.picks.get(problem)

    def require(self, device: DeviceProfile) -> None:
        """Raise TableRefused where the table is of other sources, another device or another
        profile of it."""
        for name, here in identity(device).items():
            there = self.made_for.get(name)
            if there != here:
                raise TableRefused(
                    f"{self.origin} was made for {_WORDS[name]} {there}, here it is {here}; make "
                    f"it again: warpwright table --device {device.name}"
                )


_WORDS = {
    "device": "the device",
    "profile_sha256": "the device profile",
    "arch": "the architecture",
    "source_hash": "the kernel sources",
}


def identity(device: DeviceProfile) -> dict[str, str]:
    """What a table must have been made for to be used here."""
    return {
        "device": device.name,
        "profile_sha256": device.sha256,
        "arch": ARCH,
        "source_hash": source_hash(),
    }


def table_document(
    rows: Iterable[tuple[Problem, Config]], device: DeviceProfile, made_by: Mapping[str, Any]
) -> dict[str, Any]:
    """A table's JSON: what it is good for, what made it (``made_by``), its rows in order."""
    return {
        "format": FORMAT,
        "made_for": identity(device),
        "made_by": dict(made_by),
        "rows": [
            {"problem": problem.to_dict(), "config": config.to_dict()} for problem, config in rows
        ],
    }


def load_table(path: str | Path) -> PickTable:
    """The table in a file. Raises TableRefused, naming the file, for what is none."""
    try:
        document = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TableRefused(f"{path} can't be read as a table of picks: {error}") from error
    return parse_table(document, str(path))


def parse_table(document: Any, origin: str) -> PickTable:
    """The table of a JSON value; ``origin`` is what errors call it."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise TableRefused(
            f"{origin} is no table of picks of the format {FORMAT}, but {str(found)[:60]}"
        )
    picks: dict[Problem, Config] = {}
    rows = document.get("rows")
    if not isinstance(rows, list) or not isinstance(document.get("made_for"), dict):
        raise TableRefused(f"{origin} has no rows, or does not say what it was made for")
    for number, row in enumerate(rows):
        try:
            problem, config = _row(row)
        except InvalidInput as error:
            raise TableRefused(f"{origin}, row {number}: {error}") from error
        if picks.setdefault(problem, config) != config:
            raise TableRefused(f"{origin}, row {number}: its problem has another row before")
    return PickTable(picks, document["made_for"], origin)


def _row(row: Any) -> tuple[Problem, Config]:
    """A row's values. Raises InvalidInput, which names what is wrong."""
    for part in ("problem", "config"):
        if not isinstance(row, dict) or not isinstance(row.get(part), dict):
            raise InvalidInput(part, "is required and must be a JSON object")
    for name in row["problem"]:
        if name not in PROBLEM_FIELDS:
            raise InvalidInput(
                f"problem.{name}", f"is unknown; there are {', '.join(PROBLEM_FIELDS)}"
            )
    for name in ("m", "n", "k"):
        if name not in row["problem"]:
            raise InvalidInput(f"problem.{name}", "is required")
    return Problem(**row["problem"]), Config.from_dict(row["config"])
