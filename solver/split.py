"""What of the measured rows nothing is fitted to: two splits, by hash, fixed before any fit.

By shape: a third of all (m, n, k), whatever the rest of a problem is. By configuration: a fifth of
all forms of a configuration, whatever the problem: its tile and how CTAs share the work. A form is
held out with every ring, warp and register count that it has, since these differ by less than the
model errs, so that rows of one form would tell of one another. A row is held out where either says
so; constants are fitted to the others alone. Of norm_activation, a quarter of the problems.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from solver.families.norm_activation import NormProblem
from solver.problem import Problem

SHAPE_PART = 3
CONFIG_PART = 5
NORM_PART = 4
FORM = ("tile_m", "tile_n", "tile_k", "split_k", "cluster_m", "cluster_n")
"""The fields that make a configuration's form."""

SPLITS = ("shape", "configuration", "both")
"""Why a row is held out: its shape alone, its configuration's form alone, or both."""

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def _chosen(name: str, part: int) -> bool:
    return hashlib.sha256(name.encode()).digest()[0] % part == 0


def is_held_out(m: int, n: int, k: int) -> bool:
    """Whether a shape is one of the third that nothing is fitted to."""
    return _chosen(f"{m}x{n}x{k}", SHAPE_PART)


def is_form_held_out(form: tuple[int, ...]) -> bool:
    """Whether a form, values of FORM in order, is one of the fifth that nothing is fitted to."""
    return _chosen("config " + "x".join(map(str, form)), CONFIG_PART)


def is_norm_held_out(problem: NormProblem, warps_per_sm: int | None) -> bool:
    """Whether a problem of norm_activation, with so many warps an SM (None: as many as fit), is one
    of the quarter that nothing is fitted to, whatever its rows."""
    words = (problem.width, problem.dtype, problem.norm, problem.activation, problem.degree)
    return _chosen("norm " + "x".join(map(str, (*words, warps_per_sm or 0))), NORM_PART)


def held_out_forms(columns: Mapping[str, Any]) -> Mask:
    """``is_form_held_out`` of every row of configuration columns. Shape [R]."""
    forms = np.stack([np.asarray(columns[name]) for name in FORM], axis=1)
    unique, inverse = np.unique(forms, axis=0, return_inverse=True)
    held = np.array([is_form_held_out(tuple(form)) for form in unique.tolist()], dtype=bool)
    rows: Mask = held[inverse.ravel()]
    return rows


def held_out(problem: Problem, columns: Mapping[str, Any]) -> dict[str, Mask]:
    """Which rows of a problem each of SPLITS holds out; no row is in two. Shape [R] each."""
    form = held_out_forms(columns)
    shape = np.full(len(form), is_held_out(problem.m, problem.n, problem.k))
    return {"shape": shape & ~form, "configuration": form & ~shape, "both": shape & form}
