"""Kernels compiled side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.bench import compile_all
from kernels.cache import CACHE_VARIABLE
from kernels.errors import CompilerAbsent
from kernels.nvrtc import version
from solver.families.sm90_gemm import CompileKey

KEYS = [CompileKey("bf16", "tn", 64, tile_n, 64, 1, 0, 0) for tile_n in range(8, 72, 8)]


class Ended(Exception):
    """Raised by who listens."""


def test_whoever_listens_may_end_it_and_what_waits_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        version()
    except CompilerAbsent as absent:
        pytest.skip(str(absent))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    told = []

    def advance() -> None:
        told.append(1)
        raise Ended

    with pytest.raises(Ended):
        compile_all(KEYS, advance)
    assert len(told) == 1
    compiled = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert 1 <= len(compiled) < len(KEYS)
    assert compile_all(KEYS[:1], lambda: told.append(2)) == {}
    assert told == [1, 2]
