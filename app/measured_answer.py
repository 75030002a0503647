"""Answers with what was measured: where a verification found a configuration that is faster than
the model's pick, it is what is answered, the pick and its proof beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from solver.config import Config
from solver.errors import IllegalConfig
from solver.pick import find_row
from solver.report import chosen
from solver.solution import Solution

MODEL, MEASURED = "model", "measured"


@dataclass(frozen=True, slots=True)
class Winner:
    """A configuration that a race found faster than the pick of its problem.

    ``beaten`` are those of the race that it is surely faster than, the pick first. ``facts`` is
    what an answer tells of it; ``number`` is the measurement's, the revision that brought it.
    """

    number: int
    config: Config
    beaten: tuple[Config, ...]
    facts: Mapping[str, Any]

    def row(self, solution: Solution) -> Any:
        """Its row in a solution's space, where it is allowed there and surely faster than the
        solution's pick; else None."""
        if solution.pick.config not in self.beaten:
            return None
        try:
            return find_row(solution.space.allowed, self.config)
        except IllegalConfig:
            return None


def measured_body(
    body: Mapping[str, Any], solution: Solution, winner: Winner | None
) -> dict[str, Any]:
    """An answer's body that says where its configuration comes from: from the model, or from a
    race, the model's own then as ``model_pick``."""
    row = None if winner is None else winner.row(solution)
    if winner is None or row is None:
        return {**body, "source": MODEL}
    pick = {name: body[name] for name in ("config", "kernel", "predicted")}
    return {
        **body,
        **chosen(solution, row),
        "source": MEASURED,
        "measured": dict(winner.facts),
        "model_pick": pick,
    }
