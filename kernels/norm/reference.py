"""What a norm_activation kernel must give, in float64, and how far it may be off.

Runs on numpy and CuPy arrays alike, over bits (``kernels.bits``). The reference follows IEEE 754
where a row holds NaN or infinity, and the kernels must follow it: under layer such a row is NaN
throughout; under rms one with infinity and no NaN is NaN where x is infinite, and the others are
those of 0·x. Finite fp32 inputs beyond 2^54 overflow the kernels' sums of squares, not these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.bits import to_float32
from kernels.norm.plan import EPS
from solver.families.norm_activation import NormProblem

ROUNDING = 2.0**-24  # relative error of one rounding to fp32
LIPSCHITZ = {"gelu": 1.13, "gelu_tanh": 1.13, "silu": 1.1}
"""Most that a transformation widens an error of its argument."""
STEEPEST = 8.0
"""Roundings of a transformation, relative to its argument: erff errs by 2 units in the last place,
__expf by 2 and one for each unit of its argument, which the sigmoid damps."""
CLAMP = 8.0


def coefficients(degree: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """c_k = (-1)^k / (k+1)² as fp32 rounds it, float64, shape (degree + 1,)."""
    k = np.arange(degree + 1)
    values = np.float32(1) / ((k + 1) ** 2).astype(np.float32)
    return np.where(k % 2 == 0, values, -values).astype(np.float64)


def roundings(width: int) -> float:
    """Additions on the longest way of an element into its row's sums, each with one rounding: a
    lane takes at most a 32nd of the row (16 elements of a short one), in blocks of 64 elements, or
    in vectors of four and more whose means and squares are brought together in three operations
    each; then 5 steps over lanes and one for each of at most 32 warps."""
    return min(64.0, 16 + width / 32) + 5 + min(32.0, width / 64) + 3.0 * width / 128


def erf(xp: Any, x: Any) -> Any:
    """The error function in float64."""
    if xp is np:
        return np.vectorize(math.erf, otypes=[np.float64])(x)
    from cupyx.scipy.special import erf as on_gpu

    return on_gpu(x)


def activation(xp: Any, z: Any, problem: NormProblem) -> Any:
    """The transformation of float64 values."""
    if problem.activation == "gelu":
        return 0.5 * z * (1.0 + erf(xp, z / math.sqrt(2.0)))
    if problem.activation == "gelu_tanh":
        return 0.5 * z * (1.0 + xp.tanh(math.sqrt(2.0 / math.pi) * (z + 0.044715 * z**3)))
    if problem.activation == "silu":
        return z / (1.0 + xp.exp(-z))
    held = xp.clip(z, -CLAMP, CLAMP)  # keeps NaN
    argument = held / CLAMP
    total = xp.zeros_like(argument)
    for c in coefficients(problem.degree)[::-1]:
        total = total * argument + float(c)
    return held * total


@dataclass(frozen=True, slots=True)
class Expected:
    """Float64 values of an output and how far each may be off before it is rounded to its type."""

    values: Any
    slack: Any


def expected(
    xp: Any, x: Any, scale: Any, shift: Any, problem: NormProblem, eps: float = EPS
) -> Expected:
    """The reference for rows of bits ``x`` (any number of them), and its slack.

    With u = 2^-24 and R = ``roundings``: the mean errs by R·u·mean|x|; the deviation's inverse by
    (R/2 + 8)·u of itself and, since squares are taken around that mean, by the square of the mean's
    error over the deviation; scale and shift add two roundings each. The transformation widens this
    by LIPSCHITZ and adds STEEPEST·u of its argument; a polynomial of degree D, whose coefficients
    fall like 1/k², widens it by 1.65 + H and adds STEEPEST·(1 + H)·u, H = 1 + ln(D + 1).
    """
    with np.errstate(all="ignore"):
        values = to_float32(xp, x, problem.dtype).astype(xp.float64)
        by = to_float32(xp, scale, problem.dtype).astype(xp.float64)
        plus = to_float32(xp, shift, problem.dtype).astype(xp.float64)
        error = roundings(problem.width) * ROUNDING
        centred, mean_error = values, 0.0
        if problem.norm == "layer":
            centred = values - values.mean(axis=1, keepdims=True)
            mean_error = error * xp.abs(values).mean(axis=1, keepdims=True)
        square = (centred * centred).mean(axis=1, keepdims=True)
        inverse = 1.0 / xp.sqrt(square + float(np.float32(eps)))
        normal = centred * inverse
        z = normal * by + plus
        drift = mean_error * inverse
        of_normal = drift + xp.abs(normal) * (error / 2 + 8 * ROUNDING + drift * drift)
        of_z = xp.abs(by) * of_normal + 2 * ROUNDING * (xp.abs(normal * by) + xp.abs(plus))
        if problem.activation == "poly":
            harmonic = 1.0 + math.log(problem.degree + 1)
            widened, own = 1.65 + harmonic, STEEPEST * (1 + harmonic)
        else:
            widened, own = LIPSCHITZ[problem.activation], STEEPEST
        slack = widened * of_z + own * ROUNDING * xp.abs(z)
        return Expected(activation(xp, z, problem), slack)
