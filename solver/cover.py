"""Groups of works that one bound refutes: the branch and bound before the proof.

Works are put in an order in which neighbours are alike and a binary tree is laid over them;
each node carries the componentwise best of its works' parameters, so that the closed form
there bounds the time of every row below it, and with the longest busy time the wait, and so
on. Walking down, a node that its bounds refute becomes a group; what is left at the leaves
must be refuted row by row. numpy only proposes here: the prover asserts every bound anew.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from solver.errors import ProofError
from solver.recurrence import NUMPY, Algebra, Ticks, busy_ticks, chain_ticks, run_end
from solver.table import DYNAMIC, STATIC, Mask, Table

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
"""Parameters of a time bound, in the order of a group's row; ``frame`` is time outside the
waves."""

RESOURCES = ("smem_bytes", "registers", "static", "dynamic")
"""The last two are those of energy: watts for each tick of time, and energy ticks besides."""
EXTREMES = (*PARAMETERS, *RESOURCES, "busy")
"""What bounds all values: ``busy`` is a CTA's longest MATH and epilogue time."""

_DECREASING = np.array([[name in ("early", "slots", "busy")] for name in EXTREMES])
_SIGN = np.where(_DECREASING, -1, 1)

CHAIN, CLOSED, VALUES = range(3)
"""How a group is refuted: its time by the chain bound or the closed form, or all its values."""

Beaten = Callable[[tuple[Ticks, ...]], Mask]
"""Which lower bounds (time, wait, smem, registers, energy) of groups refute all rows under them."""


@dataclass(frozen=True, slots=True)
class Cover:
    """A partition of a table's works: G groups with their bounds, and the works left open.

    ``order`` [W] lists works so that group g is ``order[start[g] : stop[g]]``; ``best``
    [E, G] holds each group's extremes, ``how`` [G] which bound is enough; ``limits`` [E, W] are
    the works' own extremes.
    """

    order: Ticks
    start: Ticks
    stop: Ticks
    best: Ticks
    how: Ticks
    open_works: Ticks
    limits: Ticks


def row_numbers(table: Table, work: Ticks, kernel: Ticks) -> Ticks:
    """The numbers of rows that bounds are made of. Shape [E, R], in EXTREMES' order."""
    w, k = table.works, table.kernels
    slots = k.slots[kernel]
    columns = (
        w.load_at(work, slots),
        *(column[work] for column in (w.latency, w.math, w.early, w.epilogue)),
        slots,
        *(column[work] for column in (w.iterations, w.units, w.waves)),
        (w.fixed + w.store)[work] + k.setup[kernel],
        k.smem_bytes[kernel],
        k.registers[kernel],
        *(w.power[name][work] if w.power else np.zeros_like(slots) for name in (STATIC, DYNAMIC)),
        busy_ticks(w)[work],
    )
    return np.stack(columns)


def work_extremes(table: Table, numbers: Ticks | None = None) -> Ticks:
    """The extremes over each work's rows. Shape [E, W], in EXTREMES' order.

    ``numbers`` are those of all rows of the table, where they are known.
    """
    if numbers is None:
        numbers = all_numbers(table)
    starts = np.cumsum(table.count) - table.count
    least: Ticks = np.minimum.reduceat(numbers * _SIGN, starts, axis=1) * _SIGN
    return least


def all_numbers(table: Table) -> Ticks:
    """The numbers of every row of a table. Shape [E, R]."""
    return row_numbers(table, *table.rows(np.arange(len(table.first))))


def best_extremes(extremes_of: Ticks) -> Ticks:
    """The componentwise best of several works' extremes. [E, W] → [E]."""
    best: Ticks = (extremes_of * _SIGN).min(axis=1) * _SIGN[:, 0]
    return best


def named(values: Any) -> Any:
    """Extremes under their names, to evaluate bounds at: of one group [E], or of many [E, N]."""
    return SimpleNamespace(**dict(zip(EXTREMES, values, strict=True)))


def time_bound(p: Any, ops: Algebra) -> tuple[Any, Any]:
    """(time, critical CTA's end) that no row under the extremes ``p`` beats, in any algebra."""
    end = run_end(p, ops)
    return p.frame + p.waves * end, end


def value_bounds(p: Any, ops: Algebra) -> tuple[Any, Any, Any, Any, Any]:
    """Lower bounds of time, wait, shared memory, registers and energy under the extremes ``p``.

    A CTA waits at least for its first load, and at least its end less its longest busy time.
    """
    time, end = time_bound(p, ops)
    wait = p.waves * ops.maximum(p.latency + p.load, end - p.busy)
    return time, wait, p.smem_bytes, p.registers, p.static * time + p.dynamic


def open_cover(table: Table, numbers: Ticks, by: str = "") -> Cover:
    """No groups, every work open, neighbours alike; ``numbers`` are those of all rows.

    Works may be ordered ``by`` one of RESOURCES first: works that are alike in time differ in
    these.
    """
    w, limits = table.works, work_extremes(table, numbers)
    alike = (w.load, w.iterations, w.units)
    order = np.lexsort((*alike, limits[EXTREMES.index(by)]) if by in RESOURCES else alike)
    none = np.zeros(0, dtype=np.int64)
    return Cover(order, none, none, np.zeros((len(EXTREMES), 0), np.int64), none, order, limits)


def build_cover(table: Table, time_limit: int | None, beaten: Beaten | None, by: str = "") -> Cover:
    """The groups that are refuted, and the works that are not, ordered as in ``open_cover``.

    A group is refuted where its time must exceed ``time_limit`` or where its value bounds are
    ``beaten``.
    """
    numbers = all_numbers(table)
    unrefuted = open_cover(table, numbers, by)
    order, limits = unrefuted.order, unrefuted.limits
    start, stop, best, how, unrefuted_at = _descend(limits[:, order], time_limit, beaten)
    cover = dataclasses.replace(
        unrefuted, start=start, stop=stop, best=best, how=how, open_works=order[unrefuted_at]
    )
    check_cover(cover, table, numbers)
    return cover


@dataclass(frozen=True, slots=True)
class RowCover:
    """A partition of some rows: G groups of two and more with their bounds, and those left alone.

    ``order`` [R] lists rows so that group g is ``order[start[g] : stop[g]]``, and from the last
    stop on those in no group; ``best`` [E, G] holds each group's extremes.
    """

    order: Ticks
    start: Ticks
    stop: Ticks
    best: Ticks

    @property
    def grouped(self) -> int:
        """Rows in groups."""
        return int((self.stop - self.start).sum())


def build_row_cover(table: Table, work: Ticks, kernel: Ticks, beaten: Beaten) -> RowCover:
    """Groups of rows whose value bounds are ``beaten`` together.

    Rows of a work, which follow one another in ``work``, differ in little but the depth of their
    ring: in its order, neighbours take as long and as much memory. From each row alone on,
    neighbours are joined as long as what bounds both is beaten still.
    """
    numbers = row_numbers(table, work, kernel)
    run = np.cumsum(np.diff(work, prepend=work[:1]) != 0)
    order = np.lexsort((table.kernels.slots[kernel], run))
    best = numbers[:, order] * _SIGN
    start = np.flatnonzero(beaten(value_bounds(named(best * _SIGN), NUMPY)))
    best, stop = best[:, start], start + 1
    joined = True
    while joined:
        joined = False
        for parity in (0, 1):
            left = np.arange(parity, len(start) - 1, 2)
            left = left[stop[left] == start[left + 1]]
            both = np.minimum(best[:, left], best[:, left + 1])
            is_beaten = beaten(value_bounds(named(both * _SIGN), NUMPY))
            left, both = left[is_beaten], both[:, is_beaten]
            best[:, left], stop[left] = both, stop[left + 1]
            start, stop, best = (np.delete(x, left + 1, axis=-1) for x in (start, stop, best))
            joined |= bool(len(left))
    together = stop - start > 1
    start, stop, best = start[together], stop[together], best[:, together] * _SIGN
    members = [order[a:b] for a, b in zip(start, stop, strict=True)]
    size = stop - start
    end = np.cumsum(size)
    alone = np.setdiff1d(np.arange(len(order)), np.concatenate([order[:0], *members]))
    cover = RowCover(np.concatenate([*members, alone]), end - size, end, best)
    check_row_cover(cover, numbers)
    return cover


def check_row_cover(cover: RowCover, numbers: Ticks) -> None:
    """Every row once, and none better in anything than its group.

    ``numbers`` [E, R] are those of the rows. Raises ProofError.
    """
    size = cover.stop - cover.start
    rows = cover.order[: cover.grouped]
    worse = (numbers[:, rows] * _SIGN >= np.repeat(cover.best, size, axis=1) * _SIGN).all()
    whole = np.array_equal(np.sort(cover.order), np.arange(numbers.shape[1]))
    follow = np.array_equal(cover.start, np.cumsum(size) - size)
    if not (worse and whole and follow):
        raise ProofError("the groups do not partition the rows under their own bounds")


def _descend(
    numbers: Ticks, time_limit: int | None, beaten: Beaten | None
) -> tuple[Ticks, Ticks, Ticks, Ticks, Ticks]:
    """Walk down a binary tree over columns of numbers. Shape [E, N].

    Where a group starts and stops, its extremes, how it is refuted; and the columns that nothing
    refutes.
    """
    levels = [numbers * _SIGN]
    while levels[-1].shape[1] > 1:
        nodes = levels[-1]
        if nodes.shape[1] % 2:
            nodes = np.concatenate([nodes, nodes[:, -1:]], axis=1)
        levels.append(np.minimum(nodes[:, 0::2], nodes[:, 1::2]))

    starts: list[Ticks] = []
    stops: list[Ticks] = []
    best: list[Ticks] = []
    how: list[Ticks] = []
    span = 1 << (len(levels) - 1)
    nodes = np.zeros(1, dtype=np.int64)
    for level in reversed(levels):
        nodes = nodes[nodes < level.shape[1]]
        values = level[:, nodes] * _SIGN
        kind = _refutation(values, time_limit, beaten)
        found = np.flatnonzero(kind >= 0)
        starts.append(nodes[found] * span)
        stops.append(np.minimum((nodes[found] + 1) * span, numbers.shape[1]))
        best.append(values[:, found])
        how.append(kind[found])
        nodes = nodes[kind < 0]
        if span > 1:
            nodes = np.stack([2 * nodes, 2 * nodes + 1], axis=1).ravel()
            span //= 2
    return (
        np.concatenate(starts),
        np.concatenate(stops),
        np.concatenate(best, axis=1),
        np.concatenate(how),
        nodes,
    )


def _refutation(values: Ticks, time_limit: int | None, beaten: Beaten | None) -> Ticks:
    """How each node is refuted, -1 where it is not. Shape [N]."""
    p = named(values)
    kind = np.full(values.shape[1], -1, dtype=np.int64)
    bounds = value_bounds(p, NUMPY)
    if beaten is not None:
        kind[beaten(bounds)] = VALUES
    if time_limit is not None:
        kind[bounds[0] > time_limit] = CLOSED
        kind[p.frame + p.waves * chain_ticks(p, NUMPY) > time_limit] = CHAIN
    return kind


def check_cover(cover: Cover, table: Table, numbers: Ticks) -> None:
    """Every work in exactly one group or open, and no row better in anything than its group.

    ``numbers`` [E, R] are those of all rows. Raises ProofError.
    """
    size = cover.stop - cover.start
    group = np.repeat(np.arange(len(size)), size)
    position = (
        np.repeat(cover.start, size)
        + np.arange(len(group))
        - np.repeat(np.cumsum(size) - size, size)
    )
    member = cover.order[position]
    seen = np.bincount(np.concatenate([member, cover.open_works]), minlength=len(table.first))
    group_of = np.full(len(table.first), -1)
    group_of[member] = group
    mine = np.repeat(group_of, table.count)
    grouped = np.flatnonzero(mine >= 0)
    mine = mine[grouped]
    worse = all(
        (sign * of_rows[grouped] >= (sign * of_groups)[mine]).all()
        for (sign,), of_rows, of_groups in zip(_SIGN, numbers, cover.best, strict=True)
    )
    if not ((seen == 1).all() and worse):
        raise ProofError("the groups do not partition the space under their own bounds")
