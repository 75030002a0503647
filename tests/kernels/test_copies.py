"""The kernels around a launch: how they are compiled and known. Needs NVRTC, no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import evidence
from kernels import compile as compiling
from kernels import copies, copy_plan, nvrtc, sources
from kernels.cache import KernelCache
from kernels.compile import compile_copies
from kernels.errors import CompileFailed

CHANGED = "// another text\n"


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another text in place of copy.cu."""
    whole = sources.unit(sources.COPIES) + CHANGED
    sources.copy_hash.cache_clear()
    for module in (sources, compiling):
        monkeypatch.setattr(module, "unit", lambda name: whole)
    yield
    sources.copy_hash.cache_clear()


def refuse(*_: object) -> nvrtc.Build:
    raise AssertionError("the compiler was asked")


def test_the_copy_kernels_are_compiled_once_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = KernelCache(tmp_path)
    cubin = compile_copies(cache=cache)
    for name in (b"copy_operands\0", b"scale_matrix\0"):
        assert name in cubin
    monkeypatch.setattr(nvrtc, "build", refuse)
    assert compile_copies(cache=cache) == cubin


def test_what_a_process_loads_comes_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPWRIGHT_CACHE", str(tmp_path))
    cubin = compile_copies()
    monkeypatch.setattr(nvrtc, "build", refuse)
    assert copies.compile_copies() == cubin


@pytest.mark.usefixtures("changed")
def test_other_copy_kernels_are_other_entries(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    compile_copies(cache=cache)
    sources.copy_hash.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        for module in (sources, compiling):
            patch.setattr(module, "unit", lambda name: "void refused(")
        with pytest.raises(CompileFailed, match=r"copies-[0-9a-f]{12}: the compiler refused it"):
            compile_copies(cache=cache)
    assert len([*(tmp_path / "kernels").iterdir()]) == 1


def test_an_unwritable_cache_is_not_fatal(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    assert compile_copies(cache=KernelCache(in_the_way))


def test_the_hash_of_the_copies_follows_their_text_and_that_of_the_kernels_does_not(
    request: pytest.FixtureRequest,
) -> None:
    before, kernels = sources.copy_hash(), sources.source_hash()
    request.getfixturevalue("changed")
    sources.source_hash.cache_clear()
    assert sources.copy_hash() != before
    assert sources.source_hash() == kernels
    assert sources.copy_hash("sm_100a") != sources.copy_hash()


def test_a_record_names_the_copies_beside_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gpu:
        name, driver = "a device", "1.0"

    monkeypatch.setattr(evidence, "require_gpu", lambda: (Gpu, "h200"))
    facts = evidence.about("a commit")
    assert facts["source_hash"] == sources.source_hash()
    assert facts["copy_hash"] == sources.copy_hash()


@pytest.mark.parametrize("words", [1, 2, 127, 128, 129, 255, 256, 257, 65_537, 2**28])
def test_runs_cover_a_line_and_none_is_too_long(words: int) -> None:
    runs, run = copy_plan.line_runs(words)
    assert runs * run >= words
    assert 1 <= run <= copy_plan.RUN_WORDS
    assert (runs - 1) * copy_plan.RUN_WORDS < words
