"""Launching norm_activation kernels. Needs a CUDA context: worker processes only."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from cuda.bindings import driver

from kernels.driver import checked
from kernels.errors import LaunchFailed
from kernels.launch import load_function
from kernels.launch_config import launch_config
from kernels.norm.compile import ENTRY, CompiledNorm, NormKey, compile_norm
from kernels.norm.plan import EPS, NormPlan
from solver.families.norm_activation import VECTOR_BYTES


@cache
def loaded(key: NormKey, arch: str) -> tuple[CompiledNorm, Any]:
    """The kernel of a key, compiled or from the cache and loaded once in this process, and its
    function. Raises as compiling and loading do."""
    compiled = compile_norm(key, arch)
    return compiled, load_function(compiled, ENTRY)


class NormLaunch:
    """One launch bound to its addresses; ``launch`` allocates nothing and may be captured.

    ``x``, ``scale``, ``shift`` and ``y`` are device addresses, multiples of 16; y may not overlap
    the others. Their memory must outlive the object.

    Raises LaunchFailed for an address that is no multiple of 16, InvalidInput for eps.
    """

    def __init__(
        self,
        plan: NormPlan,
        function: Any,
        x: int,
        scale: int,
        shift: int,
        y: int,
        eps: float = EPS,
    ) -> None:
        for name, at in (("x", x), ("scale", scale), ("shift", shift), ("y", y)):
            if at % VECTOR_BYTES:
                raise LaunchFailed(f"{name} must start at a multiple of 16 bytes, got {at:#x}")
        self._plan = plan
        self._function = function
        self._block = plan.arguments(x, scale, shift, y, eps)
        self._pointers = (ctypes.c_void_p * 1)(self._block.ctypes.data)
        self._config = launch_config(plan.grid, plan.threads, plan.smem_bytes)

    def launch(self, stream: Any) -> None:
        """Enqueue the kernel on a CuPy stream; nothing for no rows. Raises LaunchFailed."""
        if self._plan.grid == 0:
            return
        self._config.hStream = driver.CUstream(stream.ptr)
        checked(
            f"launch of {self._plan.config}",
            driver.cuLaunchKernelEx(
                self._config, self._function, ctypes.addressof(self._pointers), 0
            ),
        )


def blocks_by_driver(plan: NormPlan, function: Any) -> int:
    """Blocks of a plan that an SM holds, by the driver's own count."""
    return int(
        checked(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                function, plan.threads, plan.smem_bytes
            ),
        )
    )
