"""The fastest of several configurations of one problem, in a GPU process. Everything of CUDA is
imported inside the function, so that the process that only names it never loads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.errors import KernelError
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
    from kernels.sides import input_sets, kernel_of, own_side

    current, problem = session(), task.problem
    sets, flush = input_sets(current, problem, task.protocol)
    tried: list[Tried] = []
    sides = []
    for config in task.configs:
        try:
            kernel = kernel_of(current, problem, config, task.device)
            sides.append((len(tried), own_side(current, problem, config, kernel, task.sms, sets)))
            tried.append(Tried())
        except KernelError as error:
            tried.append(Tried(failure=f"{type(error).__name__}: {error}"))
    if not sides:
        return Choice(tuple(tried), None)
    raced = race(current, [side for _, side in sides], task.protocol, flush)
    for (index, _), lap in zip(sides, raced.laps, strict=True):
        tried[index] = Tried(lap.median_us, lap.rounds)
    return Choice(tuple(tried), sides[raced.winner][0])
