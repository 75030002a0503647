"""Running the debug build of a kernel and watching where its warps get to.

For a process of its own, as ``kernels.worker``: after a hang the kernel still runs when the
report is back, and only the process's end stops it. CUDA is imported inside the functions.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernels.hang import Hang, diagnose, ended, moving
from kernels.launch_plan import LaunchPlan, plan_launch
from kernels.process import launching
from kernels.progress import record_bytes, records_of
from kernels.sources import Variant
from solver.config import Config
from solver.families import sm90_gemm as family
from solver.problem import Problem

WATCH_S = 10.0
"""Seconds that the debug build's launches get together."""
STILL_S = 2.0
"""Seconds without a new record after which a launch counts as stuck. The longest that a warp
works between two records is a split-K sum or a tile's stores, milliseconds."""
_POLL_S = 0.02
_SCALARS = ((1.0, 0.0), (0.5, 1.0))  # alpha, beta: C left alone, and read
_HELD: list[Any] = []  # memory that a kernel which hangs may still use


def watch(
    problem: Problem,
    config: Config,
    sms: int | None = None,
    *,
    watch_s: float = WATCH_S,
    patched: Mapping[str, str] | None = None,
) -> Hang:
    """Launch the debug build, with C not read and with C read, and report where it hangs.

    ``sms`` limits the CTAs (None: every SM), ``patched`` are headers in place of those that ship.
    Operands are laid out as the problem says, whatever they hold. Returns within about ``watch_s``
    of the first launch.

    Raises what compiling and launching raise, LaunchFailed also for a kernel that faults.
    """
    import cupy as cp

    from kernels.compile import build_kernel, compile_kernel
    from kernels.launch import GemmLaunch, LoadedKernel, Workspace
    from kernels.placed import place_operands
    from kernels.session import session

    current = session()
    key = family.compile_key(config, problem.dtype, problem.kernel_layout)
    compiled = (
        compile_kernel(key, variant=Variant.DEBUG)
        if patched is None
        else build_kernel(key, variant=Variant.DEBUG, patched=patched)
    )
    kernel = LoadedKernel.load(compiled)
    launching(compiled.kernel_id)
    plan = plan_launch(problem, config, current.sms if sms is None else min(sms, current.sms))
    operands = place_operands(cp, problem)
    workspace = Workspace(plan)
    memory, device_address = _host_memory(record_bytes(plan))
    current.stream.synchronize()
    _HELD.append((operands, workspace))
    started = time.monotonic()
    for alpha, beta in _SCALARS:
        launch = GemmLaunch(
            plan,
            kernel,
            operands.a.address,
            operands.b.address,
            operands.c.address,
            workspace,
            alpha=alpha,
            beta=beta,
            progress=device_address,
        )
        _HELD.append(launch)
        ctypes.memset(memory, 0, len(memory))
        launch.launch(current.stream)
        hang = _until_it_ends(plan, memory, current.stream, started, watch_s)
        if hang is not None:
            return hang
    return ended(time.monotonic() - started)


def _until_it_ends(
    plan: LaunchPlan, memory: Any, stream: Any, started: float, watch_s: float
) -> Hang | None:
    """None once the stream's work has ended; else what its records say."""
    records, changed = records_of(memory, plan), time.monotonic()
    while not _is_done(stream):
        time.sleep(_POLL_S)
        latest, now = records_of(memory, plan), time.monotonic()
        if not np.array_equal(latest, records):
            records, changed = latest, now
        if now - changed > STILL_S:
            return diagnose(plan, records)
        if now - started > watch_s:
            return moving(plan, records, now - started)
    return None


def _is_done(stream: Any) -> bool:
    """Whether a stream's work has ended. Raises LaunchFailed where it faulted."""
    from cuda.bindings import driver

    from kernels.driver import checked

    result = driver.cuStreamQuery(driver.CUstream(stream.ptr))
    if result[0] == driver.CUresult.CUDA_ERROR_NOT_READY:
        return False
    checked("the debug build", result)
    return True


def _host_memory(size: int) -> tuple[Any, int]:
    """``size`` bytes of host memory that kernels can write to, and their device address.

    Never freed: freeing would wait for a kernel that hangs.
    """
    from cuda.bindings import driver

    from kernels.driver import checked

    flags = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
    host = int(checked("cuMemHostAlloc", driver.cuMemHostAlloc(size, flags)))
    on_device = checked("cuMemHostGetDevicePointer", driver.cuMemHostGetDevicePointer(host, 0))
    return (ctypes.c_char * size).from_address(host), int(on_device)
