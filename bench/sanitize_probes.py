"""Right kernels that show which kinds of order racecheck can't follow (``hand_over.cu``)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.sanitize_races import TOOL
from kernels import nvrtc
from kernels.errors import CompileFailed
from kernels.sources import headers_named, options


@dataclass(frozen=True)
class Probe:
    """A right kernel of ``bench/hand_over.cu`` in which a tool may see a race."""

    what: str
    kernel: str
    tool: str = TOOL
    scope: str = "probes"


PROBES = {
    "in_warp": Probe("lanes that meet at their warp's barrier", "hand_over_in_warp"),
    "each_arrives": Probe("every lane arrives at an mbarrier", "hand_over_each_arrives"),
    "one_arrives": Probe(
        "lanes meet, and one arrives at an mbarrier for its warp", "hand_over_one_arrives"
    ),
    "named": Probe("bar.arrive and bar.sync at a named barrier", "hand_over_named"),
}
HAND_OVER = Path(__file__).with_name("hand_over.cu")
ROUNDS, THREADS, SMEM_BYTES = 64, 64, 16 + 64 * 4


def hand_over_source() -> str:
    """The probes' kernels with the header that they include."""
    include = '#include "ptx.cuh"'
    return HAND_OVER.read_text("utf-8").replace(
        include, headers_named(lambda name: name == "ptx.cuh")["ptx.cuh"]
    )


def hand_over_cubin() -> bytes:
    """The probes, compiled. Raises CompileFailed and CompilerAbsent."""
    built = nvrtc.build("hand_over.cu", hand_over_source(), {}, options())
    if not built.cubin:
        raise CompileFailed("hand_over.cu", "refused", built.log)
    return built.cubin


def arguments(sums: int, rounds: int) -> Any:
    """A kernel's one argument, in an array of one."""
    import numpy as np

    return np.array([(sums, rounds)], np.dtype([("sums", "u8"), ("rounds", "u4")], align=True))


def launch_probe(name: str) -> None:
    """Launch one probe. Raises CompileFailed, LaunchFailed, and RuntimeError where a lane has taken
    other words than were put."""
    import ctypes

    import cupy as cp
    import numpy as np
    from cuda.bindings import driver

    from kernels.driver import checked
    from kernels.launch_config import launch_config

    stream = cp.cuda.get_current_stream()
    sums = cp.zeros(THREADS, np.uint32)  # and with it the context that the kernel is loaded into
    image = np.frombuffer(hand_over_cubin(), np.uint8)
    module = checked("cuModuleLoadData", driver.cuModuleLoadData(image.ctypes.data))
    kernel = PROBES[name].kernel.encode()
    function = checked("cuModuleGetFunction", driver.cuModuleGetFunction(module, kernel))
    block = arguments(sums.data.ptr, ROUNDS)
    pointers = (ctypes.c_void_p * 1)(block.ctypes.data)
    config = launch_config(1, THREADS, SMEM_BYTES)
    config.hStream = driver.CUstream(stream.ptr)
    launched = driver.cuLaunchKernelEx(config, function, ctypes.addressof(pointers), 0)
    checked(f"launch of probe {name}", launched)
    if not np.array_equal(sums.get(), expected_sums(name)):
        raise RuntimeError(f"probe {name}: wrong sums")


def expected_sums(name: str) -> Any:
    """What each thread of a probe comes to."""
    import numpy as np

    lanes = np.arange(THREADS) % 32
    sums = ROUNDS * (31 - lanes) + ROUNDS * (ROUNDS - 1) // 2
    takes = (np.arange(THREADS) >= 32) | (name == "in_warp")
    return np.where(takes, sums, 0).astype(np.uint32)
