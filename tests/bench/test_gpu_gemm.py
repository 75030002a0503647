"""What ``bench.gpu_gemm`` measures, without a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench import evidence, gpu_gemm
from bench.gemm_work import signs
from kernels.errors import GpuAbsent


def test_each_library_and_each_problem_is_measured() -> None:
    planned = [*gpu_gemm.steps("llm")]
    assert [given for member, _, given in planned if member == "overhead"] == [
        ("cupy",),
        ("torch",),
    ]
    assert sum(member == "beside_torch" for member, _, _ in planned) == 96


def test_sums_of_the_operands_are_exact_in_every_type() -> None:
    a, b = signs(200, 4096, 1), np.sign(signs(4096, 50, 2))
    assert np.abs(a @ b).max() <= 256
    assert set(np.unique(a)) == {-1.0, 0.0, 1.0}


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent() -> None:
        raise GpuAbsent("no GPU")

    monkeypatch.setattr(evidence, "require_gpu", absent)
    with pytest.raises(SystemExit) as left:
        gpu_gemm.main(["--out", str(tmp_path / "gemm.json")])
    assert left.value.code == 3
