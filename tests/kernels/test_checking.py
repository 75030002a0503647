"""The whole check of a configuration against an emulated kernel: numpy in the GPU's place."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy")

import kernels.checking as checking
from kernels.bits import bits_type, from_float32, to_float32
from kernels.launch_plan import LaunchPlan
from solver.config import Config
from solver.problem import LAYOUTS, Matrix, Problem
from tests.kernels.numpy_reference import numpy_product

CONFIG = Config("sm90_gemm", 64, 64, 64, 3)
OUT_TYPES = ["bf16", "fp16", "fp32"]
ODD = {"a_offset": 1, "b_offset": 5, "c_offset": 3}


def at(address: int, matrix: Matrix, across: bool = False) -> Any:
    """An operand's elements from its address alone, as a kernel finds them."""
    words = (ctypes.c_char * (matrix.elements * matrix.element_bytes)).from_address(address)
    flat = np.frombuffer(words, f"<u{matrix.element_bytes}")
    strides = (matrix.pitch * matrix.element_bytes, matrix.element_bytes)
    lines = np.lib.stride_tricks.as_strided(flat, (matrix.lines, matrix.length), strides)
    return lines.T if across else lines


@dataclass
class Emulated:
    """A launch's operands, as bits, and the kernel in numpy; a subclass plants an error."""

    plan: LaunchPlan
    a_address: int
    b_address: int
    c_address: int
    alpha: float
    beta: float

    def __post_init__(self) -> None:
        pass  # where a plant changes the scalars

    @property
    def problem(self) -> Problem:
        return self.plan.problem

    def a(self) -> Any:
        return at(self.a_address, self.problem.a, not self.problem.a_is_k_major)

    def b(self) -> Any:
        return at(self.b_address, self.problem.b, not self.problem.b_is_k_major)

    def c(self) -> Any:
        return at(self.c_address, self.problem.c)

    def products(self) -> Any:
        return numpy_product(self.a(), self.b(), self.problem.dtype)

    def result(self) -> Any:
        scaled = self.products() * self.alpha
        if self.beta != 0:
            scaled = scaled + to_float32(np, self.c(), self.problem.out) * self.beta
        return from_float32(np, scaled.astype(np.float32), self.problem.out)

    def launch(self) -> None:
        self.c()[...] = self.result()


@pytest.fixture
def emulate(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put numpy and a kernel written in it where CuPy and the launch are."""

    def install(kernel: type[Emulated] = Emulated) -> None:
        class EmulatedLaunch:
            def __init__(
                self,
                plan: LaunchPlan,
                _: Any,
                a: int,
                b: int,
                c: int,
                workspace: Any,
                **scalars: Any,
            ):
                problem = plan.problem
                for address, matrix in ((a, problem.a), (b, problem.b), (c, problem.c)):
                    assert address % 16 == matrix.offset * matrix.element_bytes
                self.kernel = kernel(plan, a, b, c, **scalars)

            def launch(self, stream: Any) -> None:
                self.kernel.launch()

        class EmulatedWorkspace:
            def __init__(self, plan: LaunchPlan) -> None:
                pass

            def counters_are_zero(self) -> bool:
                return True

        def product(a: Any, b: Any, dtype: str) -> Any:
            return numpy_product(a, b, dtype)

        def magnitude(a: Any, b: Any, dtype: str) -> Any:
            return numpy_product(a & 0x7FFF, b & 0x7FFF, dtype)

        for name, value in {
            "cp": np,
            "GemmLaunch": EmulatedLaunch,
            "Workspace": EmulatedWorkspace,
            "reference_exact": product,
            "reference_sum": product,
            "reference_magnitude": magnitude,
        }.items():
            monkeypatch.setattr(checking, name, value)

    return install


def check(problem: Problem, seed: int = 11) -> checking.CheckResult:
    session: Any = SimpleNamespace(stream=SimpleNamespace(synchronize=lambda: None))
    return checking.check_config(session, None, problem, CONFIG, 132, seed)  # type: ignore[arg-type]


def gapped(layout: str, out: str, m: int = 48, n: int = 48, k: int = 48) -> Problem:
    """Square, so that an operand read the other way round stays in its own memory."""
    offsets = ODD if out != "fp32" else ODD | {"c_offset": 1}
    return Problem(m, n, k, "bf16", layout, out, lda=53, ldb=61, ldc=51, **offsets)


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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("out", OUT_TYPES)
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_a_right_kernel_passes_wherever_its_operands_lie(
    emulate: Callable[..., None], layout: str, out: str, dtype: str
) -> None:
    emulate()
    assert check(replace(gapped(layout, out), dtype=dtype)).details == ()
    assert check(replace(gapped(layout, out, 47, 13, 49), dtype=dtype)).details == ()
    assert check(Problem(65, 40, 129, dtype, layout, out)).details == ()


def test_the_check_in_several_chunks_is_the_same(
    emulate: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulate()
    problem = Problem(150, 24, 136, layout="nt", lda=155, ldb=25, out_dtype="fp32")
    whole = check(problem)
    monkeypatch.setattr("kernels.inputs.CHUNK_ELEMENTS", 500)
    parts = check(problem)
    assert parts.passed
    assert parts.rel_error == pytest.approx(whole.rel_error)


def test_draws_stack_only_as_far_as_memory_allows(
    emulate: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulate()
    monkeypatch.setattr(checking, "STACK_ELEMENTS", 3 * 2048)
    result = check(Problem(1, 33, 2048))
    assert (result.passed, result.draws) == (True, 8)


def test_a_packed_output_is_checked_with_a_gap_too(emulate: Callable[..., None]) -> None:
    seen: list[tuple[int, float, bool]] = []

    class Watched(Emulated):
        def launch(self) -> None:
            super().launch()
            seen.append((self.problem.c.pitch, self.beta, self.problem.c.aligned))

    emulate(Watched)
    assert check(Problem(64, 64, 64, out_dtype="fp32")).passed
    assert {(pitch, aligned) for pitch, _, aligned in seen} == {(64, True), (68, True)}
    assert {beta != 0 for pitch, beta, _ in seen if pitch == 68} == {True, False}
    seen.clear()
    assert check(Problem(64, 63, 64, ldc=66)).passed
    assert {pitch for pitch, *_ in seen} == {66}


class LastRowMissing(Emulated):
    def launch(self) -> None:
        self.c()[:-1] = self.result()[:-1]


class LastColumnMissing(Emulated):
    def launch(self) -> None:
        self.c()[:, :-1] = self.result()[:, :-1]


class StoresIntoTheGap(Emulated):
    def launch(self) -> None:
        super().launch()
        gap = replace(self.problem.c, length=self.problem.c.pitch, lines=1)
        at(self.c_address, gap)[0, -1] = 0


class StoresOneTooFar(Emulated):
    def launch(self) -> None:
        super().launch()
        whole = replace(self.problem.c, lines=1, length=self.problem.c.elements + 1)
        at(self.c_address, whole)[0, -1] = 0


class DropsTheLastProduct(Emulated):
    def products(self) -> Any:
        return numpy_product(self.a()[:, :-1], self.b()[:, :-1], self.problem.dtype)


class TransposesA(Emulated):
    def a(self) -> Any:
        return super().a().T


class TransposesB(Emulated):
    def b(self) -> Any:
        return super().b().T


class PacksA(Emulated):
    def a(self) -> Any:
        packed = replace(self.problem.a, pitch=self.problem.a.length)
        return at(self.a_address, packed, not self.problem.a_is_k_major)


class PacksB(Emulated):
    def b(self) -> Any:
        packed = replace(self.problem.b, pitch=self.problem.b.length)
        return at(self.b_address, packed, not self.problem.b_is_k_major)


class PacksC(Emulated):
    def c(self) -> Any:
        return at(self.c_address, replace(self.problem.c, pitch=self.problem.c.length))


class RoundsAddressesDown(Emulated):
    def a(self) -> Any:
        return at(self.a_address & -16, self.problem.a, not self.problem.a_is_k_major)


class ReadsPastK(Emulated):
    """A last k-iteration of two more elements, zero in A but not in B: NaN all the same."""

    def products(self) -> Any:
        beyond = replace(self.problem.b, length=self.problem.b.length + 2)
        if self.problem.b_is_k_major:
            tail = at(self.b_address, beyond)[:, -2:]
        else:
            beyond = replace(self.problem.b, lines=self.problem.b.lines + 2)
            tail = at(self.b_address, beyond, across=True)[:, -2:]
        outside = numpy_product(np.zeros((self.problem.m, 2), np.uint16), tail, "bf16")
        return super().products() + outside


class IgnoresAlpha(Emulated):
    def __post_init__(self) -> None:
        self.alpha = 1.0


class IgnoresBeta(Emulated):
    def __post_init__(self) -> None:
        self.beta = 0.0


class SwapsAlphaAndBeta(Emulated):
    def __post_init__(self) -> None:
        if self.beta:
            self.alpha, self.beta = self.beta, self.alpha


class ScalesCByAlphaToo(Emulated):
    def __post_init__(self) -> None:
        self.beta *= self.alpha


class ReadsCWhereBetaIsZero(Emulated):
    def result(self) -> Any:
        with np.errstate(invalid="ignore"):
            held = to_float32(np, self.c(), self.problem.out) * np.float32(self.beta)
            total = (self.products() * self.alpha + held).astype(np.float32)
        return np.where(
            np.isnan(total),
            bits_type(np, self.problem.out)(0x7FC0),
            from_float32(np, np.nan_to_num(total), self.problem.out),
        )


class AddsCTwice(Emulated):
    def launch(self) -> None:
        super().launch()
        if self.beta:
            super().launch()


PLANTS = [
    LastRowMissing,
    LastColumnMissing,
    StoresIntoTheGap,
    StoresOneTooFar,
    DropsTheLastProduct,
    TransposesA,
    TransposesB,
    PacksA,
    PacksB,
    PacksC,
    RoundsAddressesDown,
    ReadsPastK,
    IgnoresAlpha,
    IgnoresBeta,
    SwapsAlphaAndBeta,
    ScalesCByAlphaToo,
    ReadsCWhereBetaIsZero,
    AddsCTwice,
]
ONLY_GUARDS = {StoresIntoTheGap, StoresOneTooFar}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
@pytest.mark.parametrize("out", ["bf16", "fp32"])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_planted_error_is_found(
    emulate: Callable[..., None], plant: type[Emulated], layout: str, out: str
) -> None:
    emulate(plant)
    result = check(gapped(layout, out))
    assert not result.passed
    assert not result.exact
    words = "guard words" if plant in ONLY_GUARDS else "elements wrong"
    assert any(words in line for line in result.details)


def test_a_missing_row_is_named_as_never_written(emulate: Callable[..., None]) -> None:
    emulate(LastRowMissing)
    result = check(Problem(70, 65, 1032))
    assert not result.exact
    assert "65 of 4550 elements wrong, 65 of them never written" in result.details[0]
    assert "row 69, column 0" in result.details[0]


def test_the_round_that_went_wrong_is_named_with_its_scalars(emulate: Callable[..., None]) -> None:
    emulate(IgnoresBeta)
    result = check(Problem(64, 64, 64))
    assert [line.split(":")[0] for line in result.details[:3]] == [
        "exact round with alpha -1, beta 1",
        "exact round with alpha 2, beta -1",
        "exact round with alpha 0.5, beta 2",
    ]
    assert result.details[3].startswith("random round with alpha ")


def test_a_kernel_that_writes_past_its_columns_fails_though_its_output_is_right(
    emulate: Callable[..., None],
) -> None:
    class WritesPast(StoresIntoTheGap):
        def launch(self) -> None:
            if self.problem.c.pitch > self.problem.n:
                super().launch()
            else:
                Emulated.launch(self)

    emulate(WritesPast)
    result = check(Problem(64, 64, 64))
    assert result.exact
    assert not result.passed
    assert "guard words" in result.details[0]


def test_a_kernel_wrong_only_on_random_inputs_fails(emulate: Callable[..., None]) -> None:
    class Off(Emulated):
        def launch(self) -> None:
            super().launch()
            if self.problem.c.pitch > self.problem.n:
                self.c()[...] += 2

    emulate(Off)
    result = check(Problem(64, 64, 64))
    assert (result.exact, result.passed) == (True, False)
    assert any("relative error" in line for line in result.details)


@pytest.mark.parametrize(("out", "narrow"), [("fp32", "fp16"), ("fp16", "bf16")])
def test_an_output_rounded_to_a_narrower_type_fails(
    emulate: Callable[..., None], out: str, narrow: str
) -> None:
    class Narrow(Emulated):
        def products(self) -> Any:
            sums = super().products().astype(np.float32)
            return to_float32(np, from_float32(np, sums, narrow), narrow).astype(np.float64)

    emulate(Narrow)
    result = check(Problem(64, 64, 512, out_dtype=out))
    assert (result.exact, result.passed) == (True, False)
