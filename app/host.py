"""The machine the service stands on: which GPU it has and which profile describes it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernels.cache import default_cache
from kernels.errors import CacheUnwritable
from kernels.host import HostGpu, host_gpu, match_profile
from solver.device import families_of
from solver.errors import InvalidProblem
from solver.families.registry import family_of

log = logging.getLogger(__name__)

FALLBACK_DEVICE = "h200"


@dataclass(frozen=True, slots=True)
class Host:
    """The GPU that NVML reports first, and the profile of that model, where there is one."""

    gpu: HostGpu | None
    profile: str | None

    @property
    def gpu_name(self) -> str:
        """The GPU's name, or ``absent``."""
        return "absent" if self.gpu is None else self.gpu.name

    @property
    def device(self) -> str:
        """The profile to answer for when a question names none: this GPU's, where a kernel
        family runs on it.
        """
        if self.profile is not None and families_of(self.profile):
            return self.profile
        return FALLBACK_DEVICE


def detect_host() -> Host:
    """What NVML says now; makes no CUDA context."""
    return host_of(host_gpu())


def host_of(gpu: HostGpu | None) -> Host:
    """The host whose first GPU this is."""
    return Host(gpu, match_profile(gpu) if gpu else None)


def log_host(host: Host, count: int, why_absent: Callable[[], str]) -> None:
    """Say in the log which GPU there is, how many jobs run on, or what is missing."""
    if host.gpu is None:
        log.warning("%s: questions are answered, verifications are refused", why_absent())
    else:
        words = "GPU" if count == 1 else f"{count} GPUs"
        log.info("%s: %s, driver %s", words, host.gpu.name, host.gpu.driver)


def log_cache() -> None:
    """Say in the log where compiled kernels can't be kept."""
    try:
        default_cache().check_writable()
    except CacheUnwritable as error:
        log.warning("%s: each kernel is compiled anew, and jobs can't lock their GPU", error)


def check_memory(problem: Any, gpu: HostGpu) -> None:
    """Raise InvalidProblem where what a launch reads, writes and copies is more than the GPU's
    memory."""
    family = family_of(problem)
    needed = family.memory_bytes(problem, "calibrated")
    if needed > gpu.memory_bytes:
        raise InvalidProblem(
            family.extent,
            f"{family.holds} must fit the GPU's memory of {gpu.memory_bytes} bytes, they take "
            f"{needed}",
        )
