"""The CUDA sources that ship, how they are compiled, and the identity that follows.

A kernel is one generated line over the headers in ``kernels/cuda``: the macro that
instantiates the template for a compile key.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from kernels.errors import UnknownKernel
from solver.families.sm90_gemm import ROLE_REGISTERS, CompileKey
from solver.families.sm90_gemm_registers import register_table
from solver.limits import shortened
from solver.problem import is_k_major

ARCH = "sm_90a"  # wgmma and setmaxnreg exist only with the "a"
ELEMENTS = {"bf16": "Bf16", "fp16": "Fp16"}
COPIES = "copy.cu"  # the kernels around a launch: aligned copies of operands, C = beta·C
NORM_PREFIX = "norm_"  # of the norm_activation family's headers
OPTIONS = ("--std=c++17", "-Xptxas=-v")
ID_DIGITS = 12
_ID = re.compile(
    r"([a-z0-9]{1,8})_([tn]{2})_([0-9]{1,4})x([0-9]{1,4})x([0-9]{1,4})_w([0-9])_r([01])_f([01])"
    rf"-([0-9a-f]{{{ID_DIGITS}}})"
)
TRACE_RECORDS = 4096
"""Records of a warp of a traced build, 8 bytes each: a power of two. What comes when they are full
is not kept."""


class Variant(Enum):
    """Which build of a kernel, and the option that it takes besides, if any."""

    SHIPPED = ""  # an empty tuple would do, had Python up to 3.11.2 not made an object of it
    DEBUG = "-DWARPWRIGHT_PROGRESS"
    """Keeps where each of its warps is (``kernels.progress``)."""
    TRACED = f"-DWARPWRIGHT_TRACE_RECORDS={TRACE_RECORDS}"
    """Keeps when each of its warps got where (``kernels.trace_records``)."""

    @property
    def suffix(self) -> str:
        """What it adds to a kernel's id, so that it is never taken for what ships."""
        return {"SHIPPED": "", "DEBUG": "-progress", "TRACED": "-traced"}[self.name]


@cache
def headers() -> Mapping[str, str]:
    """Include name to text, of every header of the GEMM, sorted by name."""
    return headers_named(lambda name: not name.startswith(NORM_PREFIX))


def headers_named(wanted: Callable[[str], bool]) -> Mapping[str, str]:
    """Include name to text, of the headers that ship whose names are ``wanted``, sorted by name."""
    folder = resources.files("kernels").joinpath("cuda")
    files = sorted(f.name for f in folder.iterdir() if f.name.endswith(".cuh") and wanted(f.name))
    return MappingProxyType({name: folder.joinpath(name).read_text("utf-8") for name in files})


@cache
def traced_headers() -> Mapping[str, str]:
    """``headers`` of a traced build: another file in the place of one, under its name, so that all
    that ships and its hash stay as they are."""
    folder = resources.files("kernels").joinpath("cuda", "traced")
    ours = {f.name: f.read_text("utf-8") for f in folder.iterdir() if f.name.endswith(".cuh")}
    return MappingProxyType({**headers(), **ours})


@cache
def unit(name: str) -> str:
    """The text of a translation unit that ships as it is: COPIES, what measures the GPU's ceilings,
    or, for tests only, ``never_ends.cu`` with the GEMM's entry that never returns."""
    return resources.files("kernels").joinpath("cuda", name).read_text("utf-8")


def options(arch: str = ARCH, variant: Variant = Variant.SHIPPED) -> tuple[str, ...]:
    """The compiler's options for an architecture and a build."""
    return (f"--gpu-architecture={arch}", *OPTIONS, *filter(None, [variant.value]))


def digest(parts: Iterable[str]) -> str:
    """SHA-256 over texts, each with its length."""
    made = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        made.update(len(encoded).to_bytes(8, "little"))
        made.update(encoded)
    return made.hexdigest()


@cache
def source_hash(arch: str = ARCH) -> str:
    """SHA-256 over the headers, names and text, and the options: what a kernel is made from."""
    return digest((*options(arch), *(x for item in headers().items() for x in item)))


@cache
def traced_hash(arch: str = ARCH) -> str:
    """SHA-256 over the headers and options of a traced build."""
    parts = (x for item in traced_headers().items() for x in item)
    return digest((*options(arch, Variant.TRACED), *parts))


@cache
def copy_hash(arch: str = ARCH) -> str:
    """SHA-256 over the text of COPIES and the options. Apart from ``source_hash``: registers and
    times of a kernel don't depend on it, times of a launch that copies operands do."""
    return digest((*options(arch), COPIES, unit(COPIES)))


def kernel_id(key: CompileKey, arch: str = ARCH) -> str:
    """The key's name and 12 digits of the source hash: what is compiled, whatever the compiler.

    NVRTC's version stands beside it wherever a kernel was built or measured.
    """
    return f"{key.name}-{source_hash(arch)[:ID_DIGITS]}"


def key_of(text: str, arch: str = ARCH) -> CompileKey:
    """The compile key that has an id.

    Raises UnknownKernel for a text that is no id, for a kernel that the family does not have and
    for an id of other sources than these.
    """
    match = _ID.fullmatch(text)
    if match is None:
        like = f"bf16_tn_128x128x64_w2_r1_f1-{source_hash(arch)[:ID_DIGITS]}"
        raise UnknownKernel(
            f"{shortened(repr(text))} is no id of a kernel for products, which alone are exported; "
            f"one looks like {like}"
        )
    dtype, layout, *numbers, digits = match.groups()
    key = CompileKey(dtype, layout, *map(int, numbers))
    name = text.rpartition("-")[0]
    if dtype not in ELEMENTS or key.name != name or not register_table().of(key):
        raise UnknownKernel(f"the family has no kernel {name}")
    if digits != source_hash(arch)[:ID_DIGITS]:
        raise UnknownKernel(
            f"{text} is of other sources than this version's, in which this kernel is "
            f"{kernel_id(key, arch)}"
        )
    return key


def instantiation(key: CompileKey) -> str:
    """The translation unit of a compile key."""
    dma, math = ROLE_REGISTERS[key.math_warpgroups] if key.register_split else (0, 0)
    a_is_k_major, b_is_k_major = is_k_major(key.layout)
    return (
        '#include "sm90_gemm.cuh"\n'
        f"WARPWRIGHT_SM90_GEMM({ELEMENTS[key.dtype]}, {a_is_k_major:d}, {b_is_k_major:d}, "
        f"{key.tile_m}, {key.tile_n}, {key.tile_k}, {key.math_warpgroups}, {dma}, {math}, "
        f"{key.mma_in_flight})\n"
    )


def commit() -> str | None:
    """The commit of the project's own checkout; None where this is no checkout."""
    here = Path(__file__).resolve().parents[1]
    if not (here / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
