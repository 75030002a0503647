"""The fastest of several configurations of one problem, in a GPU process. Everything of CUDA is
imported inside the function, so that the process that only names it never loads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.protocol import Protocol
from solver.config import Config
from solver.problem import Problem


@dataclass(frozen=True, slots=True)
class ChoiceTask:
    """Configurations of a problem to run against one another; ``sms`` as in ``worker.Task``."""

    problem: Problem
    configs: tuple[Config, ...]
    device: str
    protocol: Protocol
    sms: int | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one configuration: its median time over the rounds that it ran, or why it did
    not run."""

    median_us: float | None = None
    rounds: int = 0
    failure: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As a record keeps it."""
        return {"median_us": self.median_us, "rounds": self.rounds, "failure": self.failure}


@dataclass(frozen=True, slots=True)
class Choice:
    """Every configuration's outcome, in order, and the index of the fastest; None where none
    ran."""

    tried: tuple[Tried, ...]
    winner: int | None


def run_choice(task: ChoiceTask) -> Choice:
    """Race a task's configurations (``kernels.race``) without checking their results.

    A configuration that can't be compiled or loaded is an outcome. Raises CUDA's own error where
    a kernel faults; memory that runs out is CuPy's OutOfMemoryError.
    """
    from kernels.race import race
    from kernels.session import session
    from kernels.sides import input_sets, loaded_sides

    current, problem = session(), task.problem
    sets, flush = input_sets(current, problem, task.protocol)
    sides, failures = loaded_sides(
        current, problem, dict(enumerate(task.configs)), task.device, task.sms, sets
    )
    tried = [Tried(failure=failures.get(place)) for place in range(len(task.configs))]
    if not sides:
        return Choice(tuple(tried), None)
    raced = race(current, list(sides.values()), task.protocol, flush)
    for place, lap in zip(sides, raced.laps, strict=True):
        tried[place] = Tried(lap.median_us, lap.rounds)
    return Choice(tuple(tried), list(sides)[raced.winner])
