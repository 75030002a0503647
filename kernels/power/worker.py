"""What runs in a GPU process. Everything of CUDA is imported inside the functions, so that the
process that only names them never loads it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kernels.power.meter import HOLD, Held, HoldProtocol, Idle, hold
from kernels.protocol import BENCH
from solver.config import Config
from solver.problem import Problem

REPLAY_US = 2000.0
"""Of a graph's replay at the least, so that launching one costs the CPU little beside it."""


@dataclass(frozen=True, slots=True)
class HoldTask:
    """Configurations of one problem, each held ``rounds`` times, in turn and in alternating order.

    ``seed`` is that of the inputs on which each result is checked first, None for no check.
    """

    problem: Problem
    configs: tuple[Config, ...]
    device: str
    cache: str
    rounds: int = 1
    seed: int | None = None
    protocol: HoldProtocol = HOLD


@dataclass(frozen=True, slots=True)
class Holds:
    """The holds of each configuration, in order; ``failure`` is what keeps all from being held."""

    holds: tuple[tuple[Held, ...], ...] = ()
    failure: str | None = None


def power_facts(idle: HoldProtocol = HOLD) -> dict[str, Any]:
    """The device's power limit, and what it draws with a context and nothing to do.

    Raises PowerUnread where it has no energy counter.
    """
    from kernels.session import session

    current = session()
    watched = replace(idle, hold_s=idle.idle_s)
    held = hold(Idle(), current.monitor, watched)
    return {
        "sms": current.sms,
        "l2_bytes": current.l2_bytes,
        "power_limit_w": current.monitor.power_limit_w(),
        "idle_power_w": held.power_w,
        "idle_sm_clock_mhz": held.sm_clock_mhz,
    }


def run_holds(task: HoldTask) -> Holds:
    """Check, where asked, and hold the configurations.

    Raises what compiling and launching raise, CUDA's own error where a kernel faults, and
    PowerUnread.
    """
    from kernels.checking import check_config
    from kernels.power.load import GraphLoad
    from kernels.replay import prepare, warm_device
    from kernels.session import session
    from kernels.sides import input_sets, kernel_of, own_side

    current = session()
    protocol = replace(BENCH.with_cache(task.cache), replay_us=REPLAY_US)
    kernels = [kernel_of(current, task.problem, c, task.device) for c in task.configs]
    if task.seed is not None:
        for kernel, config in zip(kernels, task.configs, strict=True):
            found = check_config(current, kernel, task.problem, config, current.sms, task.seed)
            if not found.passed:
                return Holds(failure=f"{config} is wrong: {'; '.join(found.details)}")
        current.release()
    sets, flush = input_sets(current, task.problem, protocol)
    if flush:
        return Holds(failure="inputs too small, or memory too short, to stay cold")
    graphs = [
        prepare(current, own_side(current, task.problem, c, kernel, None, sets), protocol, False)
        for kernel, c in zip(kernels, task.configs, strict=True)
    ]
    warm_device(current, graphs)
    loads = [GraphLoad(current, graph) for graph in graphs]
    holds: list[list[Held]] = [[] for _ in loads]
    for number in range(task.rounds):
        for side in range(len(loads))[:: -1 if number % 2 else 1]:
            holds[side].append(hold(loads[side], current.monitor, task.protocol))
    return Holds(tuple(map(tuple, holds)))
