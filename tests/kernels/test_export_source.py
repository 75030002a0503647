"""A kernel's source as one file is the source that is compiled here."""

from __future__ import annotations

import re

import pytest

from kernels import nvrtc
from kernels.export.source import copies_source, kernel_source
from kernels.sources import COPIES, headers, instantiation, kernel_id, options, unit
from solver.families.sm90_gemm import CompileKey

KEYS = [
    CompileKey("bf16", "tn", 64, 64, 64, 1, 0, 0),
    CompileKey("fp16", "tt", 128, 128, 64, 2, 1, 1),
]
VIRTUAL = options("compute_90a")[:2]


def code(ptx: str) -> str:
    """PTX without its comments."""
    return re.sub(r"//[^\n]*", "", ptx)


@pytest.mark.parametrize("key", KEYS)
def test_the_compiler_makes_the_same_of_one_file_as_of_the_unit_and_its_headers(
    key: CompileKey,
) -> None:
    alone = nvrtc.ptx("gemm.cu", kernel_source(key), {}, VIRTUAL)
    shipped = nvrtc.ptx("gemm.cu", instantiation(key), headers(), VIRTUAL)
    assert code(alone) == code(shipped)


@pytest.mark.parametrize("key", KEYS)
def test_one_file_has_each_header_once_and_includes_nothing(key: CompileKey) -> None:
    text = kernel_source(key)
    assert "#include" not in text
    assert "#pragma once" not in text
    for name in headers():
        assert text.count(f"// {name}\n") == 1
    assert text.endswith(instantiation(key).splitlines()[-1] + "\n")


def test_it_says_what_it_is_and_how_it_was_compiled() -> None:
    head = kernel_source(KEYS[0]).partition("\n\n")[0]
    assert kernel_id(KEYS[0]) in head
    assert " ".join(options()) in head


def test_the_copies_are_the_unit_that_ships() -> None:
    assert copies_source().endswith(unit(COPIES))
    assert "#include" not in copies_source()
