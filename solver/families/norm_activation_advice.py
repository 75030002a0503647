"""Whether a norm_activation problem is worth dividing warps for: by figures of its strong kernel.

``source`` of the advice is ``figures``: nothing here was measured, and no model of the family's
kernels was asked. One that predicts the best kernel of each kind would answer better, under another
``source``.
"""

from __future__ import annotations

from itertools import takewhile

from solver.advice.advise import Advice, advise
from solver.advice.figures import L2, MEMORY, KernelFigures
from solver.advice.rates import rates_of
from solver.device import DeviceProfile
from solver.errors import InvalidProblem
from solver.families import norm_activation as family
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_legality import registers_for
from solver.families.norm_activation_space import legal_configs
from solver.occupancy import sm_limits


def advise_problem(
    problem: NormProblem, device: DeviceProfile, cache: str
) -> tuple[Advice, NormConfig]:
    """The advice for the kernel of like warps that keeps most of them resident, and that kernel.

    ``cache`` warm: x is in the L2, where all of the launch's data fits. Raises InvalidProblem for
    no rows, Unsupported for a device that advice is not for.
    """
    if problem.rows == 0:
        raise InvalidProblem("rows", "must be at least 1: no rows are no launch")
    rates_of(device)  # refuses a device that advice is not for
    config = _like_warps(problem, device)
    return advise(_figures(problem, config, device, cache), device), config


def _like_warps(problem: NormProblem, device: DeviceProfile) -> NormConfig:
    """The legal kernel without a ring whose resident warps are most; a strong one before a plain
    one, which reads rows three times."""
    likes = takewhile(lambda config: not config.has_ring, legal_configs(problem, device))
    return max(likes, key=lambda config: (config.kind == "strong", _warps(problem, config, device)))


def _warps(problem: NormProblem, config: NormConfig, device: DeviceProfile) -> int:
    registers = registers_for(config, family.words_of(problem, config))
    smem = family.smem_bytes(problem, config)
    blocks = family.resident_blocks(config, registers, smem, sm_limits(device))
    return blocks * config.warps


def _figures(
    problem: NormProblem, config: NormConfig, device: DeviceProfile, cache: str
) -> KernelFigures:
    passes, in_flight = 3, None  # how far a plain kernel's loops are unrolled is the compiler's
    if config.kind == "strong":
        in_flight = family.vectors_of(problem, config) * config.vector_bytes * family.WARP
        passes = 1
    fits = problem.storage_bytes <= device.limit("l2_bytes")
    return KernelFigures(
        threads_per_block=config.threads,
        registers_per_thread=registers_for(config, family.words_of(problem, config)),
        grid_blocks=family.units_of(problem, config),
        read_bytes=passes * (problem.rows + 1) * problem.row_bytes,
        written_bytes=problem.rows * problem.row_bytes,
        smem_per_block_bytes=family.smem_bytes(problem, config),
        data_in=L2 if cache == "warm" and fits else MEMORY,
        flops=2.0 * problem.fmas,
        bytes_in_flight_per_warp=in_flight,
    )
