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
WARPS = THREADS // 32
RUN_WORDS = 128  # at most, of 16 bytes, that a warp copies
BLOCKS_PER_SM = 8  # grid-stride loops: more blocks than the device holds at once help nobody

LINES = np.dtype(
    [
        ("from", "<u8"),
        ("to", "<u8"),
        ("lines", "<i8"),
        ("length", "<i8"),
        ("pitch", "<i8"),
        ("to_pitch", "<i8"),
        ("runs", "<i8"),
        ("run", "<i8"),
    ]
)
"""Lines of copy.cu: 64 bytes."""


def copies_needed(plan: LaunchPlan) -> bool:
    """Whether a launch is preceded by a copy of A, B or both."""
    return plan.a.copied or plan.b.copied


def copy_jobs(
    plan: LaunchPlan, a: int, b: int, a_copy: int, b_copy: int
) -> list[np.ndarray[Any, Any]]:
    """The arguments of the kernel that copies, for these device addresses; those of a copy that
    is not made are not looked at."""
    return [_lines(plan.problem.a, plan.a, a, a_copy), _lines(plan.problem.b, plan.b, b, b_copy)]


def copy_blocks(plan: LaunchPlan) -> int:
    """Blocks of THREADS threads that make the copies: a warp for each run of a line."""
    problem = plan.problem
    copied = [x for x, load in ((problem.a, plan.a), (problem.b, plan.b)) if load.copied]
    return -(-sum(x.lines * line_runs(_words(x))[0] for x in copied) // WARPS)


def line_runs(words: int) -> tuple[int, int]:
    """How many runs a line of so many words is copied in, and how many words each has at most."""
    runs = -(-words // RUN_WORDS)
    return runs, -(-words // runs)


def _words(matrix: Matrix) -> int:
    """Words of a line, of VECTOR_BYTES."""
    return -(-matrix.length * matrix.element_bytes // VECTOR_BYTES)


def stride_blocks(work: int, sms: int) -> int:
    """Blocks of a grid-stride loop over so many pieces of work."""
    return max(1, min(-(-work // THREADS), BLOCKS_PER_SM * sms))


def _lines(matrix: Matrix, load: TileLoad, source: int, target: int) -> np.ndarray[Any, Any]:
    job = np.zeros(1, LINES)
    if load.copied:
        lines = matrix.lines, matrix.length, matrix.pitch
        job[0] = (source, target, *lines, load.pitch, *line_runs(_words(matrix)))
    return job
