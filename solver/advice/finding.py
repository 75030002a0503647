"""What a step of the advice finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from solver.advice.thresholds import Threshold

Outcome = Literal["yes", "no", "unknown"]
YES: Outcome = "yes"
NO: Outcome = "no"
UNKNOWN: Outcome = "unknown"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason against dividing the warps: its name, and in words."""

    reason: str
    words: str

    def to_dict(self) -> dict[str, Any]:
        """The reason as JSON-ready values."""
        return {"reason": self.reason, "words": self.words}


@dataclass(frozen=True, slots=True)
class Step:
    """One question, its answer and what it rests on.

    ``outcome`` yes speaks for dividing the warps. ``figures`` have their unit in their names.
    ``reasons`` belong to no, ``missing`` (figures that would decide) to unknown.
    """

    step: str
    outcome: Outcome
    words: str
    figures: Mapping[str, float | str | None]
    thresholds: tuple[Threshold, ...]
    reasons: tuple[Reason, ...] = ()
    missing: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """The step as JSON-ready values; what decided is among the advice's reasons."""
        return {
            "step": self.step,
            "outcome": self.outcome,
            "words": self.words,
            "figures": {name: rounded(value) for name, value in self.figures.items()},
            "thresholds": [threshold.to_dict() for threshold in self.thresholds],
            "missing": list(self.missing),
        }


def rounded(value: float | str | None) -> float | str | None:
    """Six significant digits of what is no whole number: no figure here is known better."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def refused(
    step: str,
    reasons: list[Reason],
    figures: Mapping[str, float | str | None],
    thresholds: tuple[Threshold, ...],
) -> Step:
    """A step whose answer is no."""
    words = " ".join(reason.words for reason in reasons)
    return Step(step, NO, words, figures, thresholds, reasons=tuple(reasons))
