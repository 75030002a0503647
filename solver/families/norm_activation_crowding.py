"""Kernels of the family in an SM that something else takes up, so that only so many warps fit in.

As in a larger fused kernel, whose own buffers and registers leave little. Blocks take shared memory
besides their own until exactly that many warps fit; the one warp that issues bulk copies is not
counted among them: one thread of it works.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from solver.device import DeviceProfile
from solver.families import norm_activation as family
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_columns import NormRows, legal_rows


def working_warps(config: NormConfig) -> int:
    """Warps of a block without the one of which a single thread issues copies."""
    copier = config.kind == "specialised" and config.copies == "bulk" and config.producers == 1
    return config.consumers if copier else config.warps


def reserved_smem_bytes(
    problem: NormProblem, config: NormConfig, warps_per_sm: int | None, device: DeviceProfile
) -> int | None:
    """Shared memory that makes a configuration's blocks be so many warps on an SM (None: as many as
    fit, by nothing); None where they can't be."""
    if warps_per_sm is None:
        return 0
    each = working_warps(config)
    if each > warps_per_sm:
        return None
    own, room = family.smem_bytes(problem, config), device.limit("smem_per_sm_bytes")
    return family.reserved_for(warps_per_sm // each, own, room)


def crowded_rows(problem: NormProblem, device: DeviceProfile, warps_per_sm: int) -> NormRows:
    """The legal configurations of which so many warps fit on an SM, and their blocks there."""
    return _crowded(NormProblem(1, problem.width, problem.dtype), device, warps_per_sm)


@lru_cache(maxsize=32)
def _crowded(shape: NormProblem, device: DeviceProfile, warps_per_sm: int) -> NormRows:
    rows = legal_rows(shape, device)
    kept = []
    for place in range(len(rows.resident)):
        values = {name: int(column[place]) for name, column in rows.config.items()}
        config = NormConfig.from_columns(values)
        reserved = reserved_smem_bytes(shape, config, warps_per_sm, device)
        if reserved is not None:
            blocks = min(int(rows.resident[place]), warps_per_sm // working_warps(config))
            kept.append((place, blocks, reserved))
    return rows.kept(*np.array(kept, dtype=np.int64).reshape(-1, 3).T)
