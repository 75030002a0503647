"""norm_activation without a GPU: what compiles, and what a launch needs."""

from __future__ import annotations

import dataclasses
import math
import random

import numpy as np
import pytest

from kernels import sources
from kernels.cache import KernelCache
from kernels.errors import CompileFailed, CompilerMismatch
from kernels.norm.compile import (
    NormKey,
    build_norm,
    compile_key,
    compile_norm,
    headers,
    instantiation,
    source_hash,
)
from kernels.norm.plan import ARGUMENTS, NormPlan, plan_norm
from solver.device import DeviceProfile, load_profile
from solver.errors import IllegalConfig, InvalidInput
from solver.families import norm_activation_block as block
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_space import legal_configs
from tests.kernels.norm_forms import BULK, ROWS, SPLIT

SAMPLED = (
    NormProblem(1000, 1024, "fp32", "layer", "poly", 8),
    NormProblem(1000, 4096, "bf16", "layer", "gelu"),
    NormProblem(1000, 4096, "fp16", "rms", "gelu_tanh"),
    NormProblem(1000, 16384, "bf16", "layer", "silu"),
    NormProblem(1000, 1001, "bf16", "layer", "poly", 8),
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
