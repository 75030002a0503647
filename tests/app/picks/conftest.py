"""A GPU that tests set, in the place of the machine's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.picks.tools import H200, FakeGpu


@pytest.fixture(autouse=True)
def _as_on_a_developers_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No GPU, and no CI system: what this machine has must not decide."""
    for module in ("app.host", "kernels.verify"):
        monkeypatch.setattr(f"{module}.host_gpu", lambda: None)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "WARPWRIGHT_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """An H200 whose process answers what the test sets."""
    pytest.importorskip("cupy")
    gpu = FakeGpu()
    for module in ("app.host", "kernels.verify"):
        monkeypatch.setattr(f"{module}.host_gpu", lambda: H200)
    monkeypatch.setattr("kernels.verify.call_alone", gpu.call_alone)
    return gpu
