"""What of norm_activation is launched under compute-sanitizer, without a GPU."""

from __future__ import annotations

import ctypes
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.cover import tally
from bench.norm_branches import AXES, MEETINGS, SCOPES, branches_of, clean_plans, scope_of
from bench.norm_plants import CONFIGS, MBARRIERS, PLANTS, Plant
from bench.sanitize_norm import SUITE, launch
from bench.sanitize_suite import ROOM_BYTES, TOOLS
from kernels.inputs import normal
from kernels.norm.compile import build_norm, compile_key
from kernels.norm.numerics import NormFinding, check
from kernels.norm.reference import expected
from kernels.norm.ring_launches import small_plan
from kernels.sources import ARCH
from solver.device import load_profile
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_legality import check_legal
from tests.kernels.norm_emulator import Emulated
from tests.kernels.test_norm_played import placed

PATCHED = [name for name, plant in PLANTS.items() if plant.patch is not None]
RACES = [name for name, plant in PLANTS.items() if plant.tool == "racecheck"]
H200 = load_profile("h200")


def test_every_tool_has_legal_plants_in_every_scope() -> None:
    assert {(p.tool, p.scope) for p in PLANTS.values()} == {
        (tool, scope) for scope in SUITE.parts for tool in SUITE.tools_of(scope)
    }
    assert set(SUITE.parts) == {*SCOPES, *SUITE.tools}
    assert all(SUITE.tools_of(scope) == TOOLS for scope in SCOPES)
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
    planted = build_norm(key, ARCH, patched=plant.headers)
    assert planted.cubin != build_norm(key, ARCH).cubin


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("name", RACES)
def test_a_planted_race_is_one_and_its_launch_ends_whatever_its_order(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert played(PLANTS[name], monkeypatch, tmp_path).wrong


def played(plant: Plant, monkeypatch: pytest.MonkeyPatch, folder: Path) -> NormFinding:
    """A plant's launch on the CPU, in several orders."""
    monkeypatch.setattr("tests.kernels.norm_emulator.headers", lambda: plant.headers)
    emulated = Emulated(compile_key(plant.problem, plant.config), folder)
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
    return finding


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("scope", MBARRIERS)
def test_kernels_whose_every_lane_arrives_are_right_too(
    scope: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not played(
        Plant("racecheck", "none", CONFIGS[scope], each_lane=True), monkeypatch, tmp_path
    ).wrong


@dataclass
class FakeMemory:
    """Memory on the host that a fake CuPy gave out, never written where it is 0xAA."""

    host: np.ndarray[Any, Any]

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.host.ctypes.data)


def fake_cupy(given: list[FakeMemory]) -> Any:
    """Of CuPy what allocates, copies to the device and has a stream."""

    def empty(size: int, _kind: object) -> FakeMemory:
        raw = np.full(size + 16, 0xAA, np.uint8)
        first = -raw.ctypes.data % 16
        given.append(FakeMemory(raw[first : first + size]))
        return given[-1]

    def memcpy2d(
        to: int, to_pitch: int, start: int, pitch: int, width: int, lines: int, _way: int
    ) -> None:
        for line in range(lines):
            ctypes.memmove(to + line * to_pitch, start + line * pitch, width)

    stream = SimpleNamespace(ptr=0, synchronize=lambda: None)
    runtime = SimpleNamespace(memcpy2D=memcpy2d)
    cuda = SimpleNamespace(
        set_allocator=lambda _: None, get_current_stream=lambda: stream, runtime=runtime
    )
    return SimpleNamespace(empty=empty, uint8=np.uint8, cuda=cuda)


@pytest.mark.parametrize("width", [33, 1024])
@pytest.mark.parametrize(("short", "unwritten"), [("", ""), ("x", ""), ("scale", ""), ("", "x")])
def test_a_launch_is_on_memory_that_ends_with_its_arrays_and_is_written_nowhere_else(
    width: int, short: str, unwritten: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[FakeMemory] = []
    launched: dict[str, int] = {}

    def bound(_plan: object, _function: object, *addresses: int) -> Any:
        launched.update(zip(("x", "scale", "shift", "y"), addresses, strict=True))
        return SimpleNamespace(launch=lambda _stream: None)

    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(given))
    monkeypatch.setitem(sys.modules, "kernels.norm.launch", SimpleNamespace(NormLaunch=bound))
    problem = NormProblem(6, width, "bf16", "rms", "silu")
    plan = small_plan(problem, NormConfig("plain", 4, vector_bytes=2, hold="reload"))
    launch(plan, None, short, unwritten)
    rooms, arrays = given[::2], dict(zip(launched, given[1::2], strict=True))
    assert [room.host.size for room in rooms] == [ROOM_BYTES] * 5
    for name, array in arrays.items():
        whole = problem.row_bytes * (6 if name in ("x", "y") else 1)
        there = 3 * problem.row_bytes if name == short == "x" else whole
        there = width // 2 * 2 if name == short == "scale" else there
        assert launched[name] == array.data.ptr + 16
        assert array.host.size == 16 + there
        assert (array.host[:16] == 0xAA).all()
        assert (array.host[16:] == 0xAA).any() == (name in (unwritten, "y"))


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
