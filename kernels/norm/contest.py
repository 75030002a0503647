"""The kernels of a norm_activation problem checked and timed in turn, in a GPU process.

Everything of CUDA is imported inside the functions, so that the process that only names them never
loads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernels.norm.verdict import Entrant, Figures, Verdict, figures, verdict_of
from kernels.process import report
from kernels.protocol import Protocol, rotation_sets
from solver.families.norm_activation import NormProblem

INPUTS_LEAST = 8
"""Input sets that are rotated at least where memory holds them: a kernel's time may depend on where
its data lies."""
SPECIAL = ("offset", "special")
"""Further inputs that the verified kernel is checked with: rows far from zero, with NaN, with
infinities."""


@dataclass(frozen=True, slots=True)
class ContestTask:
    """Entrants of a problem, the verified one first."""

    problem: NormProblem
    entrants: tuple[Entrant, ...]
    seed: int
    protocol: Protocol


@dataclass(frozen=True, slots=True)
class Launched:
    """What an entrant's launch takes, and how far its output is off on random normal inputs:
    ``rel_error`` is the relative Frobenius error, ``worst`` the largest error of an element as a
    share of what is allowed, of ``elements`` that were checked."""

    kernel_id: str
    registers: int
    grid: int
    threads: int
    smem_bytes: int
    resident_blocks: int
    elements: int
    rel_error: float
    worst: float


@dataclass(frozen=True, slots=True)
class ContestResult:
    """What came of a contest. ``failure``: what was wrong with an output, None where nothing was.

    ``launched`` has the entrants that were checked, in order. ``figures`` and ``verdict`` are there
    once all passed and there are rows to time; the clock is of before and after the timing.
    """

    nvrtc: str
    gpu: dict[str, Any]
    sms: int
    failure: str | None
    launched: tuple[Launched, ...]
    figures: tuple[Figures, ...] = ()
    verdict: Verdict | None = None
    sets: int | None = None
    flushed: bool | None = None
    sm_clock_before_mhz: int | None = None
    sm_clock_mhz: int | None = None
    power_w: float | None = None
    throttle: tuple[str, ...] = ()


def run_contest(task: ContestTask) -> ContestResult:
    """Check every entrant's whole output, then time all of them in turn.

    Raises what compiling and launching raise, and CUDA's own error where a kernel faults.
    """
    from kernels.norm.run import release
    from kernels.session import session

    current = session()
    launched: list[Launched] = []
    failure = None
    for place, entrant in enumerate(task.entrants):
        name = "+".join(entrant.roles)
        report("checking", round=place + 1, rounds=len(task.entrants), entrant=name)
        found, wrong = _checked(task, place)
        launched.append(found)
        if wrong is not None:
            failure = f"{name}: {wrong}"
            break
    release()
    facts: dict[str, Any] = {
        "nvrtc": _nvrtc(),
        "gpu": current.gpu.to_dict(),
        "sms": current.sms,
        "failure": failure,
        "launched": tuple(launched),
    }
    if failure is not None or task.problem.rows == 0:
        return ContestResult(**facts)
    return ContestResult(**facts, **_timed(task))


def _nvrtc() -> str:
    from kernels.nvrtc import version

    return version()


def _checked(task: ContestTask, place: int) -> tuple[Launched, str | None]:
    """What an entrant's launch takes, and what is wrong with its output."""
    from kernels.norm.compile import compile_key
    from kernels.norm.device import norm_profile
    from kernels.norm.launch import loaded
    from kernels.norm.run import bind, check_launch
    from kernels.session import session

    problem, config = task.problem, task.entrants[place].config
    plan, _ = bind(problem, config)
    compiled, _ = loaded(compile_key(problem, config), norm_profile(session().gpu).arch)
    finding = check_launch(problem, config, seed=task.seed)
    wrong = None if finding.right else str(finding)
    for inputs in SPECIAL if place == 0 and wrong is None else ():
        other = check_launch(problem, config, seed=task.seed, inputs=inputs)
        if not other.right:
            wrong = f"{inputs} inputs: {other}"
            break
    launched = Launched(
        compiled.kernel_id,
        compiled.registers,
        plan.grid,
        plan.threads,
        plan.smem_bytes,
        plan.resident_blocks,
        finding.checked,
        finding.rel_error,
        finding.worst,
    )
    return launched, wrong


def input_sets(
    set_bytes: int, l2_bytes: int, memory_bytes: int, protocol: Protocol
) -> tuple[int, bool]:
    """How many input sets are rotated, INPUTS_LEAST at least where memory holds as many, and
    whether the L2 must be flushed; one set for a warm cache."""
    if protocol.cache == "warm":
        return 1, False
    most = max(1, int(protocol.memory_share * memory_bytes) // set_bytes)
    count, flush = rotation_sets(set_bytes, l2_bytes, protocol, most)
    return max(count, min(INPUTS_LEAST, most)), flush


def _timed(task: ContestTask) -> dict[str, Any]:
    from kernels.measure import measure
    from kernels.norm.run import sides_of
    from kernels.session import session

    current, protocol = session(), task.protocol
    count, flush = input_sets(
        task.problem.storage_bytes, current.l2_bytes, current.memory_bytes, protocol
    )
    configs = [entrant.config for entrant in task.entrants]
    sides = sides_of(task.problem, configs, range(task.seed, task.seed + count))
    measured = measure(current, sides, protocol, flush)
    before, after = measured.clock_before, measured.clock_after
    return {
        "figures": tuple(figures(measured.timings, measured.times_us, protocol.confidence)),
        "verdict": verdict_of(task.entrants, measured.times_us, protocol.confidence),
        "sets": count,
        "flushed": flush,
        "sm_clock_before_mhz": before.sm_clock_mhz,
        "sm_clock_mhz": after.sm_clock_mhz,
        "power_w": after.power_w,
        "throttle": tuple(dict.fromkeys((*before.throttle, *after.throttle))),
    }
