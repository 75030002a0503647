"""Another library's best next to ours, in a GPU process. Everything of CUDA is imported inside
the functions, so that the process that only names them never loads it.

A call of its own: whatever a rival does to its process, the row that it is compared with has been
recorded by then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.protocol import CHOICE, Protocol
from kernels.rival import Candidate, RivalAbsent
from solver.config import Config
from solver.problem import Problem

COLUMNS = {"triton": "triton", "cublaslt": "cublaslt_best8"}
"""What a rival's figures are called in a record."""


@dataclass(frozen=True, slots=True)
class RivalTask:
    """A configuration that is known to be right, and the rival to time it against."""

    problem: Problem
    config: Config
    device: str
    protocol: Protocol
    rival: str
    sms: int | None = None


@dataclass(frozen=True, slots=True)
class RivalResult:
    """Figures of one comparison; None where there was nothing to compare with.

    ``ratio`` is the rival's time over ours. ``note`` says why there is none, or why its interval
    is wide. ``how`` names what ran, ``tried`` out of ``named`` candidates could run and gave our
    result, and ``refused`` says of the others why not.
    """

    note: str | None = None
    time_us: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    how: dict[str, Any] | None = None
    tried: int = 0
    named: int = 0
    refused: tuple[str, ...] = ()

    def to_fields(self, rival: str) -> dict[str, Any]:
        """The result as a record's fields."""
        column = COLUMNS[rival]
        return {
            f"{column}_us": self.time_us,
            f"ratio_to_{column}": self.ratio,
            f"ratio_to_{column}_low": self.low,
            f"ratio_to_{column}_high": self.high,
            f"{column}_note": self.note,
            f"{column}_how": self.how,
            f"{column}_tried": self.tried,
            f"{column}_named": self.named,
            f"{column}_refused": list(self.refused),
        }


_CHOSEN: dict[tuple[str, Problem, str], tuple[dict[str, Any], int]] = {}
"""How a rival was fastest, and of how many, by rival, problem and cache, in this process."""


def run_rival(task: RivalTask) -> RivalResult:
    """Find a rival's fastest way to make the product, and time ours next to it.

    Each candidate must first give our own result on one input set, but for rounding. The fastest
    is found by a race under CHOICE, once per problem in a process, and timed afresh by the
    task's protocol. Raises what compiling and launching raise, and CUDA's own error where a
    rival's kernel faults.
    """
    from kernels.measure import measure
    from kernels.race import race
    from kernels.replay import Side
    from kernels.session import session
    from kernels.sides import input_sets, kernel_of, own_side

    current, problem = session(), task.problem
    kernel = kernel_of(current, problem, task.config, task.device)
    sets, flush = input_sets(current, problem, task.protocol)
    first = sets[0]
    own_side(current, problem, task.config, kernel, task.sms, [first]).enqueue()
    current.stream.synchronize()
    wanted = first.c.view.copy()
    key = (task.rival, problem, task.protocol.cache)
    try:
        with _candidates(task.rival, problem, sets, current) as candidates:
            named, known = len(candidates), _CHOSEN.get(key)
            alone = [each for each in candidates if known is not None and each.how == known[0]]
            usable, refused = _usable(alone or candidates, problem, current, first, wanted)
            del wanted
            if not usable:
                return RivalResult("; ".join(refused), named=named, refused=tuple(refused))
            sides = [Side(each.products(sets), len(sets)) for each in usable]
            winner = 0
            if known is None or not alone:
                choice = CHOICE.with_cache(task.protocol.cache)
                winner = race(current, sides, choice, flush).winner
                known = _CHOSEN[key] = (usable[winner].how, len(usable))
            ours = own_side(current, problem, task.config, kernel, task.sms, sets)
            measured = measure(current, [ours, sides[winner]], task.protocol, flush)
    except RivalAbsent as absent:
        return RivalResult(str(absent))
    ratio = measured.ratio
    if ratio is None:
        raise ValueError("two sides give a ratio")
    return RivalResult(
        note=ratio.note,
        time_us=measured.timings[1].median_us,
        ratio=ratio.ratio,
        low=ratio.low,
        high=ratio.high,
        how=known[0],
        tried=known[1],
        named=named,
        refused=tuple(refused),
    )


def _candidates(rival: str, problem: Problem, sets: Any, current: Any) -> Any:
    """A context manager of the rival's candidates."""
    if rival == "triton":
        from kernels.triton_rival import triton_candidates

        return triton_candidates(problem, sets, current)
    from kernels.cublaslt import lt_candidates

    return lt_candidates(problem, sets, current)


def _usable(
    candidates: list[Candidate], problem: Problem, current: Any, first: Any, wanted: Any
) -> tuple[list[Candidate], list[str]]:
    """The candidates that give our result on a set, and why the others don't."""
    import cupy as cp

    from kernels.agreement import disagreement
    from kernels.bits import poison

    usable, refused = [], []
    for candidate in candidates:
        first.c.lines.fill(poison(first.c.buffer))
        try:
            candidate.products([first])()
        except RivalAbsent as absent:
            refused.append(f"{_words(candidate)}: {absent}")
            continue
        current.stream.synchronize()
        wrong = disagreement(cp, first.c.view, wanted, problem.out, problem.k)
        if wrong is None:
            usable.append(candidate)
        else:
            refused.append(f"{_words(candidate)}: {wrong}")
    return usable, refused


def _words(candidate: Candidate) -> str:
    return " ".join(f"{name} {value}" for name, value in candidate.how.items())
