"""From a norm_activation configuration to a cubin: compile keys, their one line, the disk cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache

from kernels import nvrtc
from kernels.cache import KernelCache, default_cache, payload_of, read_payload
from kernels.compile import keep
from kernels.cubin import read_int32_array
from kernels.errors import CompileFailed
from kernels.ptxas import read_report
from kernels.sources import ID_DIGITS, NORM_PREFIX, digest, headers_named, options
from solver.families import norm_activation as family
from solver.families import norm_activation_block as block
from solver.families.norm_activation import NormConfig, NormProblem

ENTRY = "norm_activation"
SMEM_SYMBOL = "norm_activation_smem"
ELEMENTS = {"fp32": "Fp32", "fp16": "Fp16", "bf16": "Bf16"}


@dataclass(frozen=True, slots=True)
class NormKey:
    """What a kernel is compiled for. All else is a launch argument: rows, width (as far as
    ``vectors`` holds it), degree, depth, chunk size and how many blocks there are.

    ``vectors``         of a lane's share of a row, in registers
    ``chunk_vectors``   of a lane's share of a chunk; 0: chunks hold whole rows
    """

    dtype: str
    norm: str
    activation: str
    kind: str
    consumers: int
    producers: int
    groups: int
    team: int
    vector_bytes: int
    copies: str
    barrier: str
    hold: str
    stores: str
    vectors: int
    chunk_vectors: int
    blocks_per_sm: int
    register_split: int

    @property
    def name(self) -> str:
        """The key as one word."""
        return "_".join(str(value) for value in asdict(self).values())


def compile_key(problem: NormProblem, config: NormConfig) -> NormKey:
    """The key of a legal configuration's kernel."""
    chunk_vectors = block.chunk_vectors_of(problem, config)
    if config.hold != "registers":  # only whether rows come in chunks is compiled in
        chunk_vectors = min(chunk_vectors, 1)
    return NormKey(
        problem.dtype,
        problem.norm,
        problem.activation,
        config.kind,
        config.consumers,
        config.producers,
        config.groups,
        config.team,
        config.vector_bytes,
        config.copies,
        config.barrier,
        config.hold,
        config.stores,
        block.vectors_of(problem, config),
        chunk_vectors,
        config.blocks_per_sm,
        config.register_split,
    )


def instantiation(key: NormKey) -> str:
    """The translation unit of a compile key."""
    element = ELEMENTS[key.dtype]
    what = f"{element}, {family.NORMS.index(key.norm)}, {family.ACTIVATIONS.index(key.activation)}"
    if key.kind == "plain":
        kernel = f"PlainRows<{what}, {key.vector_bytes}, {key.consumers}>"
    elif key.kind == "strong":
        kernel = (
            f"StrongRows<{what}, {key.vector_bytes}, {key.consumers}, {key.team}, {key.vectors}>"
        )
    else:
        registers = (
            family.SPLIT_REGISTERS[key.producers, key.consumers] if key.register_split else (0, 0)
        )
        numbers = (
            family.COPIES.index(key.copies),
            family.BARRIERS.index(key.barrier),
            key.producers,
            key.consumers,
            key.groups,
            key.team,
            family.HOLDS.index(key.hold),
            key.vectors,
            key.chunk_vectors,
            family.STORES.index(key.stores),
            *registers,
        )
        kernel = f"Stream<{what}, {', '.join(map(str, numbers))}>"
    return f'#include "norm_stream.cuh"\nWARPWRIGHT_NORM({key.blocks_per_sm}, {kernel})\n'


@cache
def headers() -> Mapping[str, str]:
    """Include name to text, of every header of this family."""
    return headers_named(lambda name: name.startswith(NORM_PREFIX) or name == "ptx.cuh")


@cache
def source_hash(arch: str) -> str:
    """SHA-256 over this family's headers, names and text, and the options."""
    return digest((*options(arch), *(x for item in headers().items() for x in item)))


def kernel_id(key: NormKey, arch: str) -> str:
    """What names a kernel: its key, and a part of the hash of what it is made from."""
    return f"{key.name}-{source_hash(arch)[:ID_DIGITS]}"


@dataclass(frozen=True, slots=True)
class CompiledNorm:
    """A cubin and what the compiler says of it; figures as ``kernels.compile.CompiledKernel``.

    slot_overhead_bytes, fixed_smem_bytes   dynamic shared memory for each slot besides its chunk,
                                            and the rest, read from the cubin
    argument_bytes                          of the kernel's one parameter
    """

    key: NormKey
    arch: str
    cubin: bytes
    registers: int
    barriers: int
    spill_bytes: int
    stack_bytes: int
    static_smem_bytes: int
    slot_overhead_bytes: int
    fixed_smem_bytes: int
    argument_bytes: int
    nvrtc: str
    source_hash: str
    kernel_id: str


def build_norm(
    key: NormKey, arch: str, *, patched: Mapping[str, str] | None = None
) -> CompiledNorm:
    """Compile a key, always, and without the cache; ``patched`` headers stand in for those that
    ship.

    Raises CompileFailed where the compiler refuses or has a remark, where the kernel spills or uses
    a stack, and where its registers can't be split as the key says; CompilerAbsent where there is
    no compiler.
    """
    name = kernel_id(key, arch)
    texts = headers() if patched is None else patched
    built = nvrtc.build(f"{name}.cu", instantiation(key), texts, options(arch))
    report = read_report(name, built, ENTRY)
    if report.spill_bytes or report.stack_bytes:
        reason = f"spills {report.spill_bytes} bytes, uses {report.stack_bytes} bytes of stack"
        raise CompileFailed(name, reason, built.log)
    if report.remark:
        raise CompileFailed(name, report.remark, built.log)
    if key.register_split and report.registers != family.SPLIT_LAUNCH_REGISTERS:
        # Consumers would wait for ever for registers that the block does not have.
        reason = f"is launched with {report.registers} registers, which setmaxnreg can't split"
        raise CompileFailed(name, reason, built.log)
    slot, fixed, arguments = read_int32_array(built.cubin, SMEM_SYMBOL)
    return CompiledNorm(
        key=key,
        arch=arch,
        cubin=built.cubin,
        registers=report.registers,
        barriers=report.barriers,
        spill_bytes=report.spill_bytes,
        stack_bytes=report.stack_bytes,
        static_smem_bytes=report.static_smem_bytes,
        slot_overhead_bytes=slot,
        fixed_smem_bytes=fixed,
        argument_bytes=arguments,
        nvrtc=nvrtc.version(),
        source_hash=source_hash(arch),
        kernel_id=name,
    )


def compile_norm(key: NormKey, arch: str, cache: KernelCache | None = None) -> CompiledNorm:
    """The kernel of a compile key, from the disk cache (the default folder's) or the compiler.

    Raises as ``build_norm`` does.
    """
    store = default_cache() if cache is None else cache
    identity = {
        "kernel_id": key.name,
        "arch": arch,
        "nvrtc": nvrtc.version(),
        "options": " ".join(options(arch)),
        "source_hash": source_hash(arch),
        "unit": instantiation(key),
        "format": ",".join(field.name for field in fields(CompiledNorm)),
    }
    payload = store.load(identity)
    if payload is not None:
        return _from_payload(payload)
    compiled = build_norm(key, arch)
    keep(store, identity, payload_of(compiled))
    return compiled


def _from_payload(payload: bytes) -> CompiledNorm:
    figures = read_payload(payload)
    figures["key"] = NormKey(**figures["key"])
    return CompiledNorm(**figures)
