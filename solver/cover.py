"""Groups of works that one bound refutes: the branch and bound before the proof.

Works are put in an order in which neighbours are alike and a binary tree is laid over
them; each node carries the componentwise best of its works' parameters, so its closed form
is a time that no row below it beats. Walking down, a node whose bound exceeds the claim
becomes a group; what is left at the leaves must be refuted row by row. numpy only proposes
here: the prover asserts every group's bound anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.errors import ProofError
from solver.recurrence import NUMPY, Pipeline, Ticks, chain_ticks, end_ticks
from solver.table import Table

PARAMETERS = (
    "load",
    "latency",
    "math",
    "early",
    "epilogue",
    "slots",
    "iterations",
    "units",
    "waves",
    "frame",
)
"""Parameters of a bound, in the order of a group's row; ``frame`` is time outside the waves."""

_DECREASING = np.array([name in ("early", "slots") for name in PARAMETERS])


@dataclass(frozen=True, slots=True)
class Cover:
    """A partition of a table's works: G groups with their bounds, and the works left open.

    ``order`` [W] lists works so that group g is ``order[start[g] : stop[g]]``; ``best``
    [G, P] holds each group's parameters, ``by_chain`` [G] tells whose chain bound is enough.
    """

    order: Ticks
    start: Ticks
    stop: Ticks
    best: Ticks
    by_chain: np.ndarray[tuple[int], np.dtype[np.bool_]]
    open_works: Ticks


def work_parameters(table: Table) -> Ticks:
    """The best parameters any row of each work has. Shape [W, P], in PARAMETERS' order."""
    w = table.works
    frame = w.fixed + table.setup_min + w.store
    columns = (
        w.load,
        w.latency,
        w.math,
        w.early,
        w.epilogue,
        table.slots_max,
        w.iterations,
        w.units,
        w.waves,
        frame,
    )
    return np.stack(columns, axis=1)


def _pipeline(best: Ticks) -> Pipeline:
    return Pipeline(**{name: best[:, i] for i, name in enumerate(PARAMETERS[:-2])})


def build_cover(table: Table, claim_time: int) -> Cover:
    """The groups refuted by a bound above ``claim_time``, and the works that are not."""
    w = table.works
    order = np.lexsort((w.load, w.iterations, w.units))
    parameters = work_parameters(table)
    sign = np.where(_DECREASING, -1, 1)
    levels = [parameters[order] * sign]
    while len(levels[-1]) > 1:
        nodes = levels[-1]
        if len(nodes) % 2:
            nodes = np.concatenate([nodes, nodes[-1:]])
        levels.append(np.minimum(nodes[0::2], nodes[1::2]))

    starts: list[Ticks] = []
    stops: list[Ticks] = []
    best: list[Ticks] = []
    by_chain: list[Any] = []
    span = 1 << (len(levels) - 1)
    nodes = np.zeros(1, dtype=np.int64)
    for level in reversed(levels):
        nodes = nodes[nodes < len(level)]
        values = level[nodes] * sign
        pipeline = _pipeline(values)
        waves, frame = values[:, -2], values[:, -1]
        chain = waves * chain_ticks(pipeline, NUMPY) + frame > claim_time
        refuted = chain | (waves * end_ticks(pipeline) + frame > claim_time)
        found = nodes[refuted]
        starts.append(found * span)
        stops.append(np.minimum((found + 1) * span, len(order)))
        best.append(values[refuted])
        by_chain.append(chain[refuted])
        nodes = nodes[~refuted]
        if span > 1:
            nodes = np.stack([2 * nodes, 2 * nodes + 1], axis=1).ravel()
            span //= 2
    cover = Cover(
        order=order,
        start=np.concatenate(starts),
        stop=np.concatenate(stops),
        best=np.concatenate(best),
        by_chain=np.concatenate(by_chain),
        open_works=order[nodes],
    )
    check_works(table)
    check_cover(cover, parameters)
    return cover


def check_works(table: Table) -> None:
    """No kernel of a work has a deeper ring or a cheaper set-up than the work's bound uses."""
    work, kernel = table.rows(np.arange(len(table.first)))
    deeper = table.kernels.slots[kernel] > table.slots_max[work]
    cheaper = table.kernels.setup[kernel] < table.setup_min[work]
    if (deeper | cheaper).any():
        raise ProofError("a work's bound leaves out one of its kernels")


def check_cover(cover: Cover, parameters: Ticks) -> None:
    """Every work in exactly one group or open, and none with a better parameter than its group."""
    size = cover.stop - cover.start
    group = np.repeat(np.arange(len(size)), size)
    position = (
        np.repeat(cover.start, size)
        + np.arange(len(group))
        - np.repeat(np.cumsum(size) - size, size)
    )
    member = cover.order[position]
    seen = np.bincount(np.concatenate([member, cover.open_works]), minlength=len(parameters))
    worse = np.where(
        _DECREASING,
        parameters[member] <= cover.best[group],
        parameters[member] >= cover.best[group],
    )
    if not ((seen == 1).all() and worse.all()):
        raise ProofError("the groups do not partition the space under their own bounds")
