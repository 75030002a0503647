"""What the norm_activation kernels may do differently, which of it a launch does, and few small
launches that do all of it.

A branch is an axis and a value, as in ``bench.branches``. Kernels are told apart first by how
chunks are handed over (SCOPES): what a checker sees of one way says nothing about the others.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import cycle

from bench.cover import cover
from kernels.norm.plan import NormPlan
from kernels.norm.ring_launches import NormLaunch, small_launches, small_plan
from solver.device import load_profile
from solver.families import norm_activation as family
from solver.families import norm_activation_block as block
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_space import legal_configs

SCOPES = {
    "rows": "plain and strong kernels, without a ring",
    "bulk": "rings filled by bulk copies",
    "async": "rings filled by asynchronous copies",
    "vector": "rings filled by loads and stores, mbarriers",
    "named": "rings filled by loads and stores, named barriers",
}
SPACES = (
    *((1, "bf16"), (1, "fp32"), (31, "fp16"), (33, "fp32"), (34, "bf16"), (36, "fp16")),
    *((64, "fp32"), (264, "bf16"), (1024, "fp16"), (2048, "fp32"), (3000, "bf16")),
    *((4099, "bf16"), (8192, "fp32"), (16384, "fp16"), (65535, "fp16"), (65536, "bf16")),
)
"""Widths and types whose legal spaces are drawn from."""
DRAWN = 32  # of each scope of a space
DEGREES = (0, 3, 8, 32, 91)
ELEMENTS_MAX = 1 << 16

AXES: dict[str, tuple[str, ...]] = {
    "kind": family.KINDS,
    "dtype": tuple(family.ELEMENT_BYTES),
    "norm": family.NORMS,
    "activation": family.ACTIVATIONS,
    "degree": ("none", *map(str, DEGREES)),
    "vector_bytes": ("2", "4", "8", "16"),
    "producers": ("0", "thread", "warp", "2", "4", "8"),
    "register_split": ("0", "1"),
    "groups": ("one", "several"),
    "team": ("one", "several"),
    "teams": ("one", "several"),
    "hold": family.HOLDS,
    "stores": family.STORES,
    "chunk": ("none", "row", "rows", "part", "cut"),
    "vectors": ("none", "one", "several"),
    "lanes": ("all", "idle"),
    "depth": ("none", "2", "3", "more"),
    "ring": ("none", "part", "wraps", "often"),
    "rounds": ("persistent", "one", "several"),
    "units": ("one", "several"),
    "last": ("whole", "cut"),
    "idle_groups": ("no", "yes"),
    "rows": ("0", "1", "several"),
    "row": ("one", "odd", "even", "whole"),
}
"""Every branch: the values of each axis.

degree     a polynomial's, for each loop of Horner's rule alone, and for all of them
producers  none, a warp's one thread with bulk copies, warps
team       warps that share a row; ``teams``, those of a group with a ring, of a block without
chunk      of one row, of several, a part of one, with a last part that is shorter
vectors    of a lane's share of a row in registers; ``lanes``, whether some have less than others
ring       chunks of a group of the first block against its slots: not more, more, more than twice
           as many
units      of work of the first block
last       whether the last unit of the launch has as many rows as the others
row        one element, an odd number of them, no multiple of 16 bytes, or one
"""

MEETINGS: tuple[tuple[str, ...], ...] = (
    ("kind", "producers", "register_split"),
    ("kind", "hold", "stores", "chunk"),
    ("hold", "stores", "team"),
    ("kind", "groups", "teams"),
    ("kind", "hold", "ring"),
    ("kind", "dtype", "norm"),
    ("kind", "degree"),
    ("kind", "rounds"),
    ("kind", "rows"),
    ("kind", "last"),
    ("dtype", "vector_bytes"),
    ("kind", "vector_bytes"),
    ("kind", "row"),
    ("kind", "activation"),
    ("activation", "dtype"),
    ("activation", "norm"),
)
"""Axes whose values are met together, in every combination that was drawn."""


def scope_of(config: NormConfig) -> str:
    """How a configuration's chunks are handed over."""
    if not config.has_ring:
        return "rows"
    return "named" if config.barrier == "named" else config.copies


def branches_of(plan: NormPlan) -> dict[str, str]:
    """Every axis with the value that a launch takes; of one that has no rows, and so launches
    nothing, these alone and the kind."""
    problem, config = plan.problem, plan.config
    rows, width, size = problem.rows, problem.width, problem.element_bytes
    if rows == 0:
        return {"kind": config.kind, "rows": "0"}
    units = len(NormLaunch(plan, 0).units)
    return {
        "kind": config.kind,
        "dtype": problem.dtype,
        "norm": problem.norm,
        "activation": problem.activation,
        "degree": str(problem.degree) if problem.activation == "poly" else "none",
        "vector_bytes": str(config.vector_bytes),
        "producers": _producers(config),
        "register_split": str(config.register_split),
        "groups": _many(config.groups),
        "team": _many(config.team),
        "teams": _many(config.teams),
        "hold": config.hold,
        "stores": config.stores,
        "chunk": _chunk(problem, config),
        "vectors": _many(block.vectors_of(problem, config)) if _in_registers(config) else "none",
        "lanes": "idle" if _lanes_idle(problem, config) else "all",
        "depth": {0: "none", 2: "2", 3: "3"}.get(config.depth, "more"),
        "ring": _ring(problem, config, units),
        "rounds": _many(config.rounds) if config.rounds else "persistent",
        "units": _many(units),
        "last": "cut" if rows % _rows_of_unit(problem, config) else "whole",
        "idle_groups": "yes" if units % config.groups else "no",
        "rows": str(rows) if rows < 2 else "several",
        "row": (
            "one"
            if width == 1
            else "odd"
            if width % 2
            else "even"
            if width * size % family.VECTOR_BYTES
            else "whole"
        ),
    }


@cache
def clean_plans(scope: str) -> tuple[NormPlan, ...]:
    """Few small launches that take every branch, and have every meeting, of what was drawn of a
    scope."""
    drawn = list(_drawn(scope))
    return tuple(drawn[index] for index in cover([_offers(plan) for plan in drawn]))


def _offers(plan: NormPlan) -> set[tuple[tuple[str, str], ...]]:
    branches = branches_of(plan)
    return {
        tuple((axis, branches[axis]) for axis in axes)
        for axes in (*((axis,) for axis in AXES), *MEETINGS)
        if branches.keys() >= set(axes)
    }


def _drawn(scope: str) -> Iterator[NormPlan]:
    """Launches of the scope's legal configurations: norms, transformations and degrees in turn,
    several rows, one and none."""
    rng = random.Random(scope)
    words = cycle([(norm, word) for word in family.ACTIVATIONS for norm in family.NORMS])
    degrees, turns, few = cycle(DEGREES), cycle(range(12)), cycle((1, 1, 0))
    for width, dtype in SPACES:
        configs = [config for config in _space(width, dtype) if scope_of(config) == scope]
        for config in rng.sample(configs, min(DRAWN, len(configs))):
            norm, activation = next(words)
            degree = next(degrees) if activation == "poly" else 0
            problem = NormProblem(1, width, dtype, norm, activation, degree)
            small = [launch.plan for launch in small_launches(problem, config)]
            plans = [
                replace(plan, problem=replace(plan.problem, degree=degree))
                for plan in small
                if plan.problem.rows * width <= ELEMENTS_MAX
            ]
            turn = next(turns)
            if plans:
                yield plans[turn % len(plans)]
            yield small_plan(replace(problem, rows=next(few)), config)


@cache
def _space(width: int, dtype: str) -> tuple[NormConfig, ...]:
    return tuple(legal_configs(NormProblem(1, width, dtype), load_profile("h200")))


def _many(count: int) -> str:
    return "one" if count == 1 else "several"


def _in_registers(config: NormConfig) -> bool:
    return config.hold == "registers"


def _producers(config: NormConfig) -> str:
    if config.producers and config.copies == "bulk":
        return "thread"
    return "warp" if config.producers == 1 else str(config.producers)


def _chunk(problem: NormProblem, config: NormConfig) -> str:
    if not config.has_ring:
        return "none"
    found = block.chunking(problem, config)
    if found.chunks_per_unit == 1:
        return "row" if found.rows_per_unit == 1 else "rows"
    return "cut" if problem.row_bytes % config.chunk_bytes else "part"


def _lanes_idle(problem: NormProblem, config: NormConfig) -> bool:
    """Whether some lanes of a team have less of a row than others."""
    return bool(problem.row_bytes // config.vector_bytes % (family.WARP * config.team))


def _rows_of_unit(problem: NormProblem, config: NormConfig) -> int:
    ring_rows: int = block.chunking(problem, config).rows_per_unit
    return ring_rows if config.has_ring else int(config.teams)


def _ring(problem: NormProblem, config: NormConfig, units: int) -> str:
    if not config.has_ring:
        return "none"
    each = block.chunking(problem, config).chunks_per_unit * (1 + (config.hold == "reload"))
    laps = -(-units // config.groups) * each / config.depth
    return "part" if laps <= 1 else "wraps" if laps <= 2 else "often"
