"""Where picks are run: the GPU beside us, or a service next to one."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from app.errors import EnvironmentLacks
from app.host import check_memory
from app.verification import verify_here
from kernels.process import Worker
from kernels.protocol import VERIFY
from kernels.verify import VerificationRequest, require_gpu
from solver.config import Config
from solver.errors import InvalidProblem
from solver.question import Question

DEADLINE_S = 240.0
"""Longest time of one pick, with its rivals' compilation."""


@dataclass(frozen=True, slots=True)
class Run:
    """A pick to run: its question, configuration, predicted µs, and whom to race."""

    question: Question
    config: Config
    predicted_us: float
    kernel_id: str
    others: tuple[Config, ...]


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run ended: ``passed`` or ``failed`` with a reason, and a verification's result."""

    status: str
    reason: str | None
    result: dict[str, Any]
    elapsed_s: float


class Runner(Protocol):
    """A context manager. ``where`` names the GPU in words; entering it raises where there is
    none that the picks are for. ``compiles_here``: with the kernels that this machine has cached.
    """

    @property
    def where(self) -> str: ...

    @property
    def compiles_here(self) -> bool: ...

    def __enter__(self) -> Runner: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def run(self, run: Run) -> Ran:
        """Run one pick. Raises EnvironmentLacks where that can't be done."""
        ...


class LocalRunner:
    """This machine's GPU, in a process that stays warm."""

    compiles_here = True

    def __init__(self, device: str) -> None:
        self._device = device
        self._worker = Worker()
        self.where = ""

    def __enter__(self) -> LocalRunner:
        """Raises GpuAbsent, NoKernelFamily, and EnvironmentLacks where the GPU is another."""
        gpu, profile = require_gpu()
        check_device(self._device, profile, f"this machine's GPU, {gpu.name},")
        self._gpu = gpu
        self.where = gpu.name
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._worker.close()

    def run(self, run: Run) -> Ran:
        problem = run.question.problem
        try:
            check_memory(problem, self._gpu)
        except InvalidProblem as error:
            raise EnvironmentLacks(error.message) from None
        request = VerificationRequest(
            problem,
            run.config,
            predicted_us=run.predicted_us,
            protocol=VERIFY.with_cache(run.question.cache),
            against=run.others,
        )
        outcome = verify_here(request, deadline_s=DEADLINE_S, worker=self._worker)
        elapsed_s = float(outcome.result["elapsed_s"])
        return Ran(outcome.status, outcome.reason, outcome.result, elapsed_s)


def check_device(wanted: str, profile: str | None, whose: str) -> None:
    """Raise EnvironmentLacks where picks for one device would run on another."""
    if profile != wanted:
        raise EnvironmentLacks(
            f"the picks are for {wanted}; {whose} is {profile or 'of no known profile'}"
        )
