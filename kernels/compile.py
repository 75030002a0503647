"""From a compile key to a cubin, with the compiler's own account of it.

NVRTC and ptxas decide what is legal: a kernel that spills, is serialised or has its register
split ignored is a failure here, never a slow kernel later.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from kernels import nvrtc
from kernels.cache import KernelCache, default_cache, payload_of, read_payload
from kernels.cubin import read_int32_array
from kernels.errors import CacheUnwritable, CompileFailed, CompilerMismatch
from kernels.launch_plan import ENTRY
from kernels.ptxas import read_report
from kernels.sources import (
    ARCH,
    COPIES,
    Variant,
    copy_hash,
    headers,
    instantiation,
    kernel_id,
    options,
    source_hash,
    traced_hash,
    traced_headers,
    unit,
)
from solver.config import Config
from solver.device import DeviceProfile
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.families.sm90_gemm import CompileKey
from solver.problem import ELEMENT_BYTES

SMEM_SYMBOL = "sm90_gemm_smem_bytes"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A cubin and what the compiler says of it.

    registers                per thread at launch
    spill_bytes              spill stores and loads together
    stack_bytes              local memory per thread
    static_smem_bytes        shared memory declared in the source (dynamic is the launch's)
    smem_bytes_by_stages     dynamic shared memory the kernel takes for 0, 1, … stages, read
                             from the cubin: the layout the kernel itself uses
    cache_note               why the cubin was not kept on disk; empty where it was
    """

    key: CompileKey
    arch: str
    cubin: bytes
    registers: int
    spill_bytes: int
    stack_bytes: int
    static_smem_bytes: int
    smem_bytes_by_stages: tuple[int, ...]
    nvrtc: str
    source_hash: str
    kernel_id: str
    from_cache: bool = False
    cache_note: str = ""


def _from_payload(payload: bytes) -> CompiledKernel:
    figures = read_payload(payload)
    figures["key"] = CompileKey(**figures["key"])
    figures["smem_bytes_by_stages"] = tuple(figures["smem_bytes_by_stages"])
    return replace(CompiledKernel(**figures), from_cache=True)


def identity_of(
    key: CompileKey, arch: str = ARCH, variant: Variant = Variant.SHIPPED
) -> dict[str, str]:
    """What the kernel of a key is kept under in the disk cache. Raises CompilerAbsent."""
    return {
        "kernel_id": kernel_id(key, arch) + variant.suffix,
        "arch": arch,
        "nvrtc": nvrtc.version(),
        "options": " ".join(options(arch, variant)),
        "source_hash": traced_hash(arch) if variant is Variant.TRACED else source_hash(arch),
        "unit": instantiation(key),
        "format": ",".join(field.name for field in fields(CompiledKernel)),
    }


def build_kernel(
    key: CompileKey,
    arch: str = ARCH,
    source: str | None = None,
    *,
    variant: Variant = Variant.SHIPPED,
    patched: Mapping[str, str] | None = None,
) -> CompiledKernel:
    """Compile a key, always, and without the cache.

    ``source`` replaces the key's own unit, ``patched`` the headers of the ``variant``.

    Raises CompileFailed where the compiler refuses, CompilerAbsent where there is none. What
    it builds may spill, and a debug build may have its products serialised: ``require_sound``
    says no to the former.
    """
    name = kernel_id(key, arch) + variant.suffix
    source_text = instantiation(key) if source is None else source
    text = traced_headers() if variant is Variant.TRACED else headers()
    if patched is not None:
        text = patched
    built = nvrtc.build(f"{name}.cu", source_text, text, options(arch, variant))
    report = read_report(name, built, ENTRY)
    if report.remark and not report.spill_bytes and variant is not Variant.DEBUG:
        raise CompileFailed(name, report.remark, built.log)
    return CompiledKernel(
        key=key,
        arch=arch,
        cubin=built.cubin,
        registers=report.registers,
        spill_bytes=report.spill_bytes,
        stack_bytes=report.stack_bytes,
        static_smem_bytes=report.static_smem_bytes,
        smem_bytes_by_stages=read_int32_array(built.cubin, SMEM_SYMBOL) if source is None else (),
        nvrtc=nvrtc.version(),
        source_hash=source_hash(arch),
        kernel_id=name,
    )


def require_sound(kernel: CompiledKernel) -> CompiledKernel:
    """The kernel itself, or CompileFailed where it spills or uses a stack."""
    reason = unsound_reason(kernel)
    if reason:
        raise CompileFailed(kernel.kernel_id, reason, "")
    return kernel


def unsound_reason(kernel: CompiledKernel) -> str:
    """Why a kernel that compiled is no use; empty where it is sound."""
    if kernel.spill_bytes:
        return f"spills {kernel.spill_bytes} bytes"
    if kernel.stack_bytes:
        return f"uses {kernel.stack_bytes} bytes of stack"
    if kernel.static_smem_bytes:
        return f"declares {kernel.static_smem_bytes} bytes of static shared memory"
    return ""


def compile_kernel(
    key: CompileKey,
    arch: str = ARCH,
    cache: KernelCache | None = None,
    *,
    variant: Variant = Variant.SHIPPED,
) -> CompiledKernel:
    """The kernel of a compile key, from the disk cache or from the compiler.

    ``cache`` is the default folder's where omitted. Where it can't be written the kernel is
    returned all the same, and ``cache_note`` says why it was not kept. The debug build finds out
    where a launch hangs, and a traced one when what happens in it: these may spill.

    Raises CompileFailed (with the compiler's log) and CompilerAbsent.
    """
    store = default_cache() if cache is None else cache
    identity = identity_of(key, arch, variant)
    payload = store.load(identity)
    if payload is not None:
        return _from_payload(payload)
    kernel = build_kernel(key, arch, variant=variant)
    if variant is Variant.SHIPPED:
        require_sound(kernel)
    return replace(kernel, cache_note=keep(store, identity, payload_of(kernel)))


def keep(store: KernelCache, identity: Mapping[str, str], payload: bytes) -> str:
    """Store what was compiled; why that was not possible, or empty."""
    try:
        store.store(identity, payload)
    except CacheUnwritable as error:
        _LOG.warning("%s; %s was compiled without it", error, identity["kernel_id"])
        return str(error)
    return ""


def compile_copies(arch: str = ARCH, cache: KernelCache | None = None) -> bytes:
    """The cubin of the kernels in COPIES, from the disk cache or from the compiler.

    Raises CompileFailed and CompilerAbsent.
    """
    store = default_cache() if cache is None else cache
    identity = {
        "kernel_id": f"copies-{copy_hash(arch)[:12]}",
        "arch": arch,
        "nvrtc": nvrtc.version(),
        "options": " ".join(options(arch)),
        "source_hash": copy_hash(arch),
    }
    kept = store.load(identity)
    if kept is not None:
        return kept
    built = nvrtc.build(COPIES, unit(COPIES), {}, options(arch))
    if not built.cubin:
        raise CompileFailed(identity["kernel_id"], "the compiler refused it", built.log)
    keep(store, identity, built.cubin)
    return built.cubin


def compile_never_ends(key: CompileKey, arch: str = ARCH) -> CompiledKernel:
    """Test only: a kernel with the same entry and arguments that never returns. Not cached."""
    kernel = build_kernel(key, arch, unit("never_ends.cu"))
    return replace(kernel, kernel_id=f"never_ends-{source_hash(arch)[:12]}")


def check_compiled(compiled: CompiledKernel, config: Config, profile: DeviceProfile) -> None:
    """Put the compiler's own figures for this kernel through the family's legality.

    Raises CompilerMismatch where they make ``config`` illegal on ``profile``, or where the
    kernel's own shared-memory layout is not the one the solver counted with.
    """
    key = compiled.key

    def mismatch(reason: str) -> CompilerMismatch:
        return CompilerMismatch(
            f"{compiled.kernel_id}, NVRTC {compiled.nvrtc}: {reason}; run `python -m kernels.table`"
            " to measure the register table with this compiler"
        )

    if family.compile_key(config, key.dtype, key.layout) != key:
        raise mismatch(f"was not compiled for {config}")
    if reason := unsound_reason(compiled):
        raise mismatch(reason)
    columns = config.to_dict()
    element = ELEMENT_BYTES[key.dtype]
    expected = int(family.smem_bytes(columns, element))
    actual = compiled.smem_bytes_by_stages[config.stages]
    if actual != expected:
        raise mismatch(f"takes {actual} bytes of shared memory, the solver counted {expected}")
    for limit in legality.kernel_limits(
        columns, element, legality.BlockLimits.of(profile), compiled.registers
    ):
        if not np.all(limit.holds):
            raise mismatch(f"with {compiled.registers} registers, {limit.field} {limit.rule}")
