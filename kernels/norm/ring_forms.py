"""The norm_activation kernels whose protocol is read: one for each form that a kernel can have.

A form is all of a compile key but the elements' type, the norm and the activation. These are given
out in turn, with either size of element where that makes another form.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

from kernels.norm.cells import read_cells
from kernels.norm.compile import NormKey, compile_key
from solver.device import load_profile
from solver.families import norm_activation as family
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_space import legal_configs

WIDTHS = (64, 256, 1024, 2048, 4096, 16384)  # rows of 65,536 have no form of their own
ROWS = 4096  # any: launches that are read have their own
SIZES = {"fp32": ("fp32",), "bf16": ("bf16", "fp16")}
"""For each size of an element a type that stands for it, and all there are."""

Kernels = list[tuple[NormProblem, NormConfig]]
"""A legal configuration of a problem for each kernel."""


def forms(sample: int | None = None, seed: int = 0) -> Kernels:
    """A kernel of every form that the legal space has over WIDTHS, or of a seeded sample."""
    found: dict[NormKey, tuple[NormProblem, NormConfig]] = {}
    for width, dtype in product(WIDTHS, SIZES):
        problem = NormProblem(ROWS, width, dtype, "layer", "silu")
        for config in legal_configs(problem, load_profile("h200")):
            found.setdefault(compile_key(problem, config), (problem, config))
    return _sampled(list(_varied(list(found.values()))), sample, seed)


def planned(path: Path, sample: int | None = None, seed: int = 0) -> Kernels:
    """A kernel of every compile key of a plan of norm cells, or of a seeded sample. Raises
    InvalidInput."""
    found: dict[NormKey, tuple[NormProblem, NormConfig]] = {}
    for cell in read_cells(path, load_profile("h200")):
        found.setdefault(compile_key(cell.problem, cell.config), (cell.problem, cell.config))
    return _sampled(list(found.values()), sample, seed)


def _sampled(kernels: Kernels, sample: int | None, seed: int) -> Kernels:
    if sample is None:
        return kernels
    return random.Random(seed).sample(kernels, min(sample, len(kernels)))


def _varied(kernels: Kernels) -> Iterator[tuple[NormProblem, NormConfig]]:
    """Norms, activations and types in turn."""
    words = list(product(family.NORMS, family.ACTIVATIONS))
    for number, (problem, config) in enumerate(kernels):
        norm, activation = words[number % len(words)]
        types = SIZES[problem.dtype]
        dtype = types[number // len(words) % len(types)]
        yield replace(problem, dtype=dtype, norm=norm, activation=activation), config
