"""The legal space of the norm_activation family: some thousand configurations of a problem.

What is legal depends on a row's bytes and an element's alone, so that problems share a space.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np

from solver.device import DeviceProfile
from solver.families import norm_activation as family
from solver.families.norm_activation import FIELDS, NormConfig, NormProblem
from solver.families.norm_activation_block import chunking
from solver.families.norm_activation_fields import Columns, NormColumns, columns_of
from solver.families.norm_activation_legality import are_legal

DEPTHS = (2, 3, 4, 6)
CHUNKS = tuple(1 << n for n in range(11, 16))  # 2 KiB to 32 KiB
HELD = (
    ("registers", "vector"),
    ("shared", "vector"),
    ("shared", "bulk"),
    ("reload", "vector"),
    ("reload", "bulk"),
)
"""(hold, stores)"""
FORM = "form"
"""A column of the domain beside the fields: a number that configurations share which differ in
``chunk_bytes`` alone."""


def legal_configs(problem: NormProblem, device: DeviceProfile) -> Iterator[NormConfig]:
    """The legal space, in the domain's order, each configuration once: one of several chunk sizes
    that make the same slots."""
    columns = legal_columns(problem, device)
    for values in zip(*(columns[name].tolist() for name in FIELDS), strict=True):
        yield NormConfig.from_columns(dict(zip(FIELDS, values, strict=True)))


def legal_columns(problem: NormProblem, device: DeviceProfile) -> Columns:
    """The same as integer columns of shape [R], words by their place in ``family.WORDS``."""
    widest = max(n for n in (2, 4, 8, 16) if problem.row_bytes % n == 0)
    parts = [
        _legal(problem, domain, device)
        for domain in (_without_rings(problem.element_bytes, widest), _with_rings())
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in FIELDS}


def _legal(problem: NormProblem, domain: Columns, device: DeviceProfile) -> Columns:
    legal = np.flatnonzero(are_legal(problem, NormColumns(domain), device))
    kept = {name: values[legal] for name, values in domain.items()}
    slots = chunking(problem, NormColumns(kept)).slot_bytes
    made = kept[FORM] * (CHUNKS[-1] + 1) + slots
    first = np.sort(np.unique(made, return_index=True)[1])
    return {name: values[first] for name, values in kept.items()}


def _domain(configs: Iterator[NormConfig]) -> Columns:
    columns = columns_of(list(configs))
    others = tuple(columns[name] for name in FIELDS if name != "chunk_bytes")
    most = tuple(int(column.max()) + 1 for column in others)
    return {**columns, FORM: np.ravel_multi_index(others, most)}


@cache
def _without_rings(element_bytes: int, widest: int) -> Columns:
    """Of elements of so many bytes, with vectors of so many at most."""

    def configs() -> Iterator[NormConfig]:
        for warps, size in product((4, 8), sorted({element_bytes, widest})):
            yield NormConfig("plain", warps, vector_bytes=size, hold="reload")
        for warps, team, blocks, rounds in product(
            (4, 8, 16, 32), (1, 2, 4, 8, 16, 32), (1, 2, 3, 4, 6), (1, 0)
        ):
            if warps * blocks <= 48:
                yield NormConfig(
                    "strong",
                    warps,
                    team=team,
                    vector_bytes=widest,
                    rounds=rounds,
                    blocks_per_sm=blocks,
                )

    return _domain(configs())


@cache
def _with_rings() -> Columns:
    return _domain(_rings())


def _rings() -> Iterator[NormConfig]:
    for kind, copies, barrier, (producers, consumers, split) in _forms():
        blocks = 16 // (producers + consumers) if split else 1
        for (groups, team), (hold, stores), depth, chunk, rounds in product(
            _groupings(consumers), HELD, DEPTHS, CHUNKS, (0, 8)
        ):
            if rounds and (depth > 2 or copies != "bulk" or hold != "registers"):
                continue  # a block that ends soon has little use for a deep ring
            if stores == "bulk" and copies != "bulk":
                continue
            yield NormConfig(
                kind,
                consumers,
                producers,
                groups,
                team,
                copies=copies,
                barrier=barrier,
                depth=depth,
                chunk_bytes=chunk,
                hold=hold,
                stores=stores,
                rounds=rounds,
                blocks_per_sm=blocks,
                register_split=split,
            )


def _groupings(consumers: int) -> list[tuple[int, int]]:
    """(groups, team): every warp for itself, all warps in one group or in groups of four, there in
    teams of one warp, of four and of all."""
    found = [(consumers, 1)]
    for warps in {4, consumers}:
        if consumers % warps == 0:
            found += [
                (consumers // warps, team) for team in {1, 2, 3, 4, warps} if warps % team == 0
            ]
    return sorted(set(found))


def _forms() -> Iterator[tuple[str, str, str, tuple[int, int, int]]]:
    """Kind, copies, barrier and (producers, consumers, register_split)."""
    for warps in (4, 8, 16):
        yield "ring", "bulk", "mbarrier", (0, warps, 0)
        yield "ring", "async", "mbarrier", (0, warps, 0)
    for consumers in (3, 4, 7, 8, 12, 15):
        yield "specialised", "bulk", "mbarrier", (1, consumers, 0)
    for producers, consumers in ((4, 12), (4, 4)):
        yield "specialised", "bulk", "mbarrier", (producers, consumers, 1)
    for warps in (4, 8, 16):
        for producers in (n for n in (1, 2, 4, 8) if 2 * n <= warps):
            consumers = warps - producers
            for copies, barrier in (
                ("vector", "named"),
                ("vector", "mbarrier"),
                ("async", "mbarrier"),
            ):
                yield "specialised", copies, barrier, (producers, consumers, 0)
                if (producers, consumers) in family.SPLIT_REGISTERS:
                    yield "specialised", copies, barrier, (producers, consumers, 1)
