"""Kernels and their launches to take home, the same over HTTP and on the command line."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from app import answers
from app.strict_json import dump
from kernels.compile import compile_kernel
from kernels.export.bundle import RECIPE, Export, gemm_module, make_export
from kernels.launch_plan import ENTRY
from kernels.sources import ARCH, kernel_id, key_of
from solver.config import Config
from solver.device import load_profile
from solver.errors import InvalidInput
from solver.families import sm90_gemm
from solver.problem import Problem


def export(problem: Problem, config: Config | None, device: str) -> Export:
    """The launch of a configuration, else of the pick.

    Raises what ``answers.simulate`` and ``kernels.export.bundle.make_export`` raise.
    """
    chosen = Config.from_dict(answers.choose(problem, config, device)["config"])
    return make_export(problem, chosen, load_profile(device))


def encoded_kernel(
    name: str, launch: tuple[Problem, Config | None, str] | None
) -> tuple[bytes, bytes]:
    """The body of ``/v1/kernels/{name}`` as it is sent, and its entity tag.

    ``launch``: the problem, the configuration (None: the pick) and the device of the launch that
    is wanted beside the kernel. Raises UnknownKernel for an id that no kernel has, InvalidInput
    where the launch is illegal or another kernel's.
    """
    key = key_of(name)
    recipe: Mapping[str, Any] | None = None
    if launch is None:
        module = gemm_module(compile_kernel(key))
        files = module.files
        about = module.about
    else:
        problem, config, device = launch
        chosen = Config.from_dict(answers.choose(problem, config, device)["config"])
        other = sm90_gemm.compile_key(chosen, problem.dtype, problem.kernel_layout)
        if other != key:
            whose = "the pick" if config is None else "this configuration"
            raise InvalidInput(
                "config", f"must be of the kernel {name}; for {whose} it is {kernel_id(other)}"
            )
        made = make_export(problem, chosen, load_profile(device))
        files = {file: content for file, content in made.files.items() if file != RECIPE}
        recipe, about = made.recipe, made.modules[0].about
    body = dump(
        {
            "id": name,
            "arch": ARCH,
            "entry": ENTRY,
            **about,
            "files": {file: _file(content) for file, content in files.items()},
            "recipe": recipe,
        }
    )
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode()


def _file(content: bytes) -> dict[str, Any]:
    """A file's content in JSON: its text, or base64 where it is none."""
    try:
        text, encoding = content.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(content).decode(), "base64"
    return {
        "encoding": encoding,
        "content": text,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
