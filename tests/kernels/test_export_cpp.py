"""The C++ program of an export: what it compiles to makes the launch plan's launches."""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.copy_plan import LINES, copy_blocks, copy_jobs
from kernels.export.cpp import example_source
from kernels.export.recipe import launch_recipe
from kernels.launch_plan import ARGUMENTS, plan_launch
from solver.config import Config
from solver.device import load_profile
from solver.problem import Problem
from tests.kernels.exports import LAUNCHES
from tests.kernels.test_export_recipe import map_of

DEVICE = load_profile("h200")
STUB = Path(__file__).with_name("driver_stub.cpp")
MODULES = {name: {"cubins": {"sm_90a": f"{name}.cubin"}} for name in ("gemm", "copies")}


def header_folder() -> Path:
    """Where the toolkit's headers are, which come with its runtime's wheel."""
    packages = Path(sysconfig.get_path("purelib"))
    found = [path.parent for path in packages.glob("nvidia/*/include/cuda.h")]
    if not found or shutil.which("g++") is None:
        pytest.skip("g++ or CUDA's headers are not installed")
    return found[0]


def built(folder: Path, problem: Problem, config: Config, *defined: str) -> Path:
    """The program, compiled with a driver of our own; cubins beside it are empty files."""
    include = header_folder()
    recipe = {**launch_recipe(problem, config, DEVICE), "modules": MODULES}
    (folder / "example.cpp").write_text(example_source(recipe))
    for name in MODULES:
        (folder / f"{name}.cubin").touch()
    program = folder / "example"
    words = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{include}"]
    macros = [f"-D{name}" for name in (f"COPY_BYTES={LINES.itemsize}", *defined)]
    files = [str(folder / "example.cpp"), str(STUB)]
    done = subprocess.run(
        [*words, *macros, "-o", str(program), *files], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.parametrize("name", ["cluster", "split_k", "copies"])
def test_the_program_makes_the_plans_launches(tmp_path: Path, name: str) -> None:
    problem, config = LAUNCHES[name]
    program = built(tmp_path, problem, config)
    run = subprocess.run([program, tmp_path], capture_output=True, text=True, timeout=60)
    *lines, last = run.stdout.splitlines()
    # The driver of this test multiplies nothing, and the program sees that.
    assert (run.returncode, last.endswith("elements are wrong")) == (1, True), run.stderr
    launches: list[Any] = [json.loads(line) for line in lines]
    plan = plan_launch(problem, config, DEVICE)
    gemm = launches[-1]
    block = np.frombuffer(bytes.fromhex(gemm["parameters"][3]), ARGUMENTS)
    c, workspace, counters = (int(block[x][0]) for x in ("c", "workspace", "counters"))
    assert block.tobytes() == plan.arguments(c, workspace, counters).tobytes()
    assert (workspace != 0, counters != 0) == (plan.config.split_k > 1, plan.config.split_k > 1)
    assert c % 16 == problem.c.offset * problem.c.element_bytes
    bases = [map_given[2] for map_given in gemm["parameters"][:3]]
    boxes = [plan.a.box, plan.b.box, plan.a.box if plan.c is None else plan.c]
    assert gemm["parameters"][:3] == [map_of(*pair) for pair in zip(boxes, bases, strict=True)]
    assert plan.c is None or bases[2] == c
    assert (gemm["grid"], gemm["block"], gemm["smem"]) == (plan.grid, plan.threads, plan.smem_bytes)
    assert (bool(gemm["overlaps"]), gemm["cluster"]) == (plan.overlaps, plan.cluster)
    assert len(launches) == 1 + (plan.a.copied or plan.b.copied)
    if len(launches) == 2:
        jobs = [np.frombuffer(bytes.fromhex(x), LINES) for x in launches[0]["parameters"]]
        a, b = (int(job["from"][0]) for job in jobs)
        wanted = copy_jobs(plan, a, b, *bases[:2])
        assert [job.tobytes() for job in jobs] == [job.tobytes() for job in wanted]
        assert [a % 16, b % 16] == [2 * x.offset for x in (problem.a, problem.b)]
        assert launches[0]["grid"] == copy_blocks(plan)


@pytest.mark.parametrize("name", ["plain", "two_ctas_of_an_sm"])
def test_the_program_finds_a_right_product_right(tmp_path: Path, name: str) -> None:
    program = built(tmp_path, *LAUNCHES[name], "MULTIPLIES")
    run = subprocess.run([program, tmp_path], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines()[-1].startswith("0 of ")


def test_a_missing_cubin_is_named(tmp_path: Path) -> None:
    program = built(tmp_path, *LAUNCHES["plain"])
    run = subprocess.run([program, "/nowhere"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert "cuModuleLoad" in run.stderr
