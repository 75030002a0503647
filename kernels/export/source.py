"""A kernel's CUDA source as one file that includes nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernels.sources import (
    ARCH,
    COPIES,
    copy_hash,
    headers,
    instantiation,
    kernel_id,
    options,
    source_hash,
    unit,
)
from solver.families.sm90_gemm import CompileKey

_INCLUDE = re.compile(r'#include "([^"]+)"')
_ONCE = "#pragma once"


def kernel_source(key: CompileKey, arch: str = ARCH) -> str:
    """The translation unit of a compile key, its headers inlined in the order of inclusion.

    What a compiler makes of it is what it makes of the unit with its headers beside it.
    """
    about = (
        f"{kernel_id(key, arch)}: C = alpha*A*B + beta*C on Hopper GPUs, A and B in {key.dtype},",
        f"layout {key.layout}, tiles of {key.tile_m}x{key.tile_n}x{key.tile_k}. The entry is "
        "sm90_gemm; the recipe beside this",
        "file says how it is launched.",
        *_compiled(arch),
        f"SHA-256 of Warpwright's sources and options: {source_hash(arch)}",
    )
    return _comment(about) + _inlined(instantiation(key), headers())


def copies_source(arch: str = ARCH) -> str:
    """The kernels that make aligned copies of operands, a unit that includes nothing as it is."""
    about = (
        "copy_operands: aligned copies of operands that TMA can't take, made before a launch of",
        "sm90_gemm where its recipe says so.",
        *_compiled(arch),
        f"SHA-256 of Warpwright's sources and options: {copy_hash(arch)}",
    )
    return _comment(about) + unit(COPIES)


def _compiled(arch: str) -> tuple[str, ...]:
    return (
        f"Compiled by NVRTC with {' '.join(options(arch))}, which is",
        f"nvcc -cubin -arch={arch} -std=c++17 FILE.cu. Licence: Apache-2.0.",
    )


def _comment(lines: tuple[str, ...]) -> str:
    return "".join(f"// {line}\n" for line in lines) + "\n"


def _inlined(text: str, texts: Mapping[str, str]) -> str:
    seen: set[str] = set()

    def lines_of(text: str) -> list[str]:
        out: list[str] = []
        for line in text.splitlines():
            included = _INCLUDE.fullmatch(line.strip())
            if included is None:
                if line.strip() != _ONCE:
                    out.append(line)
            elif included[1] not in seen:
                seen.add(included[1])
                out += [f"// {included[1]}", "", *lines_of(texts[included[1]]), ""]
        return out

    return "\n".join(lines_of(text)) + "\n"
