"""The files of an export: what ``warpwright export`` writes and ``/v1/kernels/{id}`` answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from kernels import nvrtc
from kernels.compile import CompiledKernel, check_compiled, compile_copies, compile_kernel
from kernels.export.cpp import example_source
from kernels.export.recipe import COPIES, GEMM, launch_recipe
from kernels.export.source import copies_source, kernel_source
from kernels.settings.cutlass import cutlass_settings
from kernels.settings.triton import triton_settings
from kernels.sources import ARCH, copy_hash, options
from solver.config import Config
from solver.device import DeviceProfile
from solver.families import sm90_gemm as family
from solver.families.sm90_gemm import CompileKey
from solver.problem import Problem

RECIPE, EXAMPLE, FOLLOW = "recipe.json", "example.cpp", "follow.py"
SETTINGS = "settings.json"
SOURCES = {GEMM: "gemm.cu", COPIES: "copies.cu"}


def cubin_name(module: str, arch: str) -> str:
    """The file that a module's cubin is in."""
    return f"{module}.{arch}.cubin"


@dataclass(frozen=True, slots=True)
class Module:
    """A compiled unit to take home: its source as one file, its cubins by architecture."""

    name: str
    source: str
    cubins: Mapping[str, bytes]
    about: Mapping[str, Any]

    @property
    def files(self) -> dict[str, bytes]:
        """File names and contents."""
        cubins = {cubin_name(self.name, arch): cubin for arch, cubin in self.cubins.items()}
        return {SOURCES[self.name]: self.source.encode(), **cubins}

    def to_dict(self) -> dict[str, Any]:
        """What a recipe says of it."""
        return {
            "source": SOURCES[self.name],
            "cubins": {arch: cubin_name(self.name, arch) for arch in self.cubins},
            "sha256": {name: _sha256(content) for name, content in self.files.items()},
            **self.about,
        }


def gemm_module(compiled: CompiledKernel) -> Module:
    """A compiled key."""
    about = {
        "compiler": f"NVRTC {compiled.nvrtc}",
        "options": list(options(compiled.arch)),
        "source_hash": compiled.source_hash,
        "registers_per_thread": compiled.registers,
    }
    source = kernel_source(compiled.key, compiled.arch)
    return Module(GEMM, source, {compiled.arch: compiled.cubin}, about)


def copies_module() -> Module:
    """The kernels that make aligned copies of operands."""
    about = {
        "compiler": f"NVRTC {nvrtc.version()}",
        "options": list(options(ARCH)),
        "source_hash": copy_hash(ARCH),
    }
    return Module(COPIES, copies_source(ARCH), {ARCH: compile_copies(ARCH)}, about)


@dataclass(frozen=True, slots=True)
class Export:
    """A launch to take home. ``recipe`` names the files of ``modules`` as its own."""

    recipe: Mapping[str, Any]
    modules: tuple[Module, ...]

    @property
    def example(self) -> str:
        """The C++ program."""
        return example_source(self.recipe)

    @property
    def files(self) -> dict[str, bytes]:
        """File names and contents, the recipe last: where it is, all else is."""
        files: dict[str, bytes] = {}
        for module in self.modules:
            files |= module.files
        problem = Problem(**self.recipe["problem"])
        config = Config.from_dict(self.recipe["config"])
        settings = {
            "cutlass": cutlass_settings(problem, config),
            "triton": triton_settings(config),
        }
        return {
            **files,
            EXAMPLE: self.example.encode(),
            FOLLOW: follow_source().encode(),
            SETTINGS: _json(settings),
            RECIPE: _json(self.recipe),
        }


@cache
def follow_source() -> str:
    """The Python program that follows a recipe."""
    return resources.files("kernels").joinpath("export", "follow.py").read_text("utf-8")


def make_export(problem: Problem, config: Config, device: DeviceProfile) -> Export:
    """Compile a configuration's kernel and write its launch down.

    Raises IllegalConfig naming the first limit that is broken, CompilerAbsent, CompileFailed, and
    CompilerMismatch where the kernel is not what the solver took it for.
    """
    recipe = launch_recipe(problem, config, device)
    key: CompileKey = family.compile_key(config, problem.dtype, problem.kernel_layout)
    compiled = compile_kernel(key)
    check_compiled(compiled, config, device)
    modules = [gemm_module(compiled)]
    if any(launch["module"] == COPIES for launch in recipe["launches"]):
        modules.append(copies_module())
    return Export(
        {**recipe, "modules": {module.name: module.to_dict() for module in modules}},
        tuple(modules),
    )


def _json(document: Any) -> bytes:
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
