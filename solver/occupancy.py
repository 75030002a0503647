"""How many blocks of a kernel an SM holds at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.device import DeviceProfile
from solver.elementwise import largest, smallest

WARP = 32
REGISTERS_MAX = 255  # of a thread
SCHEDULERS = 4  # of an SM
BLOCK_SMEM_BYTES = 1024  # what the system takes for each block
REGISTER_UNIT = 256  # registers are given out by so many a warp
SMEM_UNIT = 128
CARVEOUTS = tuple(1024 * n for n in (0, 8, 16, 32, 64, 100, 132, 164, 196, 228))
"""Shared memory that an SM can be set to, up to what its architecture has; the rest is L1."""
LEAST_L1_BYTES = 28 * 1024
"""L1 beside the most shared memory: 28 KiB on sm_80, sm_86, sm_89 and sm_90 (CUDA C++ programming
guide: 192, 128, 128 and 256 KiB in all)."""


@dataclass(frozen=True, slots=True)
class SmLimits:
    """What an SM holds: threads, registers, shared memory (bytes), blocks and barriers. (The driver
    counts 4 blocks of 16 barriers each where all else has room for 7: seen on an H200.)"""

    threads: int
    registers: int
    smem_bytes: int
    blocks: int = 32
    barriers: int = 64


def sm_limits(device: DeviceProfile) -> SmLimits:
    """The limits of a device's SMs."""
    names = ("threads_per_sm", "registers_per_sm", "smem_per_sm_bytes")
    return SmLimits(*(device.limit(name) for name in names))


def resident_blocks(
    threads: Any, registers: Any, smem_bytes: Any, sm: SmLimits, barriers: Any = 1
) -> Any:
    """Blocks that an SM holds at once, of numbers or element by element; ``smem_bytes`` of each
    without the system's share, and ``barriers`` that ptxas says it uses. 0: none.

    Registers are given out by 256 a warp, to warps of four schedulers alike, shared memory by 128
    bytes (CUDA occupancy calculator).
    """
    block_warps = -(-threads // WARP)
    warps = sm.registers // whole(registers * WARP, REGISTER_UNIT) // SCHEDULERS * SCHEDULERS
    by_smem = sm.smem_bytes // whole(smem_bytes + BLOCK_SMEM_BYTES, SMEM_UNIT)
    by_threads, by_registers = sm.threads // (block_warps * WARP), warps // block_warps
    by_barriers = sm.barriers // largest(1, barriers)
    return smallest(sm.blocks, by_threads, by_registers, by_smem, by_barriers)


def l1_bytes(smem_bytes: Any, sm: SmLimits) -> Any:
    """L1 of an SM whose blocks take so much shared memory, the system's share included. Shape of
    ``smem_bytes``."""
    places = np.minimum(np.searchsorted(CARVEOUTS, smem_bytes), len(CARVEOUTS) - 1)
    return sm.smem_bytes + LEAST_L1_BYTES - np.minimum(np.array(CARVEOUTS)[places], sm.smem_bytes)


def whole(amount: Any, step: int) -> Any:
    """The least multiple of ``step`` from ``amount`` on."""
    return -(-amount // step) * step
