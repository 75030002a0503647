"""Loading a cubin and launching it. Needs a CUDA context: worker processes only."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np
from cuda.bindings import driver

from kernels.compile import CompiledKernel
from kernels.driver import checked
from kernels.errors import CompilerMismatch
from kernels.launch_plan import ENTRY, LaunchPlan
from kernels.tensor_map import encode_tensor_map

_ATTRIBUTE = driver.CUfunction_attribute


def address(array: Any) -> int:
    """The device address of a CuPy array's first element."""
    return int(array.data.ptr)


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A cubin in the current context; the module lives as long as the context does."""

    compiled: CompiledKernel
    function: Any

    @classmethod
    def load(cls, compiled: CompiledKernel) -> LoadedKernel:
        """Load the cubin and hold the driver's own figures against the compiler's.

        Raises LaunchFailed where the driver can't load it, CompilerMismatch where it sees
        other registers, local memory or static shared memory than ptxas reported.
        """
        cp.cuda.runtime.free(0)  # makes the primary context current in this thread
        image = np.frombuffer(compiled.cubin, np.uint8)
        module = checked("cuModuleLoadData", driver.cuModuleLoadData(image.ctypes.data))
        function = checked(
            "cuModuleGetFunction", driver.cuModuleGetFunction(module, ENTRY.encode())
        )

        def attribute(name: str) -> int:
            member = getattr(_ATTRIBUTE, f"CU_FUNC_ATTRIBUTE_{name}")
            return int(checked(name, driver.cuFuncGetAttribute(member, function)))

        for name, expected in (
            ("NUM_REGS", compiled.registers),
            ("LOCAL_SIZE_BYTES", compiled.stack_bytes),
            ("SHARED_SIZE_BYTES", compiled.static_smem_bytes),
        ):
            if attribute(name) != expected:
                raise CompilerMismatch(
                    f"{compiled.kernel_id}: the driver reports {name} {attribute(name)}, "
                    f"the compiler {expected}; clear the kernel cache and compile it again"
                )
        return cls(compiled, function)


class Workspace:
    """Split-K scratch of one plan: partial tiles and zeroed counters. Launches in one
    stream may share it, since each leaves the counters zero."""

    def __init__(self, plan: LaunchPlan) -> None:
        self._partials = cp.empty(plan.workspace_bytes, cp.uint8)
        self._counters = cp.zeros(plan.counter_bytes, cp.uint8)
        self.partials_address = address(self._partials) if plan.workspace_bytes else 0
        self.counters_address = address(self._counters) if plan.counter_bytes else 0

    def counters_are_zero(self) -> bool:
        """Whether the last launch left the counters as it must."""
        return not bool(self._counters.any())


class GemmLaunch:
    """One launch bound to its addresses; ``launch`` allocates nothing and may be captured.

    ``a``, ``b``, ``c`` are device addresses of A (m×k), B (n×k) and C (m×ldc), 16-byte
    aligned; their memory and ``workspace`` must outlive the object.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        kernel: LoadedKernel,
        a: int,
        b: int,
        c: int,
        workspace: Workspace,
    ) -> None:
        dtype = plan.problem.dtype
        self._plan = plan
        self._function = kernel.function
        self._workspace = workspace
        map_a = encode_tensor_map(plan.a, dtype, a)
        map_b = encode_tensor_map(plan.b, dtype, b)
        map_c = map_a if plan.c is None else encode_tensor_map(plan.c, dtype, c)
        block = plan.arguments(c, workspace.partials_address, workspace.counters_address)
        self._held: list[np.ndarray[Any, Any]] = [map_a, map_b, map_c, block]
        self._pointers = (ctypes.c_void_p * len(self._held))(*(x.ctypes.data for x in self._held))
        checked(
            f"dynamic shared memory of {plan.smem_bytes} bytes",
            driver.cuFuncSetAttribute(
                kernel.function,
                _ATTRIBUTE.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                plan.smem_bytes,
            ),
        )

    def launch(self, stream: Any) -> None:
        """Enqueue on a CuPy stream. Raises LaunchFailed where the driver refuses."""
        plan = self._plan
        checked(
            f"launch of {self._plan.config}",
            driver.cuLaunchKernel(
                self._function,
                plan.grid,
                1,
                1,
                plan.threads,
                1,
                1,
                plan.smem_bytes,
                driver.CUstream(stream.ptr),
                ctypes.addressof(self._pointers),
                0,
            ),
        )
