"""What a norm_activation kernel must give: the reference, and the check against it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from kernels.bits import from_float32, poison, to_float32
from kernels.inputs import normal
from kernels.norm.numerics import NormFinding, check
from kernels.norm.reference import Expected, activation, coefficients, expected
from solver.families.norm_activation import ACTIVATIONS, NORMS, NormProblem


def direct(x: list[float], by: float, plus: float, problem: NormProblem, eps: float) -> list[float]:
    """The definition, written out in Python's own floats."""
    mean = math.fsum(x) / len(x) if problem.norm == "layer" else 0.0
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in x) / len(x) + eps)
    found = []
    for value in x:
        z = (value - mean) / deviation * by + plus
        if problem.activation == "gelu":
            found.append(z * 0.5 * math.erfc(-z / math.sqrt(2)))
        elif problem.activation == "gelu_tanh":
            inner = math.sqrt(2 / math.pi) * (z + 0.044715 * z * z * z)
            found.append(z / (1 + math.exp(-2 * inner)))
        elif problem.activation == "silu":
            found.append(z / (1 + math.exp(-z)))
        else:
            s = min(8.0, max(-8.0, z))
            terms = ((-1) ** k / (k + 1) ** 2 * (s / 8) ** k for k in range(problem.degree + 1))
            found.append(s * math.fsum(terms))
    return found


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_reference_is_the_definition(norm: str, name: str) -> None:
    problem = NormProblem(3, 50, "fp32", norm, name, 40 if name == "poly" else 0)
    x = normal(np, 3, 50, "fp32", 1, 1)
    scale, shift = (np.full((1, 50), v, np.float32).view(np.uint32) for v in (1.5, -0.25))
    got = expected(np, x, scale, shift, problem, eps=1e-3)
    eps = float(np.float32(1e-3))
    for row in range(3):
        wanted = direct(
            [float(v) for v in to_float32(np, x[row], "fp32")], 1.5, -0.25, problem, eps
        )
        assert got.values[row] == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    assert (got.slack > 0).all()
    assert (got.slack < 1e-4).all()


def test_coefficients_keep_a_polynomial_away_from_zero_and_infinity() -> None:
    u = np.linspace(-1, 1, 1001)
    for degree in (0, 1, 2, 7, 512, 1024):
        assert len(coefficients(degree)) == degree + 1
        values = np.polynomial.polynomial.polyval(u, coefficients(degree))
        assert values.min() > 0.7
        assert values.max() < 1.7
    assert coefficients(2).tolist() == [1.0, -0.25, float(np.float32(1) / np.float32(9))]


def test_the_reference_follows_ieee_where_a_row_is_not_finite() -> None:
    x = np.array([[1, 2, np.nan, 3], [1, np.inf, 2, 3], [1, -np.inf, 2, np.inf]], np.float32)
    one, zero = (np.full((1, 4), v, np.float32).view(np.uint32) for v in (1, 0))
    for norm, rows in (("layer", [4, 4, 4]), ("rms", [4, 1, 2])):
        found = expected(np, x.view(np.uint32), one, zero, NormProblem(3, 4, "fp32", norm, "silu"))
        assert np.isnan(found.values).sum(axis=1).tolist() == rows


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_the_check_takes_the_rounded_reference_and_nothing_further_off(dtype: str) -> None:
    values = np.linspace(-3, 3, 64).reshape(4, 16)
    got = from_float32(np, values.astype(np.float32), dtype)
    wanted = Expected(to_float32(np, got, dtype).astype(np.float64), np.full((4, 16), 1e-9))

    def found(changed: Any, wanted: Expected = wanted) -> NormFinding:
        finding = NormFinding()
        check(np, finding, changed, wanted, dtype)
        return finding

    assert found(got).right
    off = got.copy()
    off[2, 3] += 3  # units in the last place
    assert found(off).wrong == 1
    assert "row 2, column 3" in found(off).first
    off[2, 3] = poison(got)
    assert (found(off).wrong, found(off).unwritten) == (1, 1)
    nan = Expected(np.where(np.arange(16) == 5, np.nan, wanted.values), wanted.slack)
    assert found(got, nan).wrong == 4
    infinite = Expected(np.where(np.arange(16) == 5, np.inf, wanted.values), wanted.slack)
    assert found(got, infinite).wrong == 4


def test_a_transformation_keeps_nan() -> None:
    for name in ACTIVATIONS:
        problem = NormProblem(1, 1, "fp32", "layer", name)
        assert np.isnan(activation(np, np.array([np.nan]), problem)).all()
