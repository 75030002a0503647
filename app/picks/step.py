"""What was looked at of a pick, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How a step ended. ``lacks``: something outside the pick is missing or in the way."""

    HOLDS = "holds"
    FAILS = "fails"
    LACKS = "lacks"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its name, how it ended, that in words for a stranger, and figures for a script."""

    name: str
    status: Status
    words: str
    elapsed_s: float = 0.0
    figures: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "name": self.name,
            "status": str(self.status),
            "words": self.words,
            "elapsed_s": round(self.elapsed_s, 3),
            "figures": dict(self.figures),
        }
