"""The kernel families: what the solver asks of each, by the problem that it is for.

Everything that depends on the family is reached from here; pick, cover and proof know tables alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from solver.device import DeviceProfile
from solver.errors import Unsupported
from solver.families import (
    norm_activation,
    norm_activation_cost,
    sm90_gemm,
    sm90_gemm_cost,
    sm90_gemm_operands,
)
from solver.families.norm_activation import NormProblem
from solver.families.norm_activation_verdict import verdict
from solver.families.sm90_gemm_registers import register_table
from solver.problem import Problem
from solver.recurrence import Ticks
from solver.table import Table


@dataclass(frozen=True, slots=True)
class Family:
    """What is asked of a family.

    ``extent`` names the problem's field that errors of its size are about. ``tabulate`` takes
    (problem, device, cold, grids) and gives the priced legal space. An answer says ``facts`` of a
    problem (problem, device, model), a ``rate`` of a time (problem, µs), and a ``verdict`` of the
    work that it gives (problem, cache, table, work, device); ``registers`` are where launch
    registers come from, in words. ``memory_bytes`` is the device memory that a launch takes
    (problem, model), ``holds`` in words what of.
    """

    name: str
    extent: str
    tabulate: Callable[[Any, DeviceProfile, bool, Ticks | None], Table]
    facts: Callable[[Any, DeviceProfile, str], dict[str, Any]]
    rate: Callable[[Any, float], dict[str, float]]
    verdict: Callable[[Any, str, Table, int, DeviceProfile], dict[str, Any]]
    registers: Callable[[], str]
    memory_bytes: Callable[[Any, str], int]
    holds: str


def _gemm_table(problem: Problem, device: DeviceProfile, cold: bool, grids: Ticks | None) -> Table:
    if sm90_gemm.NAME not in device.families:
        raise Unsupported(
            "device",
            f"{device.name} runs no kernel family; with model paper it can be asked, and "
            f"{sm90_gemm.NAME} runs on sm_90a devices",
        )
    return sm90_gemm_cost.tabulate(problem, device, cold=cold, grids=grids)


def copied_operands(problem: Problem, model: str) -> list[str]:
    """Operands that a launch first copies into aligned buffers; model paper has no launch."""
    return [] if model == "paper" else list(sm90_gemm_operands.copied_operands(problem))


def _gemm_memory(problem: Problem, model: str) -> int:
    return problem.storage_bytes if model == "paper" else sm90_gemm_operands.memory_bytes(problem)


def _gemm_facts(problem: Problem, device: DeviceProfile, model: str) -> dict[str, Any]:
    return {
        "operand_bytes": problem.operand_bytes,
        "copied_operands": copied_operands(problem, model),
        "fits_device_memory": _gemm_memory(problem, model) <= device.limit("memory_bytes"),
    }


def _norm_table(
    problem: NormProblem, device: DeviceProfile, cold: bool, grids: Ticks | None
) -> Table:
    if grids is not None:
        raise Unsupported("constraints.sms", f"is not known of {norm_activation.NAME}")
    return norm_activation_cost.tabulate(problem, device, cold=cold)


def _norm_facts(problem: NormProblem, device: DeviceProfile, model: str) -> dict[str, Any]:
    return {
        "op": norm_activation.NAME,
        "storage_bytes": problem.storage_bytes,
        "fits_device_memory": problem.storage_bytes <= device.limit("memory_bytes"),
    }


FAMILIES: Mapping[type, Family] = MappingProxyType(
    {
        Problem: Family(
            sm90_gemm.NAME,
            "m",
            _gemm_table,
            _gemm_facts,
            lambda problem, time_us: {"tflops": problem.flops / time_us / 1e6},
            lambda *_: {},
            lambda: (
                f"launch registers as NVRTC {register_table().nvrtc} reported them, by compile key"
            ),
            _gemm_memory,
            "A, B and C, and copies of those that TMA can't take as they lie,",
        ),
        NormProblem: Family(
            norm_activation.NAME,
            "rows",
            _norm_table,
            _norm_facts,
            lambda problem, time_us: {"bytes_per_us": problem.storage_bytes / time_us},
            verdict,
            lambda: (
                "launch registers: about as many as NVRTC takes, by the words of a row in a lane"
            ),
            lambda problem, model: problem.storage_bytes,
            "x, y, scale and shift",
        ),
    }
)
"""By type of problem."""


def family_of(problem: Any) -> Family:
    """The family that a problem is for."""
    return FAMILIES[type(problem)]


def memory_bytes(problem: Any, model: str) -> int:
    """Device memory that a launch takes."""
    return family_of(problem).memory_bytes(problem, model)
