"""A recipe says of a launch what the launch plan says, to a program that knows the recipe alone."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels.bits import from_float32, to_float32
from kernels.copy_plan import copy_blocks, copy_jobs
from kernels.export import follow
from kernels.export.bundle import FOLLOW, RECIPE, follow_source, make_export
from kernels.export.recipe import launch_recipe
from kernels.launch_plan import Box, LaunchPlan, TileLoad, plan_launch
from solver.config import Config
from solver.device import load_profile
from solver.errors import IllegalConfig
from solver.problem import Problem
from tests.kernels.exports import LAUNCHES, SMALL

DEVICE = load_profile("h200")
NAMED = [pytest.param(*launch, id=name) for name, launch in LAUNCHES.items()]
ENUMS = {"bf16": 9, "fp16": 6, "fp32": 7}  # CUtensorMapDataType in cuda.h
SWIZZLES = {16: 0, 32: 1, 64: 2, 128: 3}


def followed(folder: Path, problem: Problem, config: Config) -> Any:
    """What the program of an export makes of its recipe in a process that has none of our code."""
    (folder / FOLLOW).write_text(follow_source())
    recipe = {**launch_recipe(problem, config, DEVICE), "modules": {}}
    (folder / RECIPE).write_text(json.dumps(recipe))
    none_of_ours = "import sys; sys.modules.update(app=None, kernels=None, solver=None);"
    run = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            f"{none_of_ours} import runpy; sys.argv = ['{FOLLOW}', '.', '--print'];"
            f"runpy.run_path('{FOLLOW}', run_name='__main__')",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def map_of(box: Box, base: int) -> list[Any]:
    """The arguments of cuTensorMapEncodeTiled, as kernels.tensor_map has them."""
    return [
        ENUMS[box.dtype],
        2,
        base,
        [box.columns, box.rows],
        [box.row_bytes],
        [box.box_columns, box.box_rows],
        [1, 1],
        0,
        SWIZZLES[box.swizzle_bytes],
        2,
        0,
    ]


def base_of(load: TileLoad, name: str, at: dict[str, int]) -> int:
    return at[f"{name}_copy"] if load.copied else at[name]


def held(plan: LaunchPlan, said: Any) -> None:
    """Every launch that the program was about to make is the plan's."""
    at, launches = said["addresses"], said["launches"]
    gemm = launches[-1]
    map_a = map_of(plan.a.box, base_of(plan.a, "a", at))
    map_b = map_of(plan.b.box, base_of(plan.b, "b", at))
    map_c = map_a if plan.c is None else map_of(plan.c, at["c"])
    block = plan.arguments(at["c"], at.get("workspace", 0), at.get("counters", 0))
    assert gemm["parameters"] == [map_a, map_b, map_c, block.tobytes().hex()]
    assert (gemm["entry"], gemm["grid"]) == ("sm90_gemm", [plan.grid, 1, 1])
    assert (gemm["block"], gemm["cluster"]) == ([plan.threads, 1, 1], [plan.cluster, 1, 1])
    assert gemm["dynamic_smem_bytes"] == plan.smem_bytes
    attributes = gemm["launch_attributes"]
    overlaps = "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION" in attributes
    assert overlaps == plan.overlaps
    shape = attributes.get("CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION", [1, 1, 1])
    assert shape == [plan.cluster, 1, 1]
    if plan.a.copied or plan.b.copied:
        copies, addresses = launches[0], [at.get(n, 0) for n in ("a", "b", "a_copy", "b_copy")]
        jobs = copy_jobs(plan, *addresses)
        assert copies["parameters"] == [job.tobytes().hex() for job in jobs]
        assert copies["grid"] == [copy_blocks(plan), 1, 1]
    assert len(launches) == 1 + (plan.a.copied or plan.b.copied)


@pytest.mark.parametrize(("problem", "config"), NAMED)
def test_who_follows_a_recipe_is_about_to_make_the_plans_launch(
    tmp_path: Path, problem: Problem, config: Config
) -> None:
    held(plan_launch(problem, config, DEVICE), followed(tmp_path, problem, config))


def test_the_launches_differ_in_all_that_a_recipe_tells() -> None:
    plans = [plan_launch(*launch, DEVICE) for launch in LAUNCHES.values()]
    assert {(plan.a.copied, plan.b.copied) for plan in plans} >= {
        (False, False),
        (True, True),
        (False, True),
    }
    for told in ("overlaps", "c_by_tma", "workspace_bytes"):
        assert {bool(getattr(plan, told)) for plan in plans} == {True, False}
    assert {plan.cluster for plan in plans} == {1, 2}


@pytest.mark.parametrize(("problem", "config"), NAMED)
def test_operands_lie_where_the_problem_says(problem: Problem, config: Config) -> None:
    operands = launch_recipe(problem, config, DEVICE)["operands"]
    for name, matrix in (("a", problem.a), ("b", problem.b), ("c", problem.c)):
        said = operands[name]
        memory = np.arange(said["bytes"] // said["element_bytes"])
        view = np.lib.stride_tricks.as_strided(
            memory, said["shape"], [x * memory.itemsize for x in said["element_strides"]]
        )
        assert view[0, 0] == 0
        assert view[-1, -1] == matrix.elements - 1
        assert said["address_modulo_16"] == matrix.offset * matrix.element_bytes


def test_an_illegal_configuration_has_no_recipe() -> None:
    with pytest.raises(IllegalConfig):
        launch_recipe(Problem(8, 8, 8), SMALL, DEVICE)


def test_an_export_names_its_files_and_their_hashes() -> None:
    export = make_export(*LAUNCHES["copies"], DEVICE)
    modules = export.recipe["modules"]
    assert set(modules) == {"gemm", "copies"}
    named = [name for module in modules.values() for name in module["sha256"]]
    assert set(named) | {"example.cpp", "follow.py", "settings.json", "recipe.json"} == set(
        export.files
    )
    assert list(export.files)[-1] == RECIPE
    assert json.loads(export.files[RECIPE]) == export.recipe
    assert make_export(*LAUNCHES["copies"], DEVICE).files == export.files


class OnHost(np.ndarray[Any, Any]):
    """An array that has its address as CuPy's have."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.ctypes.data)


def full(size: int, value: int, dtype: Any) -> OnHost:
    memory = np.full(size + 512, value, dtype)
    first = -memory.ctypes.data % 512
    return memory[first : first + size].view(OnHost)


def as_strided(array: Any, shape: Any, strides: Any) -> Any:
    return np.lib.stride_tricks.as_strided(array, shape, strides, subok=True)


class Stream(SimpleNamespace):
    """A stream that may be the current one."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


CUPY = SimpleNamespace(
    full=full,
    asarray=np.asarray,
    asnumpy=lambda array: np.array(array),
    lib=SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided)),
    cuda=SimpleNamespace(
        Stream=lambda non_blocking: Stream(ptr=0),
        runtime=SimpleNamespace(
            free=lambda _: None, getDeviceProperties=lambda _: {"name": b"none"}
        ),
    ),
)


@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize(("problem", "config"), NAMED)
def test_the_program_counts_wrong_elements(
    monkeypatch: pytest.MonkeyPatch, problem: Problem, config: Config, wrong: int
) -> None:
    recipe = launch_recipe(problem, config, DEVICE)

    class Played:
        """A launch on the host; ``wrong`` elements of C are another's."""

        def __init__(self, launch: Any, modules: Any, addresses: dict[str, int]) -> None:
            self.multiplies = launch["entry"] == "sm90_gemm"
            self.at = addresses

        def matrix(self, name: str) -> Any:
            said = recipe["operands"][name]
            kind = ctypes.c_uint32 if said["element_bytes"] == 4 else ctypes.c_uint16
            count = said["bytes"] // said["element_bytes"]
            memory = np.ctypeslib.as_array((kind * count).from_address(self.at[name]))
            strides = [x * memory.itemsize for x in said["element_strides"]]
            return np.lib.stride_tricks.as_strided(memory, said["shape"], strides)

        def enqueue(self, stream: int) -> None:
            if not self.multiplies:
                return
            a, b = (to_float32(np, self.matrix(x).copy(), problem.dtype) for x in "ab")
            c = self.matrix("c")
            c[...] = from_float32(np, a @ b, problem.out)
            c[0, :wrong] ^= 1

    monkeypatch.setitem(sys.modules, "cupy", CUPY)
    monkeypatch.setattr(follow, "Launch", Played)
    monkeypatch.setattr(follow, "load_modules", lambda *_: {})
    found = follow.run(Path(), recipe)
    assert found["wrong"] == 2 * wrong
    assert found["elements"] == 2 * min(problem.m, follow.ROWS_CHECKED) * problem.n


def test_the_program_says_that_it_has_no_gpu(tmp_path: Path) -> None:
    pytest.importorskip("cupy")
    (tmp_path / FOLLOW).write_text(follow_source())
    recipe = {**launch_recipe(*LAUNCHES["plain"], DEVICE), "modules": {}}
    (tmp_path / RECIPE).write_text(json.dumps(recipe))
    run = subprocess.run(
        [sys.executable, FOLLOW],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert run.returncode == 1
    assert run.stderr.startswith("no GPU can be used: cudaError")
    assert len(run.stderr.splitlines()) == 1


def test_limits_speak_of_buffers_where_there_are_some() -> None:
    for problem, config in LAUNCHES.values():
        recipe = launch_recipe(problem, config, DEVICE)
        said = "launches in one stream may share its buffers" in " ".join(recipe["limits"])
        assert said is bool(recipe["buffers"])
        assert not any("may share nothing" in words for words in recipe["limits"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "can't be read as a recipe: "),
        ("{", "can't be read as a recipe: "),
        ("\xff", "can't be read as a recipe: "),
        ("[]", "has the format None; this knows warpwright-launch-1"),
        ('{"format": "warpwright-launch-9"}', "has the format 'warpwright-launch-9'"),
    ],
)
def test_the_program_says_what_is_no_recipe(
    tmp_path: Path, content: str | None, words: str
) -> None:
    file = tmp_path / RECIPE
    if content is not None:
        file.write_text(content, "latin-1")
    with pytest.raises(SystemExit) as left:
        follow.read_recipe(file)
    assert str(left.value).startswith(f"{file} {words}")


def test_the_program_loads_the_recipes_own_cubins_alone(tmp_path: Path) -> None:
    about = {"cubins": {"sm_90a": "gemm.cubin"}, "sha256": {"gemm.cubin": "0" * 64}}
    recipe = {"arch": "sm_90a", "modules": {"gemm": about}}
    with pytest.raises(SystemExit, match=r"gemm\.cubin can't be read: No such file"):
        follow.load_modules(tmp_path, recipe)
    (tmp_path / "gemm.cubin").write_bytes(b"another")
    with pytest.raises(SystemExit, match=r"gemm\.cubin is not the recipe's"):
        follow.load_modules(tmp_path, recipe)
