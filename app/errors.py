"""The service's own exceptions, below the project's root.

WarpwrightError
├── Unavailable        the service can't answer now; says when to try again
│   ├── Busy           too many questions are waiting
│   ├── SolverLost     a solver process ended, twice, while it held the question
│   ├── DeadlinePassed the solver took longer than its deadline
│   ├── StoreUnavailable the database can't be reached, written or read
│   ├── QuotaExceeded  the API key has used up what it has for the day
│   └── QueueFull      too many jobs wait for the GPU
├── InvalidRequest     values of a request break limits
├── NotFound           no verification of that id, or none with what is asked of it
├── AlreadyEnded       what has ended can't be cancelled
├── AddressInUse       the service can't listen where it was told to
├── NoPick             nothing can be locked: a question has no pick, or a wrong kernel
└── EnvironmentLacks   something outside the project is missing (a GPU, a compiler)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from solver.errors import WarpwrightError


class Unavailable(WarpwrightError):
    """The service can't answer now; ``retry_after_s`` says when to try again, None that it is of
    no use."""

    retry_after_s: int | None = 1


class Busy(Unavailable):
    """Too many questions are waiting already."""


class SolverLost(Unavailable):
    """A solver process ended while it held the question, and so did the one after it."""


class DeadlinePassed(Unavailable):
    """The solver took longer than its deadline and was ended."""


class StoreUnavailable(Unavailable):
    """The database is locked, full, gone or unreachable."""

    retry_after_s = 2


class QuotaExceeded(Unavailable):
    """The API key has used up what it has for the day, which may be nothing."""

    def __init__(self, message: str, retry_after_s: int | None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(Unavailable):
    """Too many jobs wait for the GPU already."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class InvalidRequest(WarpwrightError):
    """Values break the limits of a request's ``model``; ``faults`` is what pydantic found."""

    def __init__(self, faults: Sequence[Mapping[str, Any]], model: type[BaseModel]) -> None:
        super().__init__(f"{len(faults)} values break limits of {model.__name__}")
        self.faults = faults
        self.model = model


class NotFound(WarpwrightError):
    """Nothing of that name is kept here."""


class AlreadyEnded(WarpwrightError):
    """A job has ended, and can't be cancelled any more."""


class AddressInUse(WarpwrightError):
    """The address to listen on can't be bound."""


class NoPick(WarpwrightError):
    """A question has no proved pick, or its kernel is wrong: nothing can be locked."""


class EnvironmentLacks(WarpwrightError):
    """Something outside the project is missing; the message says what and how to get it."""
