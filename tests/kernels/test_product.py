"""A product as BLAS defines it: what is launched for which scalars and extents, without a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernels import product
from kernels.errors import NoKernelFamily
from solver.config import Config
from solver.errors import IllegalConfig, InvalidProblem
from solver.families import sm90_gemm as family
from solver.problem import Problem

PROFILE = SimpleNamespace(name="NVIDIA H200")
AT = 1 << 20  # a device address on 16 bytes


class Played:
    """Stands in for the session and the launches, and keeps what they were asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gpu, self.sms, self.stream = PROFILE, 132, self
        self.launched: list[tuple[Problem, float, float]] = []
        self.scaled: list[tuple[Problem, float]] = []
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
    ((problem, scalar),) = played.scaled
    assert (problem.m, problem.n, problem.ldc, scalar) == (3, 5, 9, beta)
    assert played.waits == 1


def test_without_terms_and_beta_1_nothing_is_launched(played: Played) -> None:
    played.gemm(3, 5, 0, beta=1.0 + 1e-12)
    assert (played.launched, played.scaled) == ([], [])


def test_scalars_are_what_fp32_makes_of_them(played: Played) -> None:
    played.gemm(3, 5, 7, alpha=1.0 + 1e-12, beta=1e-60)
    assert played.launched == [(Problem(3, 5, 7), 1.0, 0.0)]


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
    ],
)
def test_what_cannot_be_names_its_field(
    played: Played, arguments: tuple[int, ...], options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidProblem) as raised:
        played.gemm(*arguments, **options)
    assert raised.value.field == field


def test_an_illegal_configuration_is_refused(played: Played) -> None:
    config = Config(family.NAME, 256, 256, 64, 2)
    with pytest.raises(IllegalConfig):
        played.gemm(3, 5, 7, config=config)
    assert played.launched == []
