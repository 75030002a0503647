"""Where each warp of a launch is: the records that the debug build keeps.

The layout and the places are those of ``kernels/cuda/progress.cuh``. The records lie in host
memory that the kernel writes to, so that they can be read while it runs, or hangs.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from kernels.launch_plan import LaunchPlan

RECORD = np.dtype([("place", "<u4"), ("slot", "<u4"), ("iterations", "<u4"), ("unit", "<u4")])
"""A warp's last record, 16 bytes: what it waits for or does, at which slot of the ring, the
k-iterations it has begun over all of its units, and the unit it is at."""


class Place(IntEnum):
    """What a warp waits for or does."""

    NOT_STARTED = 0
    # Before the first barrier of the block or cluster, or not far behind it: waiting for the launch
    # before too, which for the debug build is none.
    SET_UP = 1
    WAITS_EMPTY = 2
    LOADS = 3
    WAITS_FULL = 4
    MULTIPLIES = 5  # or gives a slot back
    REDUCES = 6
    STORES = 7
    DONE = 8  # its role has ended; where there are clusters the last barrier is still ahead


def record_bytes(plan: LaunchPlan) -> int:
    """Bytes of a launch's records: one for each warp of the grid."""
    return plan.grid * plan.warps * RECORD.itemsize


def records_of(memory: Any, plan: LaunchPlan) -> np.ndarray[Any, Any]:
    """A copy of the records in a buffer of ``record_bytes(plan)``: RECORD, grid × warps."""
    return np.frombuffer(memory, RECORD).reshape(plan.grid, plan.warps).copy()
