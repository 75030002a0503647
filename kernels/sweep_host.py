"""What a sweep's measurements share on this host: device, compiler, packages and sources, and the
kernels that can't be compiled here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.progress import Progress

from kernels.bench import COMPILER_DIED, precompile
from kernels.bench_result import package_versions
from kernels.host import HostGpu
from kernels.nvrtc import version as nvrtc_version
from kernels.sources import copy_hash, source_hash
from solver.families.sm90_gemm import CompileKey


def host_facts(gpu: HostGpu, device: Mapping[str, Any]) -> dict[str, Any]:
    """What rows must agree in to stand in one table; ``device`` is what a worker reads off it."""
    return {
        "device": gpu.name,
        "sms": device["sms"],
        "l2_bytes": device["l2_bytes"],
        "driver": gpu.driver,
        "nvrtc": nvrtc_version(),
        "packages": package_versions(),
        "source_hash": source_hash(),
        "copy_hash": copy_hash(),
    }


def compile_failures(keys: Sequence[CompileKey], progress: Progress) -> dict[str, str]:
    """Compile kernels side by side, with a bar; why some can't be, by name."""
    return lasting(precompile(keys, progress)) if keys else {}


def lasting(failures: Mapping[str, str]) -> dict[str, str]:
    """Failures without those of keys that merely waited when a compiler died: these are compiled
    where their rows are timed."""
    return {name: why for name, why in failures.items() if why != COMPILER_DIED}
