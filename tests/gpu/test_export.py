"""An export, followed in a fresh process that has none of our code, gives the right product."""

from __future__ import annotations

import ctypes.util
import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from kernels.export.bundle import FOLLOW, make_export
from solver.device import load_profile
from solver.pick import best_rows
from solver.problem import Problem
from solver.space import tabulate
from tests.kernels.exports import LAUNCHES

PICKS = [
    Problem(4096, 4096, 4096),
    Problem(1, 4096, 4096, "fp16"),
    Problem(16, 7168, 2048, layout="tt"),
    Problem(333, 777, 1234, layout="nn", out_dtype="fp32", a_offset=1, c_offset=1),
]
NONE_OF_OURS = f"""
import runpy, sys
sys.modules.update(app=None, kernels=None, solver=None)
sys.argv = ["{FOLLOW}", "."]
runpy.run_path("{FOLLOW}", run_name="__main__")
"""


def exported(folder: Path, device: str, problem: Problem, config: Any = None) -> Path:
    profile = load_profile(device)
    chosen = config or best_rows(tabulate(problem, profile, "calibrated"))[0].config
    for name, content in make_export(problem, chosen, profile).files.items():
        (folder / name).write_bytes(content)
    return folder


def follow(folder: Path) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-I", "-c", NONE_OF_OURS],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_recipe_that_is_followed_literally_gives_the_right_product(
    tmp_path: Path, device: str, name: str
) -> None:
    found = follow(exported(tmp_path, device, *LAUNCHES[name]))
    assert found["wrong"] == 0
    assert found["elements"] > 0


@pytest.mark.parametrize("problem", PICKS)
def test_a_picks_recipe_gives_the_right_product(
    tmp_path: Path, device: str, problem: Problem
) -> None:
    assert follow(exported(tmp_path, device, problem))["wrong"] == 0


def compile_words() -> list[str]:
    """How a C++ program of the driver API is built here."""
    if shutil.which("nvcc"):
        return ["nvcc", "-o", "example", "example.cpp", "-lcuda"]
    include = [*Path(sysconfig.get_path("purelib")).glob("nvidia/*/include/cuda.h")]
    library = ctypes.util.find_library("cuda")
    if not include or library is None or shutil.which("g++") is None:
        pytest.skip("neither nvcc nor g++ with CUDA's headers is installed")
    return [
        *("g++", "-std=c++17", "-o", "example", "example.cpp"),
        *(f"-I{include[0].parent}", f"-l:{library}"),
    ]


@pytest.mark.parametrize("name", ["plain", "cluster", "split_k", "copies"])
def test_the_cpp_program_gives_the_right_product(tmp_path: Path, device: str, name: str) -> None:
    folder = exported(tmp_path, device, *LAUNCHES[name])
    built = subprocess.run(compile_words(), cwd=folder, capture_output=True, text=True, timeout=240)
    assert built.returncode == 0, built.stderr
    run = subprocess.run(["./example"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("0 of ")
