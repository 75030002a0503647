"""The pick of a problem raced against other configurations, in a GPU process: which of them is the
fastest, and whether that is sure. Everything of CUDA is imported inside the function, so that the
process that only names it never loads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kernels.against import Beside, timed_beside
from kernels.process import report
from kernels.protocol import CHOICE, Protocol
from kernels.statistics import RatioInterval, ratio_interval
from solver.config import Config
from solver.families.sm90_gemm_operands import memory_bytes
from solver.problem import Problem

PICK = 0
"""Place of the pick among the configurations."""
RELEASE_L2S = 16
"""Operands of more than so many times the L2 leave no memory to both measure in and check."""


@dataclass(frozen=True, slots=True)
class ContestTask:
    """Configurations of a problem, the pick first; the rest as in ``worker.Task``. The winner of
    the race is timed next to the pick by ``protocol``."""

    problem: Problem
    configs: tuple[Config, ...]
    device: str
    seed: int
    protocol: Protocol
    sms: int | None = None


@dataclass(frozen=True, slots=True)
class Entrant:
    """How one configuration did in the race, or why it did not run.

    ``ratio`` is its time over the pick's, the median of paired rounds, with its interval.
    ``dropped_at`` is the round after which it was clearly slower than the leader, None where it ran
    to the end.
    """

    time_us: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    rounds: int = 0
    dropped_at: int | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """Every configuration's run, in order, and the place of the fastest; None where none ran.

    ``fresh`` is the winner timed next to the pick once more, None where the pick itself won or did
    not run: the time that won a race is low by chance. ``winner_over`` has the winner's time over
    that of each other one that ran, by its place, of the race's paired rounds.
    """

    entrants: tuple[Entrant, ...]
    winner: int | None
    fresh: Beside | None = None
    winner_over: Mapping[int, RatioInterval] = field(default_factory=dict)

    @property
    def beats_pick(self) -> bool:
        """Whether the winner is surely faster than the pick: the interval of the fresh ratio lies
        below 1."""
        return self.fresh is not None and self.fresh.high < 1

    @property
    def beaten(self) -> tuple[int, ...]:
        """Places of those that the winner is surely faster than, the pick by the fresh ratio."""
        others = [p for p, ratio in self.winner_over.items() if p != PICK and ratio.high < 1]
        return (*([PICK] if self.beats_pick else []), *others)

    def to_dict(self) -> dict[str, Any]:
        """As a record keeps it, the candidates without what they are."""
        return {
            "candidates": [asdict(entrant) for entrant in self.entrants],
            "winner": self.winner,
            "beats_pick": self.beats_pick,
            "beaten": list(self.beaten),
            "fresh": None if self.fresh is None else asdict(self.fresh),
        }


def run_contest(task: ContestTask) -> Contest:
    """Check each configuration's results, race those that are right under CHOICE, and time the
    winner afresh next to the pick.

    One that can't be compiled or loaded, or gives a wrong result, is an entrant with its failure.
    Raises CUDA's own error where a kernel faults; memory that runs out is CuPy's OutOfMemoryError.
    """
    from kernels.race import race
    from kernels.session import session
    from kernels.sides import input_sets, loaded_sides

    report("racing", candidates=len(task.configs))
    current, problem = session(), task.problem
    protocol = CHOICE.with_cache(task.protocol.cache)
    failures = _wrong(task)
    able = {place: c for place, c in enumerate(task.configs) if place not in failures}
    sets, flush = input_sets(current, problem, protocol)
    sides, unloaded = loaded_sides(current, problem, able, task.device, task.sms, sets)
    failures |= unloaded
    entrants = [Entrant(failure=failures.get(place)) for place in range(len(task.configs))]
    if not sides:
        return Contest(tuple(entrants), None)
    raced = race(current, list(sides.values()), protocol, flush)
    times_us = dict(zip(sides, raced.times_us, strict=True))
    winner = list(sides)[raced.winner]
    for place, lap in zip(sides, raced.laps, strict=True):
        ratio = _over(times_us[place], times_us[PICK]) if PICK in times_us else None
        entrants[place] = Entrant(
            time_us=lap.median_us,
            ratio=None if ratio is None else ratio.ratio,
            ratio_low=None if ratio is None else ratio.low,
            ratio_high=None if ratio is None else ratio.high,
            rounds=lap.rounds,
            dropped_at=lap.rounds if lap.dropped else None,
        )
    fresh = None
    if winner != PICK and PICK in times_us:
        fresh = timed_beside(
            problem,
            task.configs[PICK],
            task.configs[winner],
            device=task.device,
            protocol=task.protocol,
            sms=task.sms,
        )
    over = {p: _over(times_us[winner], times_us[p]) for p in times_us if p != winner}
    return Contest(tuple(entrants), winner, fresh, over)


def _over(mine_us: Sequence[float], others_us: Sequence[float]) -> RatioInterval:
    """The median of paired ratios, over the rounds that both ran: all began with the first."""
    ratios = [mine / other for mine, other in zip(mine_us, others_us, strict=False)]
    return ratio_interval(ratios, CHOICE.confidence)


def _wrong(task: ContestTask) -> dict[int, str]:
    """Why configurations can't race, by their place: those that give a wrong result, or can't be
    loaded to give one."""
    from kernels.checking import check_config
    from kernels.errors import KernelError
    from kernels.session import session
    from kernels.sides import kernel_of, most_sms

    current, problem = session(), task.problem
    if memory_bytes(problem) > current.l2_bytes * RELEASE_L2S:
        current.release()
    sms = most_sms(current, task.sms)
    failures = {}
    for place, config in enumerate(task.configs):
        try:
            kernel = kernel_of(current, problem, config, task.device)
            checked = check_config(current, kernel, problem, config, sms, task.seed)
        except KernelError as error:
            failures[place] = f"{type(error).__name__}: {error}"
            continue
        if not checked.passed:
            failures[place] = "; ".join(checked.details)
    return failures
