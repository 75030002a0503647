"""What can go wrong between a configuration and a running kernel, one tree.

WarpwrightError (solver.errors)
└── KernelError
    ├── CompilerAbsent      NVRTC can't be loaded: names the extra that brings it
    ├── CompileFailed       the compiler refused the kernel, or built it in a way that is no use
    ├── CompilerMismatch    the compiler's own figures contradict the solver's
    ├── UnknownKernel       no kernel of these sources has that id
    ├── TableRefused        a table of picks that can't be read or is made for something else
    ├── CacheUnwritable     the kernel cache can't take an entry
    ├── GpuAbsent           no CUDA device or no driver
    ├── GpuLost             a GPU that fails whatever runs on it
    ├── ProfilerUnusable    Nsight Compute is absent, or may not do what is asked of it
    ├── StepFailed          a step of a calibration or a sweep that can't be done
    ├── NoKernelFamily      this GPU has no kernel family: names those that have one
    ├── PowerUnread         NVML has no energy counter of this GPU, or it stands still
    ├── LaunchFailed        the driver refused, or the kernel faulted
    ├── TraceUnreadable     a traced build kept what its launch can't have done
    └── PtxError            (kernels.ptx_parser) PTX that can't be told without a guess
"""

from __future__ import annotations

from solver.errors import WarpwrightError


class KernelError(WarpwrightError):
    """Base of the errors of kernels/."""


class CompilerAbsent(KernelError):
    """NVRTC or its Python binding is not installed."""


class CompileFailed(KernelError):
    """The compiler refused a kernel. ``reason`` is one line, ``log`` all that it said."""

    def __init__(self, kernel_id: str, reason: str, log: str) -> None:
        super().__init__(f"{kernel_id}: {reason}")
        self.kernel_id = kernel_id
        self.reason = reason
        self.log = log

    def __reduce__(self) -> tuple[type[CompileFailed], tuple[str, str, str]]:
        return type(self), (self.kernel_id, self.reason, self.log)


class CompilerMismatch(KernelError):
    """A compiled kernel is not what the solver took it for; the message says what to run."""


class UnknownKernel(KernelError):
    """An id that no kernel of the sources here has; the message says what is wrong with it."""


class TableRefused(KernelError):
    """A file that is no table of picks, or one for other sources or another device."""


class CacheUnwritable(KernelError):
    """The kernel cache folder can't be made or written; the message names it and why."""


class GpuAbsent(KernelError):
    """There is no CUDA device here, or no driver for it."""


class GpuLost(KernelError):
    """The GPU here, or its process, fails whatever runs on it; the message has the last failure."""


class ProfilerUnusable(KernelError):
    """Nsight Compute is not here, may not read the GPU's counters, or profiled nothing."""


class StepFailed(KernelError):
    """A step of a calibration or a sweep failed for a reason that is not the GPU's; the message
    names it."""


class NoKernelFamily(KernelError):
    """A device on which no kernel family runs; the message names those that have one."""


class LaunchFailed(KernelError):
    """A call into the driver or a launch failed; the message names the call and CUDA's error."""


class TraceUnreadable(KernelError):
    """Records of a traced build that are not what its launch leads to, or a product that differs
    from that of the kernel that ships."""


class PowerUnread(KernelError):
    """NVML does not count this GPU's energy: its power can't be measured by it."""
