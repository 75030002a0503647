"""Kernels of the family in an SM that something else takes up, so that only so many warps fit in.

As in a larger fused kernel, whose own buffers and registers leave little. Blocks take shared memory
besides their own until exactly that many warps fit; the one warp that issues bulk copies is not
counted among them: one thread of it works.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from solver.device import DeviceProfile
from solver.elementwise import largest, where
from solver.families import norm_activation_block as block
from solver.families.norm_activation import Fields, NormConfig, NormProblem
from solver.families.norm_activation_columns import NormRows, legal_rows
from solver.families.norm_activation_fields import NormColumns


def working_warps(config: Fields) -> Any:
    """Warps of a block without the one of which a single thread issues copies."""
    copies = config.is_one_of("kind", "specialised") & config.is_one_of("copies", "bulk")
    return where(copies & (config.producers == 1), config.consumers, config.warps)


def reserved_smem_bytes(
    problem: NormProblem, config: NormConfig, warps_per_sm: int | None, device: DeviceProfile
) -> int | None:
    """Shared memory that makes a configuration's blocks be so many warps on an SM (None: as many as
    fit, by nothing); None where they can't be."""
    if warps_per_sm is None:
        return 0
    reserved: int = _reserved(problem, config, warps_per_sm, device)
    return reserved if reserved >= 0 else None


def _reserved(
    problem: NormProblem, config: Fields, warps_per_sm: int, device: DeviceProfile
) -> Any:
    """The same of one or of columns; negative where they can't be."""
    blocks = warps_per_sm // working_warps(config)
    own, room = block.smem_bytes(problem, config), device.limit("smem_per_sm_bytes")
    return where(blocks > 0, block.reserved_for(largest(1, blocks), own, room), -1)


def rows_on_sm(problem: NormProblem, device: DeviceProfile, warps_per_sm: int | None) -> NormRows:
    """The legal configurations of which so many warps fit on an SM, and their blocks there; all of
    them, as many blocks as fit, where that is None."""
    if warps_per_sm is None:
        return legal_rows(problem, device)
    return _crowded(NormProblem(1, problem.width, problem.dtype), device, warps_per_sm)


@lru_cache(maxsize=32)
def _crowded(shape: NormProblem, device: DeviceProfile, warps_per_sm: int) -> NormRows:
    rows = legal_rows(shape, device)
    configs = NormColumns(rows.config)
    reserved = _reserved(shape, configs, warps_per_sm, device)
    resident = np.minimum(rows.resident, warps_per_sm // working_warps(configs))
    kept = np.flatnonzero(reserved >= 0)
    return rows.kept(kept, resident[kept], reserved[kept])
