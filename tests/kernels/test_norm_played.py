"""norm_activation's kernels, compiled as C++ and played on the CPU thread by thread."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.bits import bits_type, poison
from kernels.cache import KernelCache
from kernels.inputs import normal
from kernels.norm.compile import (
    compile_key,
    compile_norm,
    headers,
)
from kernels.norm.numerics import REL_ERROR_LIMIT, NormFinding, check
from kernels.norm.plan import plan_norm
from kernels.norm.reference import expected
from solver.device import DeviceProfile, load_profile
from solver.families.norm_activation import NormConfig, NormProblem
from tests.kernels.norm_emulator import Emulated
from tests.kernels.norm_forms import BULK, ROWS, SPLIT

PLAYED = (
    (ROWS, NormConfig("plain", 4, vector_bytes=4, hold="reload")),
    (NormProblem(21, 33, "bf16", "rms", "gelu"), NormConfig("strong", 4, team=2, vector_bytes=2)),
    (NormProblem(21, 33, "fp16", "layer", "gelu_tanh"), NormConfig("strong", 4, vector_bytes=2)),
    (ROWS, BULK),
    (ROWS, dataclasses.replace(BULK, producers=2, copies="async", groups=4, team=1)),
    (
        NormProblem(67, 128, "bf16", "layer", "poly", 13),
        dataclasses.replace(
            BULK, consumers=6, producers=2, copies="vector", barrier="named", groups=1, team=1
        ),
    ),
    (
        NormProblem(9, 2048, "fp32", "layer", "gelu"),
        dataclasses.replace(BULK, groups=1, team=4, depth=4, hold="shared", stores="bulk"),
    ),
    (
        NormProblem(9, 2048, "fp16", "rms", "poly", 3),
        dataclasses.replace(
            BULK,
            groups=2,
            team=2,
            depth=2,
            chunk_bytes=1024,
            hold="reload",
            kind="ring",
            producers=0,
        ),
    ),
    (
        NormProblem(9, 2048, "fp32", "layer", "silu"),
        dataclasses.replace(BULK, kind="ring", producers=0, copies="async", groups=1, team=4),
    ),
    (ROWS, dataclasses.replace(SPLIT, rounds=2)),
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> KernelCache:
    return KernelCache(tmp_path_factory.mktemp("norm"))


@pytest.fixture(scope="module")
def h200() -> DeviceProfile:
    return load_profile("h200")


def placed(kind: Any, rows: int, width: int) -> Any:
    """Elements that start on 16 bytes, poisoned."""
    size = kind().itemsize
    raw = np.empty(rows * width * size + 16, np.uint8)
    first = -raw.ctypes.data % 16
    bits = raw[first : first + rows * width * size].view(kind).reshape(rows, width)
    bits.fill(poison(bits))
    return bits


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(
    ("problem", "config"), PLAYED, ids=lambda x: x.kind if isinstance(x, NormConfig) else None
)
def test_a_kernel_played_on_the_cpu_is_right_in_any_order_of_its_threads(
    problem: NormProblem,
    config: NormConfig,
    cache: KernelCache,
    h200: DeviceProfile,
    tmp_path: Path,
) -> None:
    kernel = compile_norm(compile_key(problem, config), h200.arch, cache)
    plan = plan_norm(problem, config, kernel, h200, 2)
    kind = bits_type(np, problem.dtype)
    x, y = (placed(kind, problem.rows, problem.width) for _ in range(2))
    scale, shift = (placed(kind, 1, problem.width) for _ in range(2))
    for stream, array in enumerate((x, scale, shift)):
        normal(np, *array.shape, problem.dtype, 7, stream, out=array)
    block = plan.arguments(*(array.ctypes.data for array in (x, scale, shift, y)))
    emulated = Emulated(kernel.key, tmp_path)
    for seed in range(3):
        y.fill(poison(y))
        # Few blocks, so that rings go round: persistent kernels are right with any number.
        grid = plan.grid if config.rounds else min(plan.grid, 2)
        assert emulated.run(block, grid, plan.threads, plan.smem_bytes, seed) == ""
        finding = NormFinding(rel_limit=REL_ERROR_LIMIT[problem.dtype])
        check(np, finding, y, expected(np, x, scale, shift, problem), problem.dtype)
        assert finding.right, finding


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_launch_that_contradicts_its_kernel_traps(
    cache: KernelCache, h200: DeviceProfile, tmp_path: Path
) -> None:
    kernel = compile_norm(compile_key(ROWS, BULK), h200.arch, cache)
    plan = plan_norm(ROWS, BULK, kernel, h200, 2)
    emulated = Emulated(kernel.key, tmp_path)
    block = plan.arguments(16, 16, 16, 16)
    for field, value in (("width", 1024), ("width", 255), ("depth", 0), ("depth", 4)):
        assert value != block[field][0]
        wrong = block.copy()
        wrong[field] = value
        assert emulated.run(wrong, 1, plan.threads, plan.smem_bytes, 0) == "trap"
    wrong = block.copy()
    wrong["chunks_per_unit"] = 2
    assert emulated.run(wrong, 1, plan.threads, plan.smem_bytes, 0) == "trap"
    assert emulated.run(block, 1, plan.threads + 32, plan.smem_bytes, 0) == "trap"
    assert emulated.run(block, 1, plan.threads, plan.smem_bytes - 1, 0) == "trap"


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("ring.give_back(group, at, read + args.depth < total);", "", "deadlock"),
        ("wait(empty(group, at), at.parity() ^ 1);", "", "wrong|beyond"),
        ("wait(full(group, at), at.parity());", "", "wrong"),
        ("wait(full(group, at), at.parity());", "wait(full(group, at), 0);", "wrong|deadlock"),
        ("if (threadIdx.x % kWarp == 0) arrive(empty", "arrive(empty", "beyond|deadlock"),
        ("arrive(empty(group, at));", "if (at.slot) arrive(empty(group, at));", "deadlock"),
    ],
)
def test_a_planted_fault_shows_when_a_kernel_is_played(
    monkeypatch: pytest.MonkeyPatch,
    cache: KernelCache,
    h200: DeviceProfile,
    tmp_path: Path,
    old: str,
    new: str,
    words: str,
) -> None:
    planted = {name: text.replace(old, new) for name, text in headers().items()}
    assert planted != headers()
    monkeypatch.setattr("tests.kernels.norm_emulator.headers", lambda: planted)
    test = test_a_kernel_played_on_the_cpu_is_right_in_any_order_of_its_threads
    with pytest.raises(AssertionError, match=words):
        test(ROWS, BULK, cache, h200, tmp_path)
