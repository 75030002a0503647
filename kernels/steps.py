"""Work of several steps in a GPU process: what each came to, or why all of it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.errors import GpuLost, StepFailed
from kernels.process import Outcome, OutcomeKind, Worker
from kernels.verify import Reason, failure_of


def call_step(
    worker: Worker,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    deadline_s: float,
    on_report: Callable[[dict[str, Any]], None] | None = None,
) -> Any:
    """A call's value; raises as ``value_of``."""
    outcome = worker.call(function, arguments, deadline_s, on_report)
    return value_of(outcome, function.__name__)


def value_of(outcome: Outcome, step: str) -> Any:
    """What a step came to. Raises GpuLost where the process was lost, else StepFailed."""
    if outcome.kind is OutcomeKind.OK:
        return outcome.value
    reason, details = failure_of(outcome)
    if reason is Reason.WORKER_LOST:
        raise GpuLost(f"the GPU process is lost: {details}")
    raise StepFailed(f"{step}: {details}")
