"""Nsight Compute as it is run: what is missing or refused is said, what is profiled comes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernels.errors import ProfilerUnusable
from kernels.norm.cells import Cell
from kernels.norm.profile import MEMBERS, profile_cells
from kernels.profiler import find_ncu, run_profiled
from solver.device import load_profile
from solver.families.norm_activation import NormConfig, NormProblem
from tests.solver.ncu_exports import raw

H200 = load_profile("h200")
PROBLEM = NormProblem(64, 1024)
CELLS = [
    Cell("", PROBLEM, NormConfig("plain", 8, hold="reload")),
    Cell("", PROBLEM, NormConfig("strong", 8)),
]


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ``ncu`` that keeps its arguments and prints what lies beside it, with that exit code."""
    path = tmp_path / "ncu"
    path.write_text(
        '#!/bin/sh\ncd "$(dirname "$0")"\nprintf "%s\\n" "$@" > arguments\n'
        'for last; do :; done; cp "$last" plan.json 2>/dev/null\n'
        "cat said; exit $(cat code)\n"
    )
    path.chmod(0o755)
    (tmp_path / "code").write_text("0")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def test_without_ncu_on_the_path_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProfilerUnusable, match="ncu is not on the path; it comes with the CUDA"):
        find_ncu()


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - no permission", 1, "NVreg_RestrictProfilingToAdminUsers=0"),
        ("==ERROR== ERR_NVGPUCTRPERM - no permission", 0, "may not read the GPU's performance"),
        ("Traceback: no GPU", 1, "profiled nothing: Traceback: no GPU"),
        ("==PROF== Disconnected", 0, "profiled nothing: ==PROF== Disconnected"),
        ("", 0, "it said nothing"),
    ],
)
def test_what_keeps_it_from_profiling_is_said(ncu: Path, said: str, code: int, words: str) -> None:
    (ncu / "said").write_text(said)
    (ncu / "code").write_text(str(code))
    with pytest.raises(ProfilerUnusable, match=words):
        run_profiled(find_ncu(), "some.module", ["a"])


def test_one_that_does_not_end_is_killed(ncu: Path) -> None:
    (ncu / "ncu").write_text("#!/bin/sh\nexec sleep 30\n")
    with pytest.raises(ProfilerUnusable, match=r"did not end within 0\.2 s"):
        run_profiled(find_ncu(), "some.module", [], limit_s=0.2)


def test_each_cell_comes_with_its_launchs_figures(ncu: Path) -> None:
    (ncu / "said").write_text(raw(ids=("0", "1")))
    plain, strong = profile_cells(CELLS, H200)
    assert tuple(plain) == MEMBERS
    assert plain["memory_fraction"] == pytest.approx(0.347)
    assert strong["long_scoreboard_fraction"] == pytest.approx(5.2 / 8)
    words = (ncu / "arguments").read_text().splitlines()
    assert words[words.index("--profile-from-start") + 1] == "off"
    assert "kernels.norm.profile_launch" in words
    planned = json.loads((ncu / "plan.json").read_text())["cells"]
    assert [cell["config"]["kind"] for cell in planned] == ["plain", "strong"]


def test_launches_that_are_not_the_cells_are_refused(ncu: Path) -> None:
    (ncu / "said").write_text(raw(ids=("0",)))
    with pytest.raises(ProfilerUnusable, match="profiled 1 launches of 2"):
        profile_cells(CELLS, H200)
    (ncu / "said").write_text('"Kernel Name"\n')
    with pytest.raises(ProfilerUnusable, match="can't be read"):
        profile_cells(CELLS, H200)
