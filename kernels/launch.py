"""Loading a cubin and launching it. Needs a CUDA context: worker processes only."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import cupy as cp
import numpy as np
from cuda.bindings import driver

from kernels.compile import CompiledKernel
from kernels.copies import OperandCopies
from kernels.driver import checked
from kernels.errors import CompilerMismatch, LaunchFailed
from kernels.launch_config import launch_config
from kernels.launch_plan import ENTRY, LaunchPlan
from kernels.tensor_map import encode_tensor_map
from solver.problem import VECTOR_BYTES

_ATTRIBUTE = driver.CUfunction_attribute
_SUCCESS = driver.CUresult.CUDA_SUCCESS


def address(array: Any) -> int:
    """The device address of a CuPy array's first element."""
    return int(array.data.ptr)


class Loadable(Protocol):
    """A cubin with one entry function, and the compiler's figures for it."""

    @property
    def cubin(self) -> bytes: ...
    @property
    def kernel_id(self) -> str: ...
    @property
    def registers(self) -> int: ...
    @property
    def stack_bytes(self) -> int: ...
    @property
    def static_smem_bytes(self) -> int: ...


def load_function(compiled: Loadable, entry: str) -> Any:
    """Load a cubin and hold the driver's own figures against the compiler's; the function, which
    lives as long as the context does and may take all of a block's shared memory.

    Raises LaunchFailed where the driver can't load it, CompilerMismatch where it sees other
    registers, local memory or static shared memory than ptxas reported.
    """
    cp.cuda.runtime.free(0)  # makes the primary context current in this thread
    image = np.frombuffer(compiled.cubin, np.uint8)
    module = checked("cuModuleLoadData", driver.cuModuleLoadData(image.ctypes.data))
    function = checked("cuModuleGetFunction", driver.cuModuleGetFunction(module, entry.encode()))

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
    # All that the device has: launches of one kernel differ in it, and each may come first.
    device = checked("cuCtxGetDevice", driver.cuCtxGetDevice())
    most = checked(
        "the device's shared memory",
        driver.cuDeviceGetAttribute(
            driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            device,
        ),
    )
    checked(
        f"dynamic shared memory of {most} bytes",
        driver.cuFuncSetAttribute(
            function, _ATTRIBUTE.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most
        ),
    )
    return function


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A cubin in the current context; the module lives as long as the context does."""

    compiled: CompiledKernel
    function: Any

    @classmethod
    def load(cls, compiled: CompiledKernel) -> LoadedKernel:
        """``load_function`` of the GEMM's entry, and what it raises."""
        return cls(compiled, load_function(compiled, ENTRY))


class Workspace:
    """Scratch of one plan: split-K's partial tiles and zeroed counters, and room for aligned
    copies of operands. Launches in one stream may share it, since each leaves the counters
    zero and makes its copies anew."""

    def __init__(self, plan: LaunchPlan) -> None:
        self._partials = cp.empty(plan.workspace_bytes, cp.uint8)
        self._counters = cp.zeros(plan.counter_bytes, cp.uint8)
        self._copies = [cp.empty(load.copy_bytes, cp.uint8) for load in (plan.a, plan.b)]
        self.partials_address = address(self._partials) if plan.workspace_bytes else 0
        self.counters_address = address(self._counters) if plan.counter_bytes else 0
        self.a_copy_address, self.b_copy_address = (
            address(copy) if copy.size else 0 for copy in self._copies
        )

    def counters_are_zero(self) -> bool:
        """Whether the last launch left the counters as it must."""
        return not bool(self._counters.any())


class Places(Protocol):
    """Where a launch has its scratch; 0 for what its plan does not need."""

    @property
    def partials_address(self) -> int: ...
    @property
    def counters_address(self) -> int: ...
    @property
    def a_copy_address(self) -> int: ...
    @property
    def b_copy_address(self) -> int: ...


class GemmLaunch:
    """One launch bound to its addresses; ``launch`` allocates nothing and may be captured.

    C = alpha·A·B + beta·C. ``a``, ``b``, ``c`` are device addresses of the first elements, as
    far past a 16-byte boundary as the plan's problem says; their memory and ``workspace`` must
    outlive the object. ``progress`` is where the debug build keeps its records.

    Raises LaunchFailed for an address that is not where the problem says.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        kernel: LoadedKernel,
        a: int,
        b: int,
        c: int,
        workspace: Places,
        *,
        alpha: float = 1.0,
        beta: float = 0.0,
        progress: int = 0,
    ) -> None:
        problem = plan.problem
        for name, at, matrix in (("A", a, problem.a), ("B", b, problem.b), ("C", c, problem.c)):
            offset_bytes = matrix.offset * matrix.element_bytes
            if at % VECTOR_BYTES != offset_bytes:
                raise LaunchFailed(
                    f"{name} must start {offset_bytes} bytes past a multiple of {VECTOR_BYTES}, "
                    f"got {at:#x}"
                )
        self._plan = plan
        self._workspace = workspace
        self._copies = OperandCopies(plan, a, b, workspace.a_copy_address, workspace.b_copy_address)
        map_a = encode_tensor_map(plan.a.box, workspace.a_copy_address if plan.a.copied else a)
        map_b = encode_tensor_map(plan.b.box, workspace.b_copy_address if plan.b.copied else b)
        map_c = map_a if plan.c is None else encode_tensor_map(plan.c, c)
        block = plan.arguments(
            c,
            workspace.partials_address,
            workspace.counters_address,
            alpha=alpha,
            beta=beta,
            progress=progress,
        )
        self._held: list[np.ndarray[Any, Any]] = [map_a, map_b, map_c, block]
        self._pointers = (ctypes.c_void_p * len(self._held))(*(x.ctypes.data for x in self._held))
        self._parameters = ctypes.addressof(self._pointers)
        self._function = kernel.function
        self._config = launch_config(
            plan.grid,
            plan.threads,
            plan.smem_bytes,
            cluster=plan.cluster,
            overlaps=plan.overlaps,
        )

    def launch(self, stream: Any) -> None:
        """Enqueue the copies, if any, and the kernel on a CuPy stream.

        Raises LaunchFailed where the driver refuses.
        """
        self._config.hStream = driver.CUstream(stream.ptr)
        self._enqueue(stream)

    def on(self, stream: Any) -> Callable[[], None]:
        """``launch`` on one CuPy stream, at little more than the cost of the driver's call;
        meanwhile this object is launched on no other stream.
        """
        self._config.hStream = driver.CUstream(stream.ptr)
        return partial(self._enqueue, stream)

    def _enqueue(self, stream: Any) -> None:
        self._copies.launch(stream)
        result = driver.cuLaunchKernelEx(self._config, self._function, self._parameters, 0)
        if result[0] != _SUCCESS:
            checked(f"launch of {self._plan.config}", result)
