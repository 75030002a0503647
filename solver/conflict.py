"""Why constraints leave nothing: a minimal core, and the least change to each of its members.

Every legal configuration breaks a set of the user's bounds; bounds clash where each such set
meets them. Only the user's bounds are ever dropped: what is legal is never in question.

A launch's power depends on how many SMs it takes. A bound on it is held against what launches draw
on as many SMs as the user's bounds leave, all of these together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.constraints import POWER, Bound, Constraints, row_column
from solver.errors import InvalidInput
from solver.recurrence import Ticks
from solver.table import Table


@dataclass(frozen=True, slots=True)
class Relaxation:
    """The least change of one bound that leaves something; ``widened`` is None where no
    change of this one alone does, because others clash too."""

    bound: Bound
    widened: Bound | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: the path, the value given and the value that would do."""
        return {
            "path": self.bound.path,
            "given": self.bound.given,
            "relaxed": None if self.widened is None else self.widened.given,
        }


class Unsatisfiable(InvalidInput):
    """No legal configuration satisfies the constraints.

    ``core`` lists the paths of a minimal set of bounds that clash, ``relaxations`` the least
    change of each as JSON.
    """

    def __init__(self, core: tuple[str, ...], relaxations: tuple[dict[str, Any], ...]) -> None:
        super().__init__("constraints", _words(core, relaxations))
        self.core, self.relaxations = core, relaxations

    def __reduce__(self) -> Any:
        """Pickled by its parts: errors cross process pools."""
        return type(self), (self.core, self.relaxations)


def _words(core: Sequence[str], relaxations: Sequence[dict[str, Any]]) -> str:
    changes = [
        f"{each['path']} = {each['relaxed']}" for each in relaxations if each["relaxed"] is not None
    ]
    clash = (
        f"no legal configuration satisfies {core[0]}"
        if len(core) == 1
        else f"no legal configuration satisfies {', '.join(core[:-1])} and {core[-1]} together"
    )
    if not changes:
        this = "it" if len(core) == 1 else "one of these"
        return f"{clash}; changing {this} alone is not enough, other constraints clash too"
    return f"{clash}; the least change that leaves one: {', or '.join(changes)}"


def find_conflict(
    free: Table, priced: Table, constraints: Constraints, repriced: Callable[[Constraints], Table]
) -> Unsatisfiable:
    """The conflict of constraints that no row of ``priced`` satisfies.

    ``free`` is the legal space priced without them, so that ``works.active`` is the most CTAs a row
    can have; it may have any fewer that are whole clusters. ``priced`` is the same for the CTAs
    that they leave, ``repriced`` makes it for others.
    """
    cases = _Cases.of(free, priced, constraints.bounds)
    core = list(range(len(constraints.bounds)))
    for index in range(len(constraints.bounds)):
        rest = [each for each in core if each != index]
        if not cases.satisfiable(rest):
            core = rest
    members = [constraints.bounds[i] for i in core]
    relaxations = tuple(_relax(cases, constraints, i, repriced).to_dict() for i in core)
    return Unsatisfiable(tuple(b.path for b in members), relaxations)


def broken_sets(free: Table, priced: Table, bounds: Sequence[Bound]) -> tuple[tuple[int, ...], ...]:
    """Distinct sets of bounds, by index, that a row breaks with some number of CTAs.

    ``free`` and ``priced`` are as ``find_conflict`` takes them.
    """
    return _Cases.of(free, priced, tuple(bounds)).broken(range(len(bounds)))


def _relax(
    cases: _Cases,
    constraints: Constraints,
    index: int,
    repriced: Callable[[Constraints], Table],
) -> Relaxation:
    """The least change of one bound with which some row satisfies all bounds."""
    bound = constraints.bounds[index]
    if bound.variable != "sms" or constraints.on_power is None:
        return cases.relax(index)
    # Power follows the SMs: each count is asked, the nearest first.
    for value in cases.near(index):
        widened = bound.widened(value)
        changed = constraints.replace(bound, widened)
        if changed.restrict(repriced(changed)).size:
            return Relaxation(bound, widened)
    return Relaxation(bound, None)


@dataclass(frozen=True, slots=True)
class _Cases:
    """Which bounds each row breaks, those on SMs apart: a row may have any number of CTAs up
    to ``most`` that ``cluster`` divides.

    ``mask`` [R] has bit i set where the row breaks bound i; ``mask_at`` the same for each
    number of CTAs, from 0 (which none may have: all bits set). Prices are those of ``priced``.
    """

    priced: Table
    bounds: tuple[Bound, ...]
    work: Ticks
    kernel: Ticks
    most: Ticks
    cluster: Ticks
    mask: Ticks
    mask_at: Ticks

    @classmethod
    def of(cls, free: Table, priced: Table, bounds: tuple[Bound, ...]) -> _Cases:
        work, kernel = free.rows(np.arange(len(free.first)))
        most = free.works.active[work]
        mask = np.zeros(len(work), dtype=np.int64)
        counts = np.arange(int(most.max()) + 1, dtype=np.int64)
        mask_at = np.zeros(len(counts), dtype=np.int64)
        for i, bound in enumerate(bounds):
            if bound.variable == "sms":
                mask_at |= np.where(bound.holds(counts), 0, 1 << i)
                continue
            column = row_column(priced, bound.variable, work, kernel)
            mask |= np.where(bound.holds(column), 0, 1 << i)
        return cls(priced, bounds, work, kernel, most, free.works.cluster[work], mask, mask_at)

    def _rows(self, bits: int) -> Ticks:
        """Rows that break none of the bounds in ``bits`` with some number of CTAs."""
        found = np.zeros(len(self.mask), dtype=bool)
        for ctas in np.unique(self.cluster):
            counts = self._counts(bits, ctas)
            if counts.size:
                found |= (self.cluster == ctas) & (self.most >= counts[0])
        return np.flatnonzero(found & (self.mask & bits == 0))

    def _counts(self, bits: int, ctas: int) -> Ticks:
        """Numbers of CTAs in clusters of ``ctas`` that break none of the bounds in ``bits``,
        ascending."""
        counts: Ticks = np.arange(ctas, len(self.mask_at), ctas)
        allowed: Ticks = counts[self.mask_at[counts] & bits == 0]
        return allowed

    def satisfiable(self, members: Sequence[int]) -> bool:
        """Whether some row satisfies these bounds."""
        return self._rows(sum(1 << i for i in members)).size > 0

    def broken(self, members: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Distinct sets of members, by position, that a row with some CTAs breaks."""
        bits = sum(1 << i for i in members)
        seen: set[int] = set()
        masks = self.mask & bits
        for mask, ctas in np.unique(np.stack([masks, self.cluster], axis=1), axis=0):
            most = int(self.most[(masks == mask) & (self.cluster == ctas)].max())
            seen |= set((mask | self.mask_at[ctas : most + 1 : ctas] & bits).tolist())
        return tuple(
            tuple(at for at, i in enumerate(members) if mask >> i & 1) for mask in sorted(seen)
        )

    def relax(self, index: int) -> Relaxation:
        """The least change of one bound with which some row satisfies all bounds."""
        bound = self.bounds[index]
        others = sum(1 << i for i in range(len(self.bounds)) if i != index)
        rows = self._rows(others)
        if not rows.size:
            return Relaxation(bound, None)
        if bound.variable == "sms":
            values = self._launchable(rows, others)
        else:
            values = row_column(self.priced, bound.variable, self.work[rows], self.kernel[rows])
        away = bound.distance(values)
        return Relaxation(bound, bound.widened(int(values[away == away.min()].min())))

    def near(self, index: int) -> list[int]:
        """Numbers of CTAs outside a bound on them that no other bound on them rules out and some
        row can have, whatever its power: the nearest first."""
        bound = self.bounds[index]
        on_power = sum(1 << i for i, b in enumerate(self.bounds) if b.variable == POWER)
        others = sum(1 << i for i in range(len(self.bounds)) if i != index) & ~on_power
        rows = self._rows(others)
        if not rows.size:
            return []
        values = np.unique(self._launchable(rows, others))
        values = values[~bound.holds(values)]
        nearest: list[int] = values[np.argsort(bound.distance(values), kind="stable")].tolist()
        return nearest

    def _launchable(self, rows: Ticks, bits: int) -> Ticks:
        """Numbers of CTAs that some of the rows can have and none of the bounds in ``bits`` rules
        out."""
        return np.concatenate(
            [
                counts[counts <= self.most[rows[self.cluster[rows] == ctas]].max()]
                for ctas in np.unique(self.cluster[rows])
                for counts in (self._counts(bits, ctas),)
            ]
        )
