"""The epilogue's barrier program: from accumulators to C, by way of staging buffers.

With split-K every CTA of a tile first writes its partial sums to a workspace and counts itself;
the one that finds all others counted reads them back. Barrier 15 takes all MATH warps, before the
count and after it: the counting thread speaks for all of them, then tells all of them.

A piece of C goes through one of a warpgroup's two staging buffers, in turn. The warpgroup's own
barrier, 1 + its number, separates what its warps write from what reads it: TMA, or every thread
storing elements. Where C is added, its elements are brought into the buffer first, and the
barrier comes once more. The thread that stores passes it only after the store before has read its
buffer, the one that is filled next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from solver.ring.program import WARPGROUP_WARPS
from solver.ring.steps import (
    ASYNC_FENCE,
    GPU_FENCE,
    CountTile,
    Fill,
    LoadFlag,
    LoadPartial,
    ReadFilled,
    ReadStaged,
    Stage,
    Step,
    Store,
    StoreCommit,
    StoreFlag,
    StorePartial,
    StoreWait,
    Sync,
)

REDUCE_BARRIER = 15
STAGING_BUFFERS = 2


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit of work: ``iterations`` of k, and the ``pieces`` of C that lie in its tile, for
    each warpgroup. ``last``: this CTA is the last of its tile, and so the one that stores it."""

    iterations: int
    pieces: tuple[int, ...] = ()
    last: bool = True


@dataclass(frozen=True, slots=True)
class Epilogue:
    """How a launch's MATH warps store: ``splits`` CTAs of a tile; C by TMA or element by
    element; ``adds`` to what C holds."""

    splits: int = 1
    by_tma: bool = True
    adds: bool = False

    def steps(self, warp: int, warps: int, units: Sequence[Unit], at: int) -> Iterator[Step]:
        """What MATH warp ``warp`` of ``warps`` does after the k-iterations of ``units[at]``."""
        unit = units[at]
        if self.splits > 1:
            yield from self._reduce(warp, warps, unit.last)
        if self._stores(unit):
            warpgroup = warp // WARPGROUP_WARPS
            before = sum(u.pieces[warpgroup] for u in units[:at] if self._stores(u))
            for piece in range(before, before + unit.pieces[warpgroup]):
                yield from self._piece(warp, piece % STAGING_BUFFERS)

    def end(self, warp: int) -> Iterator[Step]:
        """The last that a MATH warp does: shared memory must outlive the stores that read it."""
        if warp % WARPGROUP_WARPS == 0:
            yield Step(StoreWait(0), 1)

    def _stores(self, unit: Unit) -> bool:
        return bool(unit.pieces) and (unit.last or self.splits == 1)

    def _reduce(self, warp: int, warps: int, last: bool) -> Iterator[Step]:
        everybody = Step(Sync(REDUCE_BARRIER, warps))
        yield Step(StorePartial())
        yield Step(GPU_FENCE)
        yield everybody
        if warp == 0:
            yield Step(GPU_FENCE, 1)
            yield Step(CountTile(self.splits - 1), 1)
            yield Step(GPU_FENCE, 1)
            yield Step(StoreFlag(), 1)
        yield everybody
        yield Step(LoadFlag(last))
        if last:
            yield Step(GPU_FENCE)
            yield Step(LoadPartial())

    def _piece(self, warp: int, buffer: int) -> Iterator[Step]:
        warpgroup, number = divmod(warp, WARPGROUP_WARPS)
        together = Step(Sync(1 + warpgroup, WARPGROUP_WARPS))
        if self.adds:
            yield Step(Fill(warpgroup, buffer))
            yield together
            yield Step(ReadFilled(warpgroup, buffer))
        yield Step(Stage(warpgroup, buffer))
        if not self.by_tma:
            yield together
            yield Step(ReadStaged(warpgroup, buffer))
            return
        yield Step(ASYNC_FENCE)
        if number == 0:
            yield Step(StoreWait(0), 1)
        yield together
        if number == 0:
            yield Step(Store(warpgroup, buffer), 1)
            yield Step(StoreCommit(), 1)
