"""What a check found, for those that tell it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from app.picks.step import Status, Step


@dataclass(frozen=True, slots=True)
class PickReport:
    """One pick: its name, its configuration in words (empty where there is none), its steps."""

    name: str
    config: str
    predicted_us: float | None
    steps: tuple[Step, ...]

    @property
    def status(self) -> Status:
        """The worst of its steps."""
        return worst(self.steps)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "name": self.name,
            "status": str(self.status),
            "config": self.config,
            "predicted_us": self.predicted_us,
            "steps": [step.to_dict() for step in self.steps],
        }


@dataclass(frozen=True, slots=True)
class Report:
    """A check of ``picks_file`` against ``lock_file``: ``whole`` are steps of no pick's own.

    ``where`` says what kernels were run on, None where none were.
    """

    picks_file: str
    lock_file: str
    where: str | None
    whole: tuple[Step, ...]
    picks: tuple[PickReport, ...]
    elapsed_s: float

    @property
    def steps(self) -> Iterator[Step]:
        """All steps of all."""
        yield from self.whole
        for pick in self.picks:
            yield from pick.steps

    @property
    def status(self) -> Status:
        """The worst of all steps."""
        return worst(self.steps)

    def count(self, status: Status) -> int:
        """Picks whose worst step ended so."""
        return sum(pick.status is status for pick in self.picks)

    @property
    def verdict(self) -> str:
        """The whole in one line."""
        held = f"{self.count(Status.HOLDS)} of {len(self.picks)} picks hold"
        parts = [held if self.picks else "no pick was checked"]
        for status, words in ((Status.FAILS, "fail"), (Status.LACKS, "could not be checked")):
            count = self.count(status)
            if count:
                parts.append(f"{count} {words if count > 1 else words.replace('fail', 'fails')}")
        parts += [
            f"{step.name}: {step.words}"
            for step in self.whole
            if step.status in (Status.FAILS, Status.LACKS)
        ]
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "status": str(self.status),
            "verdict": self.verdict,
            "picks_file": self.picks_file,
            "lock_file": self.lock_file,
            "where": self.where,
            "elapsed_s": round(self.elapsed_s, 3),
            "steps": [step.to_dict() for step in self.whole],
            "picks": [pick.to_dict() for pick in self.picks],
        }


def unfinished(picks_file: str, words: str, elapsed_s: float) -> Report:
    """The report of a check that ended before it looked at a pick; ``words`` say why."""
    step = Step("check", Status.LACKS, words)
    return Report(picks_file, picks_file, None, (step,), (), elapsed_s)


def worst(steps: Iterator[Step] | tuple[Step, ...]) -> Status:
    """``fails`` where one fails, else ``lacks`` where one could not be done, else ``holds``."""
    found = {step.status for step in steps}
    for status in (Status.FAILS, Status.LACKS):
        if status in found:
            return status
    return Status.HOLDS
