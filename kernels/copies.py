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
from kernels.copy_plan import (
    COPY_ENTRY,
    THREADS,
    copies_needed,
    copy_blocks,
    copy_jobs,
    stride_blocks,
)
from kernels.driver import checked
from kernels.launch_config import launch_config
from kernels.launch_plan import OUT_TYPES, LaunchPlan
from solver.problem import Operands


@cache
def _module(device: int) -> Any:
    cubin = compile_copies()
    cp.cuda.runtime.free(0)  # makes the primary context current in this thread
    image = np.frombuffer(cubin, np.uint8)
    return checked("cuModuleLoadData", driver.cuModuleLoadData(image.ctypes.data))


@cache
def _function(name: str, device: int) -> Any:
    """A kernel in the context of the current device, which is ``device``."""
    return checked(
        "cuModuleGetFunction", driver.cuModuleGetFunction(_module(device), name.encode())
    )


@cache
def _sms(device: int) -> int:
    return int(cp.cuda.Device(device).attributes["MultiProcessorCount"])


def _device() -> int:
    return int(cp.cuda.runtime.getDevice())


class _Call:
    """A launch of one of copy.cu's kernels with its arguments."""

    def __init__(
        self, name: str, blocks: int, values: list[np.ndarray[Any, Any]], *, overlaps: bool = False
    ) -> None:
        self._name = name
        self._config = launch_config(blocks, THREADS, overlaps=overlaps)
        self._held = values
        self._pointers = (ctypes.c_void_p * len(values))(*(x.ctypes.data for x in values))
        self._function = _function(name, _device())

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
        self._call = None
        if copies_needed(plan):
            jobs = copy_jobs(plan, a, b, a_copy, b_copy)
            self._call = _Call(COPY_ENTRY, copy_blocks(plan), jobs, overlaps=True)

    def launch(self, stream: Any) -> None:
        """Enqueue the copies on a CuPy stream, if there are any."""
        if self._call is not None:
            self._call.launch(stream)


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
    blocks = stride_blocks(matrix.lines * matrix.length, _sms(_device()))
    _Call("scale_matrix", blocks, values).launch(stream)
