"""What is asked: a problem, a device, a model, and what "best" and "allowed" mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from solver.constraints import NONE, Constraints
from solver.errors import InvalidInput
from solver.families.norm_activation import NormProblem
from solver.limits import check_choice, check_integer, check_number
from solver.objective import DEFAULT, Objective, Pareto
from solver.problem import CACHES, Problem
from solver.space import Pricing

MODELS = ("calibrated", "paper")
PROOFS = ("full", "none")
TOP_K_MAX = 64
DIVERGENCE_MAX = 32
TIME_LIMIT_MS_MAX = 60_000


class Asked(Protocol):
    """What Engine and report need of a question, whatever its problem's family."""

    @property
    def problem(self) -> Any: ...
    @property
    def device(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def proof(self) -> str: ...
    @property
    def top_k(self) -> int: ...
    @property
    def objective(self) -> Objective: ...
    @property
    def constraints(self) -> Constraints: ...
    @property
    def cache(self) -> str: ...
    @property
    def divergence(self) -> float: ...
    @property
    def time_limit_ms(self) -> int | None: ...
    @property
    def pricing(self) -> Pricing: ...
    def to_dict(self) -> dict[str, Any]:
        """What an answer repeats of its question, but for problem and device."""


@dataclass(frozen=True, slots=True)
class Question:
    """Raises InvalidInput naming the field that is wrong.

    ``time_limit_ms`` bounds the answer's time; None for as long as it takes.
    """

    problem: Problem
    device: str = "h200"
    model: str = "calibrated"
    proof: str = "full"
    top_k: int = 1
    cache: str = "cold"
    divergence: float = 1.0
    objective: Objective = DEFAULT
    constraints: Constraints = NONE
    time_limit_ms: int | None = None

    def __post_init__(self) -> None:
        check_divergence(self.divergence, self.model)
        if self.model == "paper" and self.cache == "warm":
            raise InvalidInput("cache", "must be cold in model paper, which knows no caches")
        for name, allowed in (("model", MODELS), ("proof", PROOFS), ("cache", CACHES)):
            check_choice(name, getattr(self, name), allowed)
        _check_listing(self)

    @property
    def pricing(self) -> Pricing:
        """What besides problem and device decides the prices."""
        return Pricing(self.model, self.cache, self.divergence)

    def to_dict(self) -> dict[str, Any]:
        """What an answer repeats of its question, but for problem and device."""
        return {
            "model": self.model,
            "cache": self.cache,
            "divergence": self.divergence,
            "objective": self.objective.to_dict(),
            "constraints": self.constraints.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class NormQuestion:
    """The same of norm_activation: by its model, over the whole legal space.

    Raises InvalidInput naming the field that is wrong.
    """

    problem: NormProblem
    device: str = "h200"
    proof: str = "full"
    top_k: int = 1
    cache: str = "cold"
    objective: Objective = DEFAULT
    time_limit_ms: int | None = None

    def __post_init__(self) -> None:
        for name, allowed in (("proof", PROOFS), ("cache", CACHES)):
            check_choice(name, getattr(self, name), allowed)
        _check_listing(self)

    @property
    def model(self) -> str:
        """The one model there is of the family."""
        return "calibrated"

    @property
    def divergence(self) -> float:
        """Threads of a warp that diverge: none here."""
        return 1.0

    @property
    def constraints(self) -> Constraints:
        """None: all that is legal competes."""
        return NONE

    @property
    def pricing(self) -> Pricing:
        """What besides problem and device decides the prices."""
        return Pricing(cache=self.cache)

    def to_dict(self) -> dict[str, Any]:
        """What an answer repeats of its question, but for problem and device."""
        return {"model": self.model, "cache": self.cache, "objective": self.objective.to_dict()}


def _check_listing(question: Asked) -> None:
    check_integer("top_k", question.top_k, 1, TOP_K_MAX)
    if question.top_k > 1 and isinstance(question.objective, Pareto):
        raise InvalidInput(
            "top_k", "must be 1 with a pareto objective, whose cap bounds the points listed"
        )
    if question.time_limit_ms is not None:
        check_integer("time_limit_ms", question.time_limit_ms, 1, TIME_LIMIT_MS_MAX)


def check_divergence(divergence: float, model: str) -> None:
    """Raise InvalidInput unless the factor on compute time is in range and means something."""
    check_number("divergence", divergence, 1, DIVERGENCE_MAX)
    if divergence != 1 and model != "paper":
        raise InvalidInput("divergence", f"must be 1 in model {model}; model paper takes it")
