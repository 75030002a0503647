"""Levenberg-Marquardt over a soft loss, with a prior: numpy alone, for hosts without more.

Minimises  f²·Σ s((r/f)²)/2 + Σ (p·x)²/2  over x, with s(z) = 2(√(1+z) - 1): a residual well past
``f`` pulls with a constant force, so that a throttled row decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]

STEP = 0.01
"""Of the difference quotients: prices are whole ticks, smaller steps would meet their edges."""
DAMPING, EASE, HARDEN = 1e-3, 0.3, 4.0
ENOUGH = 1e-5
"""A step that lowers the loss by less than this part of it is the last."""


@dataclass(frozen=True, slots=True)
class Minimum:
    """Where the loss is least: ``x`` [P], residuals [R] and their Jacobian [R, P] there, the
    weight of each residual [R], and how many Jacobians it took."""

    x: Floats
    residuals: Floats
    jacobian: Floats
    weights: Floats
    steps: int


def jacobian_of(function: Callable[[Floats], Floats], x: Floats, at: Floats) -> Floats:
    """Forward differences [R, P] of ``function``, whose value at ``x`` is ``at``."""
    columns = []
    for index in range(len(x)):
        moved = x.copy()
        moved[index] += STEP
        columns.append((function(moved) - at) / STEP)
    return np.stack(columns, axis=1)


def minimise(
    residuals: Callable[[Floats], Floats],
    precision: Floats,
    least: Floats,
    soft: float,
    steps: int,
    progress: Callable[[int, int], None] | None = None,
) -> Minimum:
    """The minimum from x = 0 on, in at most ``steps`` Jacobians.

    ``precision`` [P] is p above, ``least`` [P] the least each x may be; ``soft`` is f. ``progress``
    is told (done, at most).
    """

    def loss(x: Floats, r: Floats) -> float:
        rho = 2 * (np.sqrt(1 + (r / soft) ** 2) - 1)
        return float(soft**2 * rho.sum() / 2 + ((precision * x) ** 2).sum() / 2)

    x = np.maximum(np.zeros(len(precision)), least)
    r = residuals(x)
    value, damping, done = loss(x, r), DAMPING, 0
    while True:
        jacobian = jacobian_of(residuals, x, r)
        done += 1
        if progress is not None:
            progress(done, steps)
        weights = 1 / np.sqrt(1 + (r / soft) ** 2)
        if done == steps:
            return Minimum(x, r, jacobian, weights, done)
        normal = jacobian.T @ (weights[:, None] * jacobian) + np.diag(precision**2)
        slope = jacobian.T @ (weights * r) + precision**2 * x
        for _ in range(12):
            lifted = normal + damping * np.diag(np.diag(normal) + 1e-12)
            ahead = np.maximum(x - np.linalg.solve(lifted, slope), least)
            r_ahead = residuals(ahead)
            value_ahead = loss(ahead, r_ahead)
            if value_ahead < value:
                break
            damping *= HARDEN
        else:
            return Minimum(x, r, jacobian, weights, done)
        gain = value - value_ahead
        x, r, value, damping = ahead, r_ahead, value_ahead, damping * EASE
        if gain < ENOUGH * value:
            jacobian = jacobian_of(residuals, x, r)
            weights = 1 / np.sqrt(1 + (r / soft) ** 2)
            return Minimum(x, r, jacobian, weights, done + 1)
