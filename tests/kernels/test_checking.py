"""The whole check of a configuration against an emulated kernel: numpy in the GPU's place."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernels.checking as checking
from kernels.bits import from_float32
from kernels.launch_plan import LaunchPlan
from kernels.numerics import numpy_product
from solver.config import Config
from solver.problem import Problem

pytest.importorskip("cupy")

CONFIG = Config("sm90_gemm", 64, 64, 64, 3)
Spoil = Callable[[Any, LaunchPlan], None]


def view(address: int, rows: int, columns: int) -> Any:
    words = (ctypes.c_uint16 * (rows * columns)).from_address(address)
    return np.ctypeslib.as_array(words).reshape(rows, columns)


@pytest.fixture
def emulate(monkeypatch: pytest.MonkeyPatch) -> Callable[[Spoil | None], None]:
    """Put numpy and a kernel written in it where CuPy and the launch are."""

    def install(spoil: Spoil | None = None) -> None:
        class EmulatedLaunch:
            def __init__(self, plan: LaunchPlan, kernel: Any, a: int, b: int, c: int, _: Any):
                self.plan, self.places = plan, (a, b, c)

            def launch(self, stream: Any) -> None:
                p = self.plan.problem
                a, b, c = self.places
                product = numpy_product(np, view(a, p.m, p.k), view(b, p.n, p.k), p.dtype)
                out = np.lib.stride_tricks.as_strided(
                    view(c, 1, (p.m - 1) * self.plan.ldc + p.n),
                    (p.m, p.n),
                    (2 * self.plan.ldc, 2),
                )
                out[...] = from_float32(np, product.astype(np.float32), p.dtype)
                if spoil is not None:
                    spoil(out, self.plan)

        class EmulatedWorkspace:
            def __init__(self, plan: LaunchPlan) -> None:
                pass

            def counters_are_zero(self) -> bool:
                return True

        def product(a: Any, b: Any, dtype: str) -> Any:
            return numpy_product(np, a, b, dtype)

        def magnitude(a: Any, b: Any, dtype: str) -> Any:
            return numpy_product(np, a & 0x7FFF, b & 0x7FFF, dtype)

        for name, value in {
            "cp": np,
            "address": lambda array: array.ctypes.data,
            "GemmLaunch": EmulatedLaunch,
            "Workspace": EmulatedWorkspace,
            "reference_exact": product,
            "reference_sum": product,
            "reference_magnitude": magnitude,
        }.items():
            monkeypatch.setattr(checking, name, value)

    return install


def check(problem: Problem) -> checking.CheckResult:
    session: Any = SimpleNamespace(stream=SimpleNamespace(synchronize=lambda: None))
    return checking.check_config(session, None, problem, CONFIG, 132, seed=11)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("m", "n", "k", "draws"),
    [(1, 1, 8, 1), (1, 33, 2048, 8), (3, 8, 4096, 6), (70, 65, 1032, 1), (150, 24, 136, 1)],
)
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_a_right_kernel_passes(
    emulate: Callable[..., None], m: int, n: int, k: int, draws: int, dtype: str
) -> None:
    emulate()
    result = check(Problem(m, n, k, dtype))
    assert result.details == ()
    assert (result.passed, result.exact, result.draws) == (True, True, draws)
    assert result.k_coverage == 1.0


def test_the_check_in_several_chunks_is_the_same(
    emulate: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulate()
    whole = check(Problem(150, 24, 136))
    monkeypatch.setattr("kernels.inputs.CHUNK_ELEMENTS", 500)
    parts = check(Problem(150, 24, 136))
    assert parts.passed
    assert parts.rel_error == pytest.approx(whole.rel_error)


def test_a_kernel_that_forgets_its_last_row_fails(emulate: Callable[..., None]) -> None:
    def spoil(out: Any, plan: LaunchPlan) -> None:
        out[-1] = 0x7FE1

    emulate(spoil)
    result = check(Problem(70, 65, 1032))
    assert not result.exact
    assert "65 of 4550 elements wrong, 65 of them never written" in result.details[0]
    assert "row 69, column 0" in result.details[0]


def test_a_kernel_that_writes_past_its_columns_fails(emulate: Callable[..., None]) -> None:
    def spoil(out: Any, plan: LaunchPlan) -> None:
        if plan.ldc > plan.problem.n:
            np.lib.stride_tricks.as_strided(out, (1, plan.ldc), out.strides)[0, -1] = 0

    emulate(spoil)
    result = check(Problem(64, 64, 64))
    assert result.exact
    assert not result.passed
    assert "guard words" in result.details[0]


def test_a_kernel_wrong_only_on_random_inputs_fails(emulate: Callable[..., None]) -> None:
    def spoil(out: Any, plan: LaunchPlan) -> None:
        if plan.ldc > plan.problem.n:
            out += 2

    emulate(spoil)
    result = check(Problem(64, 64, 64))
    assert (result.exact, result.passed) == (True, False)
    assert any("relative error" in line for line in result.details)
