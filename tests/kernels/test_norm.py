"""norm_activation without a GPU: what compiles, what a launch needs, what the reference says, and
the kernels themselves played on the CPU."""

from __future__ import annotations

import dataclasses
import math
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels import sources
from kernels.bits import bits_type, from_float32, poison, to_float32
from kernels.cache import KernelCache
from kernels.errors import CompileFailed, CompilerMismatch
from kernels.inputs import normal
from kernels.norm.compile import (
    NormKey,
    build_norm,
    compile_key,
    compile_norm,
    headers,
    instantiation,
    source_hash,
)
from kernels.norm.numerics import REL_ERROR_LIMIT, NormFinding, check
from kernels.norm.plan import ARGUMENTS, NormPlan, plan_norm
from kernels.norm.reference import Expected, activation, coefficients, expected
from solver.device import DeviceProfile, load_profile
from solver.errors import IllegalConfig, InvalidInput
from solver.families import norm_activation_block as block
from solver.families.norm_activation import ACTIVATIONS, NORMS, NormConfig, NormProblem
from solver.families.norm_activation_space import legal_configs
from tests.kernels.norm_emulator import Emulated

SAMPLED = (
    NormProblem(1000, 1024, "fp32", "layer", "poly", 8),
    NormProblem(1000, 4096, "bf16", "layer", "gelu"),
    NormProblem(1000, 4096, "fp16", "rms", "gelu_tanh"),
    NormProblem(1000, 16384, "bf16", "layer", "silu"),
    NormProblem(1000, 1001, "bf16", "layer", "poly", 8),
)
ROWS = NormProblem(90, 256, "fp32", "layer", "silu")
SPLIT = NormConfig(
    "specialised",
    12,
    4,
    groups=12,
    copies="bulk",
    depth=2,
    chunk_bytes=2048,
    rounds=0,
    register_split=1,
)
BULK = NormConfig("specialised", 4, 1, groups=2, team=2, depth=3, chunk_bytes=2048, rounds=0)
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


def sample(name: str, count: int) -> list[tuple[NormProblem, NormConfig]]:
    """Configurations with different kernels, drawn from the legal space of each problem."""
    draw = random.Random(f"norm kernels {name}")
    found = []
    for problem in SAMPLED:
        kernels: dict[NormKey, NormConfig] = {}
        for config in legal_configs(problem, load_profile(name)):
            kernels.setdefault(compile_key(problem, config), config)
        drawn = draw.sample(sorted(kernels, key=lambda key: key.name), count)
        found += [(problem, kernels[key]) for key in drawn]
    return found


@pytest.mark.parametrize("name", ["h200", "a100"])
def test_legal_kernels_compile_without_spills_to_what_plan_and_model_count(name: str) -> None:
    device = load_profile(name)
    off = []
    for problem, config in sample(name, 6):
        kernel = build_norm(compile_key(problem, config), device.arch)
        assert (kernel.spill_bytes, kernel.stack_bytes, kernel.static_smem_bytes) == (0, 0, 0)
        limit = config.register_limit(device.limit("registers_per_sm"))
        assert kernel.registers <= (128 if config.register_split else limit)
        plan = plan_norm(problem, config, kernel, device, device.limit("sms"))
        assert plan.resident_blocks >= config.blocks_per_sm or plan.smem_bytes > 40_000
        assert plan.smem_bytes <= device.limit("smem_per_block_bytes")
        counted = block.launch_registers(problem, config, device.limit("registers_per_sm"))
        off.append(abs(counted / kernel.registers - 1))
    assert np.mean(off) < 0.15


def test_a_register_split_is_launched_with_128_registers(h200: DeviceProfile) -> None:
    kernel = build_norm(compile_key(ROWS, SPLIT), h200.arch)
    assert kernel.registers == 128
    assert "Stream<Fp32, 0, 2, 0, 0, 4, 12, 12, 1, 0, 2, 0, 0, 56, 152>" in instantiation(
        kernel.key
    )


def test_a_kernel_that_spills_is_refused_with_the_bytes(h200: DeviceProfile) -> None:
    key = compile_key(
        NormProblem(1, 2048, "fp32", "layer", "poly", 8), NormConfig("strong", 8, blocks_per_sm=8)
    )
    with pytest.raises(CompileFailed, match=r"spills \d+ bytes"):
        build_norm(key, h200.arch)


def test_a_kernel_comes_back_from_the_cache_as_it_was(
    cache: KernelCache, h200: DeviceProfile
) -> None:
    key = compile_key(ROWS, BULK)
    made = compile_norm(key, h200.arch, cache)
    assert compile_norm(key, h200.arch, cache) == made
    assert len(list((cache.folder / "kernels").iterdir())) == 1


def test_the_families_headers_are_apart() -> None:
    assert not any(name.startswith("norm_") for name in sources.headers())
    assert set(headers()) == {
        "ptx.cuh",
        *(f"norm_{name}.cuh" for name in ("types", "math", "rows", "barrier", "ring", "stream")),
    }
    assert source_hash("sm_90a") != source_hash("sm_80")


def test_the_arguments_are_those_of_the_header(cache: KernelCache, h200: DeviceProfile) -> None:
    text = headers()["norm_types.cuh"]
    struct = text[text.index("struct Args {") : text.index("};", text.index("struct Args {"))]
    lines = [line.partition(";")[0].split() for line in struct.splitlines()[1:] if ";" in line]
    types = {"u32": "<u4", "float": "<f4", "i64": "<i8", "void*": "<u8"}
    assert [(line[-1], types[line[-2]]) for line in lines] == [
        (name, ARGUMENTS[name].str) for name in ARGUMENTS.names or ()
    ]
    kernel = compile_norm(compile_key(ROWS, BULK), h200.arch, cache)
    assert kernel.argument_bytes == ARGUMENTS.itemsize


def test_a_plan_refuses_another_kernel_a_broken_limit_and_a_reserve_that_does_not_fit(
    cache: KernelCache, h200: DeviceProfile
) -> None:
    kernel = compile_norm(compile_key(ROWS, BULK), h200.arch, cache)
    with pytest.raises(CompilerMismatch, match="was not compiled for"):
        plan_norm(ROWS, SPLIT, kernel, h200, 132)
    with pytest.raises(IllegalConfig, match="depth: must be at least 2"):
        plan_norm(ROWS, dataclasses.replace(BULK, depth=1), kernel, h200, 132)
    with pytest.raises(InvalidInput, match="reserved_smem_bytes: must be between 0 and"):
        plan_norm(ROWS, BULK, kernel, h200, 132, reserved_smem_bytes=232448)
    wrong = dataclasses.replace(kernel, fixed_smem_bytes=kernel.fixed_smem_bytes + 16)
    with pytest.raises(CompilerMismatch, match="bytes of shared memory"):
        plan_norm(ROWS, BULK, wrong, h200, 132)
    plan = plan_norm(ROWS, BULK, kernel, h200, 132)
    with pytest.raises(InvalidInput, match="eps: must be between 1e-12 and 1"):
        plan.arguments(16, 16, 16, 16, eps=0.0)


def test_grids_cover_the_rows_and_no_more(cache: KernelCache, h200: DeviceProfile) -> None:
    def plan(problem: NormProblem, config: NormConfig) -> NormPlan:
        kernel = compile_norm(compile_key(problem, config), h200.arch, cache)
        return plan_norm(problem, config, kernel, h200, 132)

    strong = NormConfig("strong", 4, team=2)
    assert plan(dataclasses.replace(ROWS, rows=0), strong).grid == 0
    assert plan(dataclasses.replace(ROWS, rows=7), strong).grid == 4
    assert plan(dataclasses.replace(ROWS, rows=7), BULK).grid == 4  # 2 rows of 1 KiB in a slot
    assert plan(dataclasses.replace(ROWS, rows=10**6), BULK).grid % 132 == 0
    rounds = dataclasses.replace(BULK, rounds=8)
    assert plan(dataclasses.replace(ROWS, rows=10**6), rounds).grid == math.ceil(10**6 / 2 / 16)


# ---- the reference


def direct(x: list[float], by: float, plus: float, problem: NormProblem, eps: float) -> list[float]:
    """The definition, written out in Python's own floats."""
    mean = math.fsum(x) / len(x) if problem.norm == "layer" else 0.0
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in x) / len(x) + eps)
    found = []
    for value in x:
        z = (value - mean) / deviation * by + plus
        if problem.activation == "gelu":
            found.append(z * 0.5 * math.erfc(-z / math.sqrt(2)))
        elif problem.activation == "gelu_tanh":
            inner = math.sqrt(2 / math.pi) * (z + 0.044715 * z * z * z)
            found.append(z / (1 + math.exp(-2 * inner)))
        elif problem.activation == "silu":
            found.append(z / (1 + math.exp(-z)))
        else:
            s = min(8.0, max(-8.0, z))
            terms = ((-1) ** k / (k + 1) ** 2 * (s / 8) ** k for k in range(problem.degree + 1))
            found.append(s * math.fsum(terms))
    return found


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_reference_is_the_definition(norm: str, name: str) -> None:
    problem = NormProblem(3, 50, "fp32", norm, name, 40 if name == "poly" else 0)
    x = normal(np, 3, 50, "fp32", 1, 1)
    scale, shift = (np.full((1, 50), v, np.float32).view(np.uint32) for v in (1.5, -0.25))
    got = expected(np, x, scale, shift, problem, eps=1e-3)
    eps = float(np.float32(1e-3))
    for row in range(3):
        wanted = direct(
            [float(v) for v in to_float32(np, x[row], "fp32")], 1.5, -0.25, problem, eps
        )
        assert got.values[row] == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    assert (got.slack > 0).all()
    assert (got.slack < 1e-4).all()


def test_coefficients_keep_a_polynomial_away_from_zero_and_infinity() -> None:
    u = np.linspace(-1, 1, 1001)
    for degree in (0, 1, 2, 7, 512, 1024):
        assert len(coefficients(degree)) == degree + 1
        values = np.polynomial.polynomial.polyval(u, coefficients(degree))
        assert values.min() > 0.7
        assert values.max() < 1.7
    assert coefficients(2).tolist() == [1.0, -0.25, float(np.float32(1) / np.float32(9))]


def test_the_reference_follows_ieee_where_a_row_is_not_finite() -> None:
    x = np.array([[1, 2, np.nan, 3], [1, np.inf, 2, 3], [1, -np.inf, 2, np.inf]], np.float32)
    one, zero = (np.full((1, 4), v, np.float32).view(np.uint32) for v in (1, 0))
    for norm, rows in (("layer", [4, 4, 4]), ("rms", [4, 1, 2])):
        found = expected(np, x.view(np.uint32), one, zero, NormProblem(3, 4, "fp32", norm, "silu"))
        assert np.isnan(found.values).sum(axis=1).tolist() == rows


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_the_check_takes_the_rounded_reference_and_nothing_further_off(dtype: str) -> None:
    values = np.linspace(-3, 3, 64).reshape(4, 16)
    got = from_float32(np, values.astype(np.float32), dtype)
    wanted = Expected(to_float32(np, got, dtype).astype(np.float64), np.full((4, 16), 1e-9))

    def found(changed: Any, wanted: Expected = wanted) -> NormFinding:
        finding = NormFinding()
        check(np, finding, changed, wanted, dtype)
        return finding

    assert found(got).right
    off = got.copy()
    off[2, 3] += 3  # units in the last place
    assert found(off).wrong == 1
    assert "row 2, column 3" in found(off).first
    off[2, 3] = poison(got)
    assert (found(off).wrong, found(off).unwritten) == (1, 1)
    nan = Expected(np.where(np.arange(16) == 5, np.nan, wanted.values), wanted.slack)
    assert found(got, nan).wrong == 4
    infinite = Expected(np.where(np.arange(16) == 5, np.inf, wanted.values), wanted.slack)
    assert found(got, infinite).wrong == 4


def test_a_transformation_keeps_nan() -> None:
    for name in ACTIVATIONS:
        problem = NormProblem(1, 1, "fp32", "layer", name)
        assert np.isnan(activation(np, np.array([np.nan]), problem)).all()


# ---- the kernels on the CPU


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
