"""The compiler's account of the kernels against the solver's; needs NVRTC, no GPU."""

from __future__ import annotations

import dataclasses
import pickle
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernels import nvrtc
from kernels import table as table_module
from kernels.cache import KernelCache
from kernels.compile import (
    CompiledKernel,
    build_kernel,
    check_compiled,
    compile_kernel,
    compile_never_ends,
)
from kernels.errors import CompileFailed, CompilerAbsent, CompilerMismatch
from kernels.sources import headers, kernel_id, options, source_hash
from kernels.table import bench_compile, candidate_keys, table_keys
from solver.config import Config
from solver.device import DeviceProfile, load_profile
from solver.families import sm90_gemm as family
from solver.families.sm90_gemm import CompileKey
from solver.families.sm90_gemm_registers import register_table
from solver.problem import ELEMENT_BYTES

SMALL = CompileKey("bf16", "tn", 64, 8, 64, 1, 0, 0)
SAMPLE = random.Random(20251129).sample(
    [key for key in table_keys() if 3 * (key.tile_m + key.tile_n) * key.tile_k * 2 < 180_000], 6
)  # of those that fit an H200 with three stages
SPLIT = CompileKey("bf16", "tn", 128, 256, 64, 2, 1, 1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> KernelCache:
    return KernelCache(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="module")
def small(cache: KernelCache) -> CompiledKernel:
    return compile_kernel(SMALL, cache=cache)


@pytest.fixture(scope="module")
def h200() -> DeviceProfile:
    return load_profile("h200")


@pytest.fixture
def forget_binding() -> Iterator[None]:
    nvrtc._binding.cache_clear()
    yield
    nvrtc._binding.cache_clear()


def config_of(key: CompileKey, stages: int) -> Config:
    return Config(
        family.NAME,
        key.tile_m,
        key.tile_n,
        key.tile_k,
        stages,
        mma_in_flight=key.mma_in_flight,
        math_warpgroups=key.math_warpgroups,
        register_split=key.register_split,
    )


@pytest.mark.parametrize("key", [*SAMPLE, SPLIT], ids=lambda key: key.name)
def test_a_legal_key_compiles_to_the_figures_the_solver_counts_with(
    key: CompileKey, cache: KernelCache, h200: DeviceProfile
) -> None:
    kernel = compile_kernel(key, cache=cache)
    assert kernel.registers == register_table().of(key)
    assert (kernel.spill_bytes, kernel.stack_bytes, kernel.static_smem_bytes) == (0, 0, 0)
    assert b".nv.local" not in kernel.cubin
    for stages in family.STAGES:
        columns = config_of(key, stages).to_dict()
        assert kernel.smem_bytes_by_stages[stages] == int(family.smem_bytes(columns, 2))
    check_compiled(kernel, config_of(key, 3), h200)


def test_every_candidate_key_is_legal_or_refused_with_a_reason() -> None:
    table = register_table()
    names = {key.form for dtype in ELEMENT_BYTES for key in candidate_keys(dtype)}
    assert set(table.registers) | set(table.refused) == names
    assert not set(table.registers) & set(table.refused)
    assert all(table.refused.values())


def test_the_table_was_measured_from_these_sources() -> None:
    assert register_table().source_hash == source_hash()


def test_role_registers_never_exceed_those_of_the_launch() -> None:
    split_keys = [key for key in table_keys() if key.register_split]
    assert split_keys
    for key in split_keys:
        dma, math = family.ROLE_REGISTERS[key.math_warpgroups]
        roles = family.WARPGROUP * (dma + key.math_warpgroups * math)
        assert roles <= key.max_threads * register_table().of(key)


def test_a_key_that_spills_is_refused_with_the_bytes(cache: KernelCache) -> None:
    key = CompileKey("bf16", "tn", 256, 208, 64, 2, 1, 1)
    with pytest.raises(CompileFailed, match=r"spills \d+ bytes"):
        compile_kernel(key, cache=cache)


def test_a_key_that_needs_more_registers_than_there_are_keeps_the_compilers_words(
    cache: KernelCache,
) -> None:
    with pytest.raises(CompileFailed, match="C7602: Insufficient registers") as caught:
        compile_kernel(CompileKey("bf16", "tn", 192, 256, 64, 3, 0, 0), cache=cache)
    assert "ptxas fatal" in caught.value.log
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.reason, copy.log) == (caught.value.reason, caught.value.log)


def test_source_that_does_not_parse_is_an_error_that_names_the_line() -> None:
    with pytest.raises(CompileFailed, match=r"\(1\): error"):
        build_kernel(SMALL, source="int x = ;")


def test_the_second_compile_comes_from_the_cache_unchanged(
    cache: KernelCache, small: CompiledKernel
) -> None:
    again = compile_kernel(SMALL, cache=cache)
    assert again == dataclasses.replace(small, from_cache=True)


def test_a_corrupt_cache_entry_is_compiled_again(tmp_path: Path, small: CompiledKernel) -> None:
    cache = KernelCache(tmp_path)
    compile_kernel(SMALL, cache=cache)
    (entry,) = (tmp_path / "kernels").iterdir()
    entry.write_bytes(entry.read_bytes()[:-1])
    again = compile_kernel(SMALL, cache=cache)
    assert not again.from_cache
    assert again.registers == small.registers
    assert compile_kernel(SMALL, cache=cache).from_cache


def test_an_unwritable_cache_is_said_and_not_fatal(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    kernel = compile_kernel(SMALL, cache=KernelCache(in_the_way))
    assert kernel.cubin
    assert "can't be written" in kernel.cache_note


def test_another_compiler_version_does_not_meet_this_ones_kernels(
    cache: KernelCache, small: CompiledKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "version", lambda: "99.0")
    other = compile_kernel(SMALL, cache=cache)
    assert not other.from_cache
    assert other.nvrtc == "99.0"


def test_a_kernel_id_is_the_key_and_twelve_digits_of_the_sources() -> None:
    assert re.fullmatch(r"bf16_tn_64x8x64_w1_r0_f0-[0-9a-f]{12}", kernel_id(SMALL))
    assert kernel_id(SMALL) != kernel_id(SMALL, arch="sm_100a")


def test_options_and_headers_are_in_the_source_hash() -> None:
    assert source_hash("sm_90a") != source_hash("sm_100a")
    assert "sm90_gemm.cuh" in headers()
    assert "--gpu-architecture=sm_90a" in options()


def test_the_kernel_that_never_ends_has_the_real_ones_entry() -> None:
    kernel = compile_never_ends(SMALL)
    assert b"sm90_gemm\0" in kernel.cubin
    assert kernel.kernel_id.startswith("never_ends-")


def test_without_the_binding_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, forget_binding: None
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(CompilerAbsent, match=r"warpwright\[gpu\]"):
        build_kernel(SMALL)


def test_without_the_library_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, forget_binding: None
) -> None:
    def missing() -> None:
        raise RuntimeError("no libnvrtc")

    bindings = SimpleNamespace(nvrtc=SimpleNamespace(nvrtcVersion=missing))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    with pytest.raises(CompilerAbsent, match=r"no libnvrtc"):
        nvrtc.version()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spill_bytes": 8}, "spills 8 bytes"),
        ({"stack_bytes": 16}, "16 bytes of stack"),
        ({"static_smem_bytes": 1024}, "static shared memory"),
        ({"registers": 255}, "threads x registers"),
        ({"smem_bytes_by_stages": (0,) * 13}, "the solver counted"),
        ({"key": dataclasses.replace(SPLIT, tile_n=128)}, "was not compiled for"),
    ],
)
def test_a_compilers_figure_that_breaks_a_rule_stops_the_launch(
    change: dict[str, object], words: str, cache: KernelCache, h200: DeviceProfile
) -> None:
    kernel = dataclasses.replace(compile_kernel(SPLIT, cache=cache), **change)
    with pytest.raises(CompilerMismatch, match=words) as caught:
        check_compiled(kernel, config_of(SPLIT, 4), h200)
    assert "python -m kernels.table" in str(caught.value)


def test_the_compile_bench_finds_no_disagreement_in_a_sample() -> None:
    result = bench_compile(sample=2, seed=7, processes=2)
    assert result["configs"] == 2
    wrong = ("failed", "spilled", "smem_mismatch", "register_mismatch")
    assert [result[name] for name in wrong] == [0, 0, 0, 0]


def test_the_compile_bench_refuses_a_compiler_the_table_was_not_measured_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_module.nvrtc, "version", lambda: "99.0")
    with pytest.raises(CompilerMismatch, match=r"here are 99\.0"):
        bench_compile(sample=1)
