"""What the GPU tests of norm_activation launch: seeded draws from the legal space."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle
from typing import Any

from kernels.norm.run_case import Case
from solver.device import DeviceProfile
from solver.families.norm_activation import (
    ACTIVATIONS,
    ELEMENT_BYTES,
    KINDS,
    NORMS,
    NormConfig,
    NormProblem,
)
from solver.families.norm_activation_space import legal_configs

WIDTHS = (
    *(1, 2, 3, 7, 31, 33, 63, 127, 255, 257, 1000, 1023, 1024, 1025),
    *(4095, 4096, 4100, 8191, 16384, 65535, 65536),
)
ROWS = (0, 1, 2, 131, 132, 133, 1000)
INPUTS = ("normal", "offset", "special")
DRAWN = {"plain": 2, "strong": 3, "ring": 3, "specialised": 6}
MOST_ELEMENTS = 1 << 24


def by_kind(problem: NormProblem, device: DeviceProfile) -> dict[str, list[NormConfig]]:
    """The legal space of a problem, by kind."""
    found: dict[str, list[NormConfig]] = {kind: [] for kind in KINDS}
    for config in legal_configs(problem, device):
        found[config.kind].append(config)
    return found


def numeric_cases(dtype: str, device: DeviceProfile) -> Iterator[Case]:
    """Every width with some configurations of each kind; rows, norms, transformations and inputs in
    turn, so that all of them meet all kinds over the widths."""
    draw = random.Random(f"norm {dtype}")
    turns = cycle(
        [(n, a, i) for i in INPUTS for a in ACTIVATIONS for n in NORMS],
    )
    degrees = cycle((0, 1, 7, 8, 37, 1024))
    for width in WIDTHS:
        space = by_kind(NormProblem(1, width, dtype), device)
        rows = cycle([rows for rows in ROWS if rows * width <= MOST_ELEMENTS])
        for kind, configs in space.items():
            for config in draw.sample(configs, min(DRAWN[kind], len(configs))):
                norm, activation, inputs = next(turns)
                degree = next(degrees) if activation == "poly" else 0
                problem = NormProblem(next(rows), width, dtype, norm, activation, degree)
                options: dict[str, Any] = {"inputs": inputs, "launches": 2}
                yield Case(problem, config, options)


def every_activation(dtype: str, device: DeviceProfile) -> Iterator[Case]:
    """Both norms, every transformation, with one configuration of each kind."""
    draw = random.Random(f"activation {dtype}")
    space = by_kind(NormProblem(1, 1024, dtype), device)
    for norm in NORMS:
        for activation in ACTIVATIONS:
            for inputs in INPUTS:
                degree = 96 if activation == "poly" else 0
                problem = NormProblem(133, 1024, dtype, norm, activation, degree)
                for configs in space.values():
                    yield Case(problem, draw.choice(configs), {"inputs": inputs})


def protocol_cases(device: DeviceProfile) -> list[Case]:
    """Every way that warps hand chunks over, once each: roles, groups, teams, copies, barriers,
    depth, hold, stores, rounds and register split, with rows that leave groups and teams idle."""
    cases: dict[Any, Case] = {}
    for problem in (
        NormProblem(997, 1024, "fp32", "layer", "poly", 8),
        NormProblem(301, 8192, "bf16", "rms", "silu"),
    ):
        for config in legal_configs(problem, device):
            if config.has_ring:
                form = config.to_dict() | {"chunk_bytes": problem.row_bytes > config.chunk_bytes}
                cases.setdefault((problem, *form.values()), Case(problem, config, {"launches": 12}))
    return list(cases.values())


def space_cases(device: DeviceProfile, count: int) -> list[Case]:
    """Problems and configurations drawn from everything that is legal."""
    draw = random.Random("norm space")
    cases: list[Case] = []
    while len(cases) < count:
        width = draw.choice((64, 128, 264, 1024, 2048, 4096, 4104, 8192, 12288, 32768))
        dtype = draw.choice(list(ELEMENT_BYTES))
        activation = draw.choice(ACTIVATIONS)
        degree = draw.randrange(64) if activation == "poly" else 0
        rows = draw.randrange(1, min(5000, (1 << 22) // width))
        problem = NormProblem(rows, width, dtype, draw.choice(NORMS), activation, degree)
        configs = list(legal_configs(problem, device))
        cases += [Case(problem, config) for config in draw.sample(configs, min(8, len(configs)))]
    return cases
