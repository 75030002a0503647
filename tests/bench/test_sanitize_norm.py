"""What of norm_activation is launched under compute-sanitizer, without a GPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from bench.cover import tally
from bench.gpu_sanitize import TOOLS
from bench.norm_branches import AXES, MEETINGS, SCOPES, branches_of, clean_plans, scope_of
from bench.sanitize_norm import PLANTS, SUITE
from kernels.inputs import normal
from kernels.norm.compile import build_norm, compile_key, headers
from kernels.norm.numerics import NormFinding, check
from kernels.norm.reference import expected
from kernels.sources import ARCH
from solver.device import load_profile
from solver.families.norm_activation_legality import check_legal
from tests.kernels.norm_emulator import Emulated
from tests.kernels.test_norm import placed

PATCHED = [name for name, plant in PLANTS.items() if plant.patch is not None]
RACES = [name for name, plant in PLANTS.items() if plant.tool == "racecheck"]
H200 = load_profile("h200")


def test_every_tool_has_legal_plants_in_every_scope() -> None:
    assert {(p.tool, p.scope) for p in PLANTS.values()} == {(t, s) for t in TOOLS for s in SCOPES}
    assert set(SUITE.parts) == set(SCOPES)
    for plant in PLANTS.values():
        check_legal(plant.problem, plant.config, H200)
        assert (plant.patch is None) == (plant.tool in ("memcheck", "initcheck"))
        assert bool(plant.short) == (plant.tool == "memcheck")
        assert bool(plant.unwritten) == (plant.tool == "initcheck")


@pytest.mark.parametrize("name", PATCHED)
def test_a_patch_changes_the_kernel_and_it_still_compiles(name: str) -> None:
    plant = PLANTS[name]
    assert plant.patch is not None
    key = compile_key(plant.problem, plant.config)
    planted = build_norm(key, ARCH, patched=plant.patch.applied(headers()))
    assert planted.cubin != build_norm(key, ARCH).cubin


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("name", RACES)
def test_a_planted_race_is_one_and_its_launch_ends_whatever_its_order(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant = PLANTS[name]
    assert plant.patch is not None
    patched = plant.patch.applied(headers())
    monkeypatch.setattr("tests.kernels.norm_emulator.headers", lambda: patched)
    emulated = Emulated(compile_key(plant.problem, plant.config), tmp_path)
    problem, plan = plant.problem, plant.plan
    x, y = (placed(np.uint32, problem.rows, problem.width) for _ in range(2))
    scale, shift = (placed(np.uint32, 1, problem.width) for _ in range(2))
    for stream, array in enumerate((x, scale, shift)):
        normal(np, *array.shape, problem.dtype, 7, stream, out=array)
    block = plan.arguments(*(array.ctypes.data for array in (x, scale, shift, y)))
    finding = NormFinding()
    for seed in range(4):
        assert emulated.run(block, plan.grid, plan.threads, plan.smem_bytes, seed) == ""
        check(np, finding, y, expected(np, x, scale, shift, problem), problem.dtype)
    assert finding.wrong


def test_clean_launches_of_every_scope_take_its_branches_and_all_together_take_all() -> None:
    every = [plan for scope in SCOPES for plan in clean_plans(scope)]
    counts = tally(map(branches_of, every))
    assert set(counts) == {f"{axis}={value}" for axis, values in AXES.items() for value in values}
    assert {axis for axes in MEETINGS for axis in axes} <= set(AXES)
    for scope in SCOPES:
        taken = [branches_of(plan) for plan in clean_plans(scope)]
        assert {scope_of(plan.config) for plan in clean_plans(scope)} == {scope}
        for axis in ("dtype", "norm", "activation", "degree", "rows", "last"):
            assert {branches[axis] for branches in taken if axis in branches} == set(AXES[axis])
    for kind, fills in (("ring", {"bulk", "async"}), ("specialised", set(SCOPES) - {"rows"})):
        assert {scope_of(p.config) for p in every if p.config.kind == kind and p.grid} == fills


def test_clean_launches_are_legal_small_and_the_same_every_time() -> None:
    for scope in SCOPES:
        plans = clean_plans(scope)
        assert len(plans) <= 40
        assert clean_plans.__wrapped__(scope) == plans
        for plan in plans:
            check_legal(plan.problem, plan.config, H200)
            assert plan.problem.rows * plan.problem.width <= 1 << 16
            assert (plan.grid == 0) == (plan.problem.rows == 0)


def test_what_is_compiled_first_is_all_that_is_launched_unpatched() -> None:
    keys = set(SUITE.keys())
    launched = [(p.problem, p.config) for scope in SCOPES for p in clean_plans(scope)]
    launched += [(p.problem, p.config) for p in PLANTS.values() if p.patch is None]
    assert keys == {compile_key(problem, config) for problem, config in launched}
