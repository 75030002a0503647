"""A product as BLAS defines it: what is launched for which scalars and extents, without a GPU."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels import product
from kernels.errors import NoKernelFamily
from solver.config import Config
from solver.errors import IllegalConfig, InvalidProblem
from solver.families import sm90_gemm as family
from solver.problem import MAX_EXTENT, Operands, Problem

PROFILE = SimpleNamespace(name="NVIDIA H200")
AT = 1 << 20  # a device address on 16 bytes


class Played:
    """Stands in for the session and the launches, and keeps what they were asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gpu, self.sms, self.stream = PROFILE, 132, self
        self.launched: list[tuple[Problem, float, float]] = []
        self.scaled: list[tuple[Operands, float]] = []
        self.keys: list[family.CompileKey] = []
        self.waits = 0
        monkeypatch.setattr(product, "Workspace", lambda plan: None)
        monkeypatch.setattr(product, "check_compiled", lambda *_: None)
        monkeypatch.setattr(product, "GemmLaunch", self._launch)
        monkeypatch.setattr(product, "scale", lambda p, c, beta, _: self.scaled.append((p, beta)))

    def synchronize(self) -> None:
        self.waits += 1

    def kernel(self, key: family.CompileKey) -> Any:
        self.keys.append(key)
        return SimpleNamespace(compiled=None)

    def _launch(self, plan: Any, *_: Any, alpha: float, beta: float) -> Any:
        def launch(stream: Any) -> None:
            assert stream is self
            self.launched.append((plan.problem, alpha, beta))

        return SimpleNamespace(launch=launch)

    def gemm(self, m: int, n: int, k: int, *addresses: int, **options: Any) -> None:
        product.gemm(self, m, n, k, *(addresses or (AT, AT, AT)), **options)  # type: ignore[arg-type]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(monkeypatch)


@pytest.mark.parametrize(("m", "n", "k", "alpha"), [(5, 5, 7, 1.0), (5, 5, 0, 1.0), (5, 5, 7, 0.0)])
def test_another_gpu_is_refused_before_anything_is_launched(
    played: Played, m: int, n: int, k: int, alpha: float
) -> None:
    played.gpu = SimpleNamespace(name="NVIDIA T4")
    with pytest.raises(NoKernelFamily, match="NVIDIA T4"):
        played.gemm(m, n, k, alpha=alpha, beta=2.0)
    assert (played.launched, played.scaled) == ([], [])


@pytest.mark.parametrize(("m", "n", "k"), [(0, 5, 7), (5, 0, 7), (0, 0, 0)])
def test_an_empty_output_launches_nothing(played: Played, m: int, n: int, k: int) -> None:
    played.gemm(m, n, k, 0, 0, 0, alpha=2.0, beta=3.0)
    assert (played.launched, played.scaled) == ([], [])


@pytest.mark.parametrize(("k", "alpha"), [(0, 1.0), (7, 0.0), (7, -0.0), (7, 1e-60)])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_without_terms_c_is_scaled_and_a_and_b_are_not_read(
    played: Played, k: int, alpha: float, beta: float
) -> None:
    played.gemm(3, 5, k, 1, 1, AT + 2, alpha=alpha, beta=beta, ldc=9)
    assert played.launched == []
    ((operands, scalar),) = played.scaled
    assert (operands.m, operands.n, operands.ldc, scalar) == (3, 5, 9, beta)
    assert played.waits == 1


@pytest.mark.parametrize(("k", "alpha"), [(0, 1.0), (MAX_EXTENT, 0.0)])
def test_without_terms_nothing_is_asked_of_m_n_k_together(
    played: Played, k: int, alpha: float
) -> None:
    played.gemm(MAX_EXTENT, MAX_EXTENT, k, alpha=alpha, beta=0.5)
    ((operands, scalar),) = played.scaled
    assert (operands.m, operands.n, scalar) == (MAX_EXTENT, MAX_EXTENT, 0.5)


@pytest.mark.parametrize("empty", [0, 1])
def test_an_empty_output_may_be_of_any_other_extents(played: Played, empty: int) -> None:
    extents = [MAX_EXTENT] * 3
    extents[empty] = 0
    played.gemm(*extents)
    assert (played.launched, played.scaled) == ([], [])


def test_with_terms_m_n_k_together_are_bounded(played: Played) -> None:
    with pytest.raises(InvalidProblem, match=r"m\*n\*k must be at most 2\^60"):
        played.gemm(MAX_EXTENT, MAX_EXTENT, 1)


def test_without_terms_and_beta_1_nothing_is_launched(played: Played) -> None:
    played.gemm(3, 5, 0, beta=1.0 + 1e-12)
    assert (played.launched, played.scaled) == ([], [])


def test_scalars_are_what_fp32_makes_of_them(played: Played) -> None:
    played.gemm(3, 5, 7, alpha=1.0 + 1e-12, beta=1e-60)
    assert played.launched == [(Problem(3, 5, 7), 1.0, 0.0)]


@pytest.mark.parametrize("scalar", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_goes_through_as_in_blas(played: Played, scalar: float) -> None:
    played.gemm(3, 5, 7, alpha=scalar, beta=scalar)
    played.gemm(3, 5, 0, alpha=scalar, beta=scalar)
    ((_, alpha, beta),), ((_, scaled),) = played.launched, played.scaled
    for got in (alpha, beta, scaled):
        assert got == pytest.approx(scalar, nan_ok=True)


@pytest.mark.parametrize("kind", [int, np.float32, np.float64, np.int32])
def test_scalars_may_be_of_any_type_of_number(played: Played, kind: Any) -> None:
    played.gemm(3, 5, 7, alpha=kind(2), beta=kind(3))
    assert played.launched == [(Problem(3, 5, 7), 2.0, 3.0)]


@pytest.mark.parametrize("field", ["alpha", "beta"])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "must be a number, got NoneType"),
        ("1", "must be a number, got str"),
        (True, "must be a number, got bool"),
        (1j, "must be a number, got complex"),
        (1e300, r"between -3.40282e\+38 and 3.40282e\+38"),
        (-1e39, "between"),
        (10**400, "between"),
    ],
)
@pytest.mark.parametrize("extents", [(3, 5, 7), (3, 5, 0), (0, 5, 7)])
def test_a_scalar_that_fp32_does_not_hold_is_refused(
    played: Played, field: str, value: Any, words: str, extents: tuple[int, int, int]
) -> None:
    with pytest.raises(InvalidProblem, match=words) as raised:
        played.gemm(*extents, **{field: value})
    assert raised.value.field == field
    assert (played.launched, played.scaled) == ([], [])


def test_the_largest_scalars_that_fp32_holds_are_taken(played: Played) -> None:
    most = float(np.finfo(np.float32).max)
    played.gemm(3, 5, 7, alpha=most, beta=-most)
    assert played.launched == [(Problem(3, 5, 7), most, -most)]


def test_offsets_follow_from_the_addresses(played: Played) -> None:
    played.gemm(64, 64, 64, AT + 2, AT + 14, AT + 8, out_dtype="fp32", layout="tt", dtype="fp16")
    expected = Problem(
        64, 64, 64, "fp16", "tt", out_dtype="fp32", a_offset=1, b_offset=7, c_offset=2
    )
    assert [problem for problem, _, _ in played.launched] == [expected]
    assert (played.keys[0].dtype, played.keys[0].layout) == ("fp16", "tt")
    assert played.waits == 1


@pytest.mark.parametrize(
    ("arguments", "options", "field"),
    [
        ((-1, 5, 7), {}, "m"),
        ((3, 5, 2**31), {}, "k"),
        ((3, 5, 7, AT + 1, AT, AT), {}, "a"),
        ((3, 5, 7, AT, AT, AT + 2), {"out_dtype": "fp32"}, "c"),
        ((0, 5, 7), {"layout": "xx"}, "layout"),
        ((3, 0, 7), {"lda": 6}, "lda"),
        ((3, 5, 7, "here", AT, AT), {}, "a"),
        ((3, 5, 7, AT, None, AT), {}, "b"),
        ((3, 5, 0, AT, AT, float(AT)), {}, "c"),
        ((3, 5, 7, AT, AT, 0), {}, "c"),
        ((3, 5, 7, AT, -16, AT), {}, "b"),
        ((3, 5, 7, AT + (1 << 64), AT, AT), {}, "a"),
        ((3, 5, 7), {"a_offset": 1}, "a_offset"),
        ((3, 5, 0), {"c_offset": "1"}, "c_offset"),
        ((3, 5, 7), {"ldq": 7}, "ldq"),
        ((3, 5, 7), {"lda": 7.0}, "lda"),
        ((3, 5, True), {}, "k"),
        ((3, 5, 7), {"dtype": None}, "dtype"),
    ],
)
def test_what_cannot_be_names_its_field(
    played: Played, arguments: tuple[int, ...], options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidProblem) as raised:
        played.gemm(*arguments, **options)
    assert raised.value.field == field
    assert (played.launched, played.scaled) == ([], [])


def test_an_illegal_configuration_is_refused(played: Played) -> None:
    config = Config(family.NAME, 256, 256, 64, 2)
    with pytest.raises(IllegalConfig):
        played.gemm(3, 5, 7, config=config)
    assert played.launched == []
