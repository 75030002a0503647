"""What a launch of a norm_activation kernel needs, worked out without touching a GPU.

One place holds the launch ABI shared with ``kernels/cuda/norm_types.cuh``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.errors import CompilerMismatch
from kernels.norm.compile import CompiledNorm, compile_key
from solver.device import DeviceProfile
from solver.errors import IllegalConfig
from solver.families import norm_activation_block as block
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_legality import check_legal
from solver.limits import check_integer, check_number
from solver.occupancy import sm_limits

EPS = 1e-5
EPS_RANGE = (1e-12, 1.0)

ARGUMENTS = np.dtype(
    [
        ("x", "<u8"),
        ("scale", "<u8"),
        ("shift", "<u8"),
        ("y", "<u8"),
        ("rows", "<i8"),
        ("units", "<i8"),
        ("units_per_block", "<u4"),
        ("rows_per_unit", "<u4"),
        ("width", "<u4"),
        ("degree", "<u4"),
        ("eps", "<f4"),
        ("depth", "<u4"),
        ("slot_bytes", "<u4"),
        ("chunk_bytes", "<u4"),
        ("chunks_per_unit", "<u4"),
    ],
    align=True,
)
"""Args of norm_types.cuh."""


@dataclass(frozen=True, slots=True)
class NormPlan:
    """One launch: grid, threads and dynamic shared memory of a block, and its arguments.

    ``smem_bytes`` includes what is reserved to keep other blocks off the SM; ``resident_blocks`` is
    how many an SM holds. ``grid`` is 0 for no rows: there is nothing to launch.
    """

    problem: NormProblem
    config: NormConfig
    grid: int
    threads: int
    smem_bytes: int
    resident_blocks: int

    def arguments(
        self, x: int, scale: int, shift: int, y: int, eps: float = EPS
    ) -> np.ndarray[Any, Any]:
        """The kernel's parameter for these device addresses. Raises InvalidInput for eps."""
        check_number("eps", eps, *EPS_RANGE)
        problem, config = self.problem, self.config
        found = block.chunking(problem, config)
        arguments = np.zeros(1, ARGUMENTS)
        arguments[0] = (
            *(x, scale, shift, y),
            problem.rows,
            block.units_of(problem, config),
            units_per_block(config),
            found.rows_per_unit,
            problem.width,
            problem.degree,
            eps,
            config.depth,
            found.slot_bytes,
            config.chunk_bytes,
            found.chunks_per_unit,
        )
        return arguments


def units_per_block(config: NormConfig) -> int:
    """Units that a block takes; 0: dealt out across the grid."""
    return config.rounds * (config.groups if config.has_ring else 1)


def plan_norm(
    problem: NormProblem,
    config: NormConfig,
    compiled: CompiledNorm,
    device: DeviceProfile,
    sms: int,
    reserved_smem_bytes: int = 0,
) -> NormPlan:
    """The launch of a legal configuration, once its kernel is compiled.

    ``reserved_smem_bytes`` is dynamic shared memory that a block takes besides its own, so that
    fewer blocks fit in an SM.

    Raises IllegalConfig for a configuration that breaks a limit, InvalidInput for a reserve that
    doesn't fit, CompilerMismatch where the kernel is another's or its shared memory is not what the
    solver counts.
    """
    check_legal(problem, config, device)
    if compiled.key != compile_key(problem, config):
        raise CompilerMismatch(f"{compiled.kernel_id} was not compiled for {config}")
    own = block.smem_bytes(problem, config)
    slots = config.groups * config.depth
    slot = block.chunking(problem, config).slot_bytes
    counted = slots * (slot + compiled.slot_overhead_bytes) + compiled.fixed_smem_bytes
    barriers = block.barriers_used(config)
    if compiled.barriers != barriers:
        raise CompilerMismatch(
            f"{compiled.kernel_id} takes {compiled.barriers} barriers, the plan {barriers}"
        )
    if counted != own or compiled.argument_bytes != ARGUMENTS.itemsize:
        raise CompilerMismatch(
            f"{compiled.kernel_id} takes {counted} bytes of shared memory and "
            f"{compiled.argument_bytes} of arguments, the plan {own} and {ARGUMENTS.itemsize}"
        )
    most = device.limit("smem_per_block_bytes") - own
    check_integer("reserved_smem_bytes", reserved_smem_bytes, 0, most)
    smem = own + reserved_smem_bytes
    resident = block.resident_blocks(config, compiled.registers, smem, sm_limits(device))
    if resident < 1:
        raise IllegalConfig(
            "consumers",
            f"no block of {config.threads} threads and {compiled.registers} registers each fits",
        )
    units = block.units_of(problem, config)
    each = units_per_block(config)
    grid = -(-units // each) if each else min(units, sms * resident)
    return NormPlan(problem, config, grid, config.threads, smem, resident)
