"""What aligned copies of operands take, worked out without touching a GPU.

One place holds the launch ABI shared with ``kernels/cuda/copy.cu``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.launch_plan import LaunchPlan, TileLoad
from solver.problem import VECTOR_BYTES, Matrix

COPY_ENTRY = "copy_operands"
THREADS = 256
BLOCKS_PER_SM = 8  # grid-stride loops: more blocks than the device holds at once help nobody

LINES = np.dtype(
    [
        ("from", "<u8"),
        ("to", "<u8"),
        ("lines", "<i8"),
        ("length", "<i8"),
        ("pitch", "<i8"),
        ("to_pitch", "<i8"),
    ]
)
"""Lines of copy.cu: 48 bytes."""


def copies_needed(plan: LaunchPlan) -> bool:
    """Whether a launch is preceded by a copy of A, B or both."""
    return plan.a.copied or plan.b.copied


def copy_jobs(
    plan: LaunchPlan, a: int, b: int, a_copy: int, b_copy: int
) -> list[np.ndarray[Any, Any]]:
    """The arguments of the kernel that copies, for these device addresses; those of a copy that
    is not made are not looked at."""
    return [_lines(plan.problem.a, plan.a, a, a_copy), _lines(plan.problem.b, plan.b, b, b_copy)]


def copy_blocks(plan: LaunchPlan, sms: int) -> int:
    """Blocks of THREADS threads that make the copies."""
    return stride_blocks(sum(load.copy_bytes for load in (plan.a, plan.b)) // VECTOR_BYTES, sms)


def stride_blocks(work: int, sms: int) -> int:
    """Blocks of a grid-stride loop over so many pieces of work."""
    return max(1, min(-(-work // THREADS), BLOCKS_PER_SM * sms))


def _lines(matrix: Matrix, load: TileLoad, source: int, target: int) -> np.ndarray[Any, Any]:
    job = np.zeros(1, LINES)
    if load.copied:
        job[0] = (source, target, matrix.lines, matrix.length, matrix.pitch, load.pitch)
    return job
