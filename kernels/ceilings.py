"""What the GPU can do at most, one step a call of a GPU process: bench.gpu_ceilings records them,
kernels.calibrate begins from them. CUDA is imported inside the functions, so that
the process that only names them never loads it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from kernels import nvrtc
from kernels.errors import CompileFailed
from kernels.protocol import BENCH, SUSTAINED
from kernels.sources import headers, options, unit

SOURCE = "ceilings.cu"
COPY_BYTES = 4 << 30  # many times the L2
READ_BYTES = 8 << 30
PATTERN_ELEMENTS = 1 << 24
ITERATIONS = 400  # about 0.2 ms a launch
# As ceilings.cu has them.
TILE_M, TILE_N, TILE_K, WARPGROUPS, SLOTS = 64, 256, 64, 2, 4
SLOT_BYTES = (WARPGROUPS * TILE_M + TILE_N) * TILE_K * 2
SMEM_BYTES = SLOTS * SLOT_BYTES + 1024  # to begin on a multiple of 1024
READ_BLOCK, READ_BLOCKS_PER_SM = 512, 4  # of the copy, too


def build() -> bytes:
    """The cubin of ceilings.cu. Raises CompilerAbsent and CompileFailed."""
    built = nvrtc.build(SOURCE, unit(SOURCE), headers(), options())
    if not built.cubin:
        raise CompileFailed(SOURCE, "the compiler refused it", built.log)
    return built.cubin


def flops_of(sms: int) -> int:
    """Floating-point operations of one launch of multiply_only on so many SMs."""
    return 2 * TILE_M * TILE_N * TILE_K * WARPGROUPS * ITERATIONS * sms


@cache
def _function(name: str) -> Any:
    import cupy as cp
    from cuda.bindings import driver

    from kernels.driver import checked

    cp.cuda.runtime.free(0)  # makes the primary context current in this thread
    image = np.frombuffer(build(), np.uint8)
    module = checked("cuModuleLoadData", driver.cuModuleLoadData(image.ctypes.data))
    return checked("cuModuleGetFunction", driver.cuModuleGetFunction(module, name.encode()))


class _Launch:
    """A launch of one of ceilings.cu's kernels with its arguments."""

    def __init__(self, name: str, grid: int, block: int, smem: int, values: list[Any]) -> None:
        from cuda.bindings import driver

        from kernels.driver import checked

        self._function = _function(name)
        self._sizes = (grid, 1, 1, block, 1, 1, smem)
        self._held = values
        self._pointers = (ctypes.c_void_p * len(values))(*(x.ctypes.data for x in values))
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked("dynamic memory", driver.cuFuncSetAttribute(self._function, attribute, smem))

    def launch(self, stream: Any) -> None:
        from cuda.bindings import driver

        from kernels.driver import checked

        arguments = ctypes.addressof(self._pointers)
        call = driver.cuLaunchKernel(
            self._function, *self._sizes, driver.CUstream(stream.ptr), arguments, 0
        )
        checked("launch", call)


def _random_bytes(size: int) -> Any:
    """A buffer of random normal bf16 values, since what data holds can change how fast it moves."""
    import cupy as cp

    from kernels.inputs import normal

    buffer = cp.empty(size // 2, cp.uint16)
    pattern = normal(cp, 1, PATTERN_ELEMENTS, "bf16", seed=1, stream=0).ravel()
    for first in range(0, buffer.size, PATTERN_ELEMENTS):
        part = buffer[first : first + PATTERN_ELEMENTS]
        part[...] = pattern[: part.size]
    return buffer


def copy_bandwidth() -> dict[str, Any]:
    """A kernel that copies, read and written bytes a second. (The driver's own copy, in a graph,
    moved 2.7 TB/s where reads alone reach 4.6: it is no ceiling.)"""
    import cupy as cp

    from kernels.session import session

    current = session()
    source, target = _random_bytes(COPY_BYTES), cp.empty(COPY_BYTES, cp.uint8)
    arguments = [
        np.array([source.data.ptr], np.uint64),
        np.array([target.data.ptr], np.uint64),
        np.array([COPY_BYTES // 16], np.int64),
    ]
    launch = _Launch("copy_all", READ_BLOCKS_PER_SM * current.sms, READ_BLOCK, 0, arguments)
    return _bandwidth("copy", lambda: launch.launch(current.stream), 2 * COPY_BYTES)


def read_bandwidth() -> dict[str, Any]:
    """A kernel that only reads, bytes a second."""
    import cupy as cp

    from kernels.session import session

    current = session()
    buffer, out = _random_bytes(READ_BYTES), cp.zeros(1, cp.uint32)
    arguments = [
        np.array([buffer.data.ptr], np.uint64),
        np.array([READ_BYTES // 16], np.int64),
        np.array([out.data.ptr], np.uint64),
    ]
    launch = _Launch("read_only", READ_BLOCKS_PER_SM * current.sms, READ_BLOCK, 0, arguments)
    return _bandwidth("read", lambda: launch.launch(current.stream), READ_BYTES)


def _bandwidth(name: str, enqueue: Any, size: int) -> dict[str, Any]:
    from kernels.measure import measure
    from kernels.replay import Side
    from kernels.session import session

    measured = measure(session(), [Side(enqueue, 1)], BENCH)
    return {
        f"{name}_gb_per_s": size / measured.timings[0].median_us / 1e3,
        f"{name}_bytes": size,
        f"{name}_sm_clock_mhz": measured.clock_after.sm_clock_mhz,
    }


def _multiply() -> Any:
    """A launch of multiply_only on every SM, its slots filled with random normal bf16."""
    import cupy as cp

    from kernels.inputs import normal
    from kernels.session import session

    current = session()
    values = normal(cp, SLOTS, SLOT_BYTES // 2, "bf16", seed=1, stream=0)
    sums = cp.zeros(current.sms * WARPGROUPS * 128, cp.float32)
    arguments = [
        np.array([values.data.ptr], np.uint64),
        np.array([ITERATIONS], np.int32),
        np.array([sums.data.ptr], np.uint64),
    ]
    launch = _Launch("multiply_only", current.sms, WARPGROUPS * 128, SMEM_BYTES, arguments)
    return launch, (values, sums)


def tensor_peak() -> dict[str, Any]:
    """What the tensor cores do while they are timed as a row is: after a short warm-up."""
    import cupy as cp

    from kernels.measure import measure
    from kernels.replay import Side
    from kernels.session import session

    current = session()
    launch, (_, sums) = _multiply()
    measured = measure(current, [Side(lambda: launch.launch(current.stream), 1)], BENCH)
    if not bool(cp.isfinite(sums).all()) or not bool((sums != 0).all()):
        raise ValueError("the products' sums are not what products of random numbers give")
    return {
        "tensor_tflops": flops_of(current.sms) / measured.timings[0].median_us / 1e6,
        "tensor_sm_clock_mhz": measured.clock_after.sm_clock_mhz,
        "tensor_power_w": measured.clock_after.power_w,
        "tensor_dtype": "bf16",
    }


def tensor_held() -> dict[str, Any]:
    """What the tensor cores do for a second, at the clock that they hold."""
    from kernels.replay import Side, prepare, spend, warm_device
    from kernels.session import session
    from kernels.sustained import hold

    current = session()
    launch, _kept = _multiply()
    graph = prepare(current, Side(lambda: launch.launch(current.stream), 1), BENCH, False)
    warm_device(current, [graph])
    spend(current, [graph], SUSTAINED.warmup_ms)
    held = hold(current, graph, SUSTAINED)
    return {
        "tensor_held_tflops": flops_of(current.sms) / held.launch_us / 1e6,
        "tensor_held_sm_clock_mhz": None if held.sm_clock_mhz is None else round(held.sm_clock_mhz),
        "tensor_held_power_w": held.power_w,
    }
