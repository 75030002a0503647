"""Small kernels around the GEMM: aligned copies of operands, and C = beta·C.

Needs a CUDA context: worker processes only.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import cupy as cp
import numpy as np
from cuda.bindings import driver

from kernels.compile import compile_copies
from kernels.driver import checked
from kernels.launch_config import launch_config
from kernels.launch_plan import OUT_TYPES, LaunchPlan, TileLoad
from solver.problem import VECTOR_BYTES, Matrix, Operands

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


@cache
def _module() -> Any:
    cubin = compile_copies()
    cp.cuda.runtime.free(0)  # makes the primary context current in this thread
    image = np.frombuffer(cubin, np.uint8)
    return checked("cuModuleLoadData", driver.cuModuleLoadData(image.ctypes.data))


@cache
def _function(name: str) -> Any:
    return checked("cuModuleGetFunction", driver.cuModuleGetFunction(_module(), name.encode()))


class _Call:
    """A launch of one of copy.cu's kernels with its arguments."""

    def __init__(
        self, name: str, blocks: int, values: list[np.ndarray[Any, Any]], *, overlaps: bool = False
    ) -> None:
        self._name = name
        self._config = launch_config(blocks, THREADS, overlaps=overlaps)
        self._held = values
        self._pointers = (ctypes.c_void_p * len(values))(*(x.ctypes.data for x in values))
        self._function = _function(name)

    def launch(self, stream: Any) -> None:
        self._config.hStream = driver.CUstream(stream.ptr)
        checked(
            f"launch of {self._name}",
            driver.cuLaunchKernelEx(
                self._config, self._function, ctypes.addressof(self._pointers), 0
            ),
        )


class OperandCopies:
    """Aligned copies of the operands of one plan that TMA can't take, made by one kernel.

    ``a`` and ``b`` are the operands' device addresses, ``a_copy`` and ``b_copy`` those of their
    copies (not looked at where there is none).
    """

    def __init__(self, plan: LaunchPlan, a: int, b: int, a_copy: int, b_copy: int) -> None:
        problem = plan.problem
        jobs = [
            _lines(problem.a, plan.a, a, a_copy),
            _lines(problem.b, plan.b, b, b_copy),
        ]
        runs = sum(int(job["lines"][0] * job["runs"][0]) for job in jobs)
        blocks = -(-runs // WARPS)
        self._call = _Call("copy_operands", blocks, jobs, overlaps=True) if runs else None

    def launch(self, stream: Any) -> None:
        """Enqueue the copies on a CuPy stream, if there are any."""
        if self._call is not None:
            self._call.launch(stream)


def line_runs(words: int) -> tuple[int, int]:
    """How many runs a line of so many words is copied in, and how many words each has at most."""
    runs = -(-words // RUN_WORDS)
    return runs, -(-words // runs)


def _lines(matrix: Matrix, load: TileLoad, source: int, target: int) -> np.ndarray[Any, Any]:
    job = np.zeros(1, LINES)
    if load.copied:
        runs = line_runs(-(-matrix.length * matrix.element_bytes // VECTOR_BYTES))
        lines = matrix.lines, matrix.length, matrix.pitch
        job[0] = (source, target, *lines, load.pitch, *runs)
    return job


def scale(operands: Operands, c: int, beta: float, stream: Any) -> None:
    """Enqueue C = beta·C for C at a device address; C is not read where beta is 0."""
    matrix = operands.c
    values: list[np.ndarray[Any, Any]] = [
        np.array([c], np.uint64),
        np.array([matrix.lines], np.int64),
        np.array([matrix.length], np.int64),
        np.array([matrix.pitch], np.int64),
        np.array([beta], np.float32),
        np.array([OUT_TYPES[operands.out]], np.int32),
    ]
    most = BLOCKS_PER_SM * int(cp.cuda.Device().attributes["MultiProcessorCount"])
    blocks = min(-(-matrix.lines * matrix.length // THREADS), most)
    _Call("scale_matrix", blocks, values).launch(stream)
