"""Whether other configurations of a problem are faster than one that is known to be right, in a
GPU process. Everything of CUDA is imported inside the function, so that the process that only
names it never loads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kernels.choose import ChoiceTask, run_choice
from kernels.protocol import CHOICE, Protocol
from solver.config import Config
from solver.problem import Problem


@dataclass(frozen=True, slots=True)
class AgainstTask:
    """``config``, and ``others`` to find the fastest of; the rest as in ``worker.Task``."""

    problem: Problem
    config: Config
    others: tuple[Config, ...]
    device: str
    seed: int
    protocol: Protocol
    sms: int | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """Another configuration's time and our own, of rounds that alternate: ``ratio`` is its time
    over ours, between ``low`` and ``high``; ``note`` says why the interval is wide."""

    time_us: float
    own_us: float
    ratio: float
    low: float
    high: float
    rounds: int
    note: str | None


@dataclass(frozen=True, slots=True)
class Against:
    """The fastest of the others, timed afresh in rounds that alternate with our own.

    ``ratio`` is its time over ours, between ``low`` and ``high``; ``note`` says why the interval is
    wide or why there is none. ``failure``: the fastest of the others gives a wrong result.
    ``tried`` has each of the others with its median time over the rounds of the race.
    """

    config: dict[str, Any] | None = None
    time_us: float | None = None
    own_us: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    note: str | None = None
    failure: str | None = None
    tried: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as a record keeps it."""
        return asdict(self)


def run_against(task: AgainstTask) -> Against:
    """Find the fastest of the others by a race under CHOICE, check its result, and time it next to
    ``task.config`` by the task's protocol.

    The time that won the race is not the one reported: the least of several is low by chance.
    Raises what compiling and launching raise, and CUDA's own error where a kernel faults.
    """
    from kernels.checking import check_config
    from kernels.session import session
    from kernels.sides import kernel_of, most_sms

    current, problem = session(), task.problem
    choice = CHOICE.with_cache(task.protocol.cache)
    raced = run_choice(ChoiceTask(problem, task.others, task.device, choice, task.sms))
    tried = _tried(task.others, raced.tried)
    if raced.winner is None:
        return Against(note="none of the other configurations could be run", tried=tried)
    fastest = task.others[raced.winner]
    found: dict[str, Any] = {"config": fastest.to_dict(), "tried": tried}
    kernel = kernel_of(current, problem, fastest, task.device)
    sms = most_sms(current, task.sms)
    checked = check_config(current, kernel, problem, fastest, sms, task.seed)
    if not checked.passed:
        return Against(**found, failure="; ".join(checked.details))
    beside = timed_beside(
        problem, task.config, fastest, device=task.device, protocol=task.protocol, sms=task.sms
    )
    return Against(**found, **asdict(beside))


def timed_beside(
    problem: Problem,
    config: Config,
    other: Config,
    *,
    device: str,
    protocol: Protocol,
    sms: int | None = None,
) -> Beside:
    """Time another configuration next to ``config``, both known to be right, by ``protocol``.

    Raises as ``run_against``.
    """
    from kernels.measure import measure
    from kernels.session import session
    from kernels.sides import input_sets, kernel_of, own_side

    current = session()
    sets, flush = input_sets(current, problem, protocol)
    sides = [
        own_side(current, problem, each, kernel_of(current, problem, each, device), sms, sets)
        for each in (config, other)
    ]
    measured = measure(current, sides, protocol, flush)
    if measured.ratio is None:
        raise ValueError("two sides give a ratio")
    return Beside(
        time_us=measured.timings[1].median_us,
        own_us=measured.timings[0].median_us,
        ratio=measured.ratio.ratio,
        low=measured.ratio.low,
        high=measured.ratio.high,
        rounds=measured.ratio.rounds,
        note=measured.ratio.note,
    )


def _tried(others: Sequence[Config], tried: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {"config": config.to_dict(), **each.to_dict()}
        for config, each in zip(others, tried, strict=True)
    ]
