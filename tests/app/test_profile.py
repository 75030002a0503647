"""``warpwright profile``: kinds side by side, and what is said where ncu is of no use."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli.main import main
from kernels.host import HostGpu
from tests.app.test_cli import run_json
from tests.solver.ncu_exports import NAMES, raw

WORDS = (
    "profile",
    "--op",
    "norm_activation",
    "--rows",
    "4096",
    "--width",
    "1024",
    "--activation",
    "silu",
)
GPU = HostGpu("NVIDIA H200", "GPU-0", "580", 2**37, (9, 0), 1980, ())


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ``ncu`` that prints what lies beside it."""
    path = tmp_path / "ncu"
    path.write_text('#!/bin/sh\ncat "$(dirname "$0")/said"\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("app.cli.profile.find_gpu", lambda: GPU)
    return tmp_path


def test_kinds_stand_side_by_side(
    ncu: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NAMES, "3", "norm_activation")
    (ncu / "said").write_text(raw(ids=("0", "1", "2", "3")))
    code, body = run_json(capsys, *WORDS, "--warps-per-sm", "8")
    assert code == 0
    kinds = [kernel["kind"] for kernel in body["kernels"]]
    assert kinds == ["plain", "strong", "ring", "specialised"]
    assert body["warps_per_sm"] == 8
    assert body["kernels"][0]["profiled"]["barrier_fraction"] == pytest.approx(0.05)
    assert main([*WORDS]) == 0
    out = capsys.readouterr().out
    for words in ("SM busy", "stalled on loads", "stalled at a barrier", "memory throughput"):
        assert words in out


def test_counters_that_may_not_be_read_exit_3(
    ncu: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (ncu / "said").write_text("==ERROR== ERR_NVGPUCTRPERM")
    code, body = run_json(capsys, *WORDS)
    assert code == 3
    assert "may not read the GPU's performance counters" in body["detail"]


def test_without_ncu_or_a_gpu_it_exits_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, body = run_json(capsys, *WORDS)
    assert code == 3
    assert "ncu is not on the path" in body["detail"]


def test_a_problem_that_is_none_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    code, body = run_json(capsys, *WORDS, "--degree", "3")
    assert (code, body["errors"][0]["field"]) == (2, "degree")
    code, body = run_json(capsys, *WORDS[:5])
    assert (code, body["errors"][0]["field"]) == (2, "width")
    code, body = run_json(capsys, "profile", "--op", "gemm", *WORDS[3:])
    assert (code, body["errors"][0]["field"]) == (2, "op")
