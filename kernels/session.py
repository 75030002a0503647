"""The state of a GPU process: device facts, stream, loaded kernels, memory to measure in."""

from __future__ import annotations

import os

os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # NVML's order; read when CUDA starts

from functools import cache
from importlib import resources
from typing import Any

import cupy as cp
from cuda.bindings import driver

from kernels.bits import bits_type
from kernels.compile import compile_kernel
from kernels.driver import checked
from kernels.errors import GpuAbsent
from kernels.host import ClockMonitor, host_gpu
from kernels.inputs import normal
from kernels.launch import LoadedKernel
from kernels.placed import OperandSet, place_in
from kernels.process import launching
from solver.families.sm90_gemm import CompileKey
from solver.problem import Matrix, Problem

SET_ALIGNMENT = 512  # bytes, as CuPy's own allocations have
_PATTERN_ELEMENTS = 1 << 24
_POOL_STEP = 1 << 28  # bytes by which the pools grow
_FLUSH_BLOCK = 512


class Session:
    """One per GPU process. Work goes through ``stream``, CuPy's current one after ``session()``.

    ``sms``, ``l2_bytes`` and ``memory_bytes`` are read from the device. Raises GpuAbsent where
    CUDA's device 0 is not the GPU that NVML describes.
    """

    def __init__(self) -> None:
        gpu = host_gpu()
        if gpu is None:
            raise GpuAbsent("no GPU is visible to this process")
        properties = cp.cuda.runtime.getDeviceProperties(0)
        uuid = _cuda_uuid()
        if not gpu.uuid.startswith("MIG-") and gpu.uuid != uuid:
            raise GpuAbsent(f"CUDA's device 0 is {uuid}, NVML's is {gpu.uuid}")
        self.gpu = gpu
        self.sms = int(properties["multiProcessorCount"])
        self.l2_bytes = int(properties["l2CacheSize"])
        self.memory_bytes = int(properties["totalGlobalMem"])
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.monitor = ClockMonitor(gpu.uuid)
        self._kernels: dict[str, LoadedKernel] = {}
        self._inputs: dict[str, Any] = {}
        self._outputs: Any = None
        self._flush_buffer: Any = None
        self.warm = False

    def kernel(self, key: CompileKey) -> LoadedKernel:
        """The kernel of a compile key, compiled or from the cache, loaded once."""
        if key.name not in self._kernels:
            self._kernels[key.name] = LoadedKernel.load(compile_kernel(key))
        kernel = self._kernels[key.name]
        launching(kernel.compiled.kernel_id)
        return kernel

    def operand_sets(self, problem: Problem, count: int) -> list[OperandSet]:
        """``count`` disjoint sets of random normal inputs, carved from memory kept for it.

        What lies between and around their lines is other sets' or random too.
        """
        sizes = [_room(matrix) for matrix in (problem.a, problem.b, problem.c)]
        inputs = self._input_pool(problem.dtype, count * (sizes[0] + sizes[1]))
        outputs = self._output_pool(count * sizes[2]).view(bits_type(cp, problem.out))
        sets = []
        for index in range(count):
            start = index * (sizes[0] + sizes[1])
            sets.append(
                OperandSet(
                    place_in(inputs, start, problem.a, not problem.a_is_k_major),
                    place_in(inputs, start + sizes[0], problem.b, not problem.b_is_k_major),
                    place_in(outputs, index * sizes[2], problem.c, False),
                )
            )
        return sets

    def _input_pool(self, dtype: str, size_bytes: int) -> Any:
        pool = self._inputs.get(dtype)
        if pool is None or pool.nbytes < size_bytes:
            self._inputs.clear()
            del pool
            pool = _grown(size_bytes).view(cp.uint16)
            pattern = normal(cp, 1, _PATTERN_ELEMENTS, dtype, seed=1, stream=0).ravel()
            for first in range(0, pool.size, _PATTERN_ELEMENTS):
                part = pool[first : first + _PATTERN_ELEMENTS]
                part[...] = pattern[: part.size]
            self._inputs[dtype] = pool
        return pool

    def _output_pool(self, size_bytes: int) -> Any:
        if self._outputs is None or self._outputs.nbytes < size_bytes:
            self._outputs = None
            self._outputs = _grown(size_bytes)
        return self._outputs

    def release(self) -> None:
        """Give all memory kept for measuring back, so that a check of a large problem fits."""
        self._inputs.clear()
        self._outputs = self._flush_buffer = None
        cp.get_default_memory_pool().free_all_blocks()

    def flush_l2(self, multiple: int) -> None:
        """Enqueue a read of ``multiple`` times the L2's bytes."""
        words = multiple * self.l2_bytes // 16
        if self._flush_buffer is None or self._flush_buffer.size < 4 * words:
            self._flush_buffer = cp.zeros(4 * words + 4, cp.uint32)
        _flush_kernel()(
            (4 * self.sms,),
            (_FLUSH_BLOCK,),
            (self._flush_buffer, cp.int64(words), self._flush_buffer[4 * words :]),
        )


def _room(matrix: Matrix) -> int:
    """Bytes to keep for a matrix at any offset, whole steps of SET_ALIGNMENT."""
    size = (matrix.elements + matrix.offset) * matrix.element_bytes
    return -(-size // SET_ALIGNMENT) * SET_ALIGNMENT


def _grown(size_bytes: int) -> Any:
    """A new pool of at least this size, once CuPy has given back what lies idle."""
    cp.get_default_memory_pool().free_all_blocks()
    return cp.empty(-(-size_bytes // _POOL_STEP) * _POOL_STEP, cp.uint8)


def _cuda_uuid() -> str:
    """The UUID of CUDA's device 0 as NVML writes it."""
    device = checked("cuDeviceGet", driver.cuDeviceGet(0))
    raw = bytes(checked("cuDeviceGetUuid", driver.cuDeviceGetUuid(device)).bytes).hex()
    return f"GPU-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"


@cache
def _flush_kernel() -> Any:
    source = resources.files("kernels").joinpath("cuda", "flush.cu").read_text("utf-8")
    return cp.RawModule(code=source, options=("--std=c++17",)).get_function("flush_by_reading")


@cache
def _session() -> Session:
    return Session()


def session() -> Session:
    """This process's session, made at first use; its stream is CuPy's current one from here on.

    Whoever ended a ``with stream:`` meanwhile left CuPy's default stream behind, which waits for
    nothing that goes on in this one.
    """
    current = _session()
    current.stream.use()
    return current
