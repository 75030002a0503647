"""A CTA's whole barrier program: a common start, the ring and the epilogue, a common end.

A launch may begin while the one before it in the stream runs, and first of all lets the next one do
the same. Barriers are set up meanwhile; each lane that touches memory which other launches
see waits for the end of the one before, at the start of its role. Since every CTA has such
lanes, a launch ends after the one before it, and so after all before that one
(``solver.z3_ring.prove_launches``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from solver.ring.epilogue import Epilogue, Unit
from solver.ring.program import Ring
from solver.ring.steps import (
    ASYNC_FENCE,
    INIT_FENCE,
    ClusterArrive,
    ClusterWait,
    LetNextLaunchBegin,
    Program,
    Step,
    Sync,
    WaitForLaunchBefore,
)

PLAIN = Epilogue()
WHOLE_BLOCK = 0  # the barrier of __syncthreads


@dataclass(frozen=True, slots=True)
class Cta:
    """A CTA of a launch; both of a cluster do the same. ``idle_warps`` are DMA warps beside the
    ring's own that only fill up the block."""

    ring: Ring
    epilogue: Epilogue = PLAIN
    idle_warps: int = 0

    def programs(self, units: Sequence[Unit]) -> dict[str, Program]:
        """Every warp's program, by name, MATH warps first as they lie in the block."""
        iterations = sum(unit.iterations for unit in units)
        programs = {}
        for warp in range(self.ring.math_warps):
            role = self._math(warp, units)
            programs[f"math{warp}"] = (_FIRST, *self._start(), *role, *self._end())
        for warp in range(self.ring.dma_warps + self.idle_warps):
            role = self._dma(warp, iterations)
            set_up = self._set_up() if warp == 0 else ()
            programs[f"dma{warp}"] = (_FIRST, *set_up, *self._start(), *role, *self._end())
        return programs

    def _dma(self, warp: int, iterations: int) -> Iterator[Step]:
        if warp < self.ring.dma_warps:
            yield Step(WaitForLaunchBefore(), 1)
            yield from self.ring.dma(warp, iterations)

    def _math(self, warp: int, units: Sequence[Unit]) -> Iterator[Step]:
        yield Step(WaitForLaunchBefore())
        first = 0
        for at, unit in enumerate(units):
            yield from self.ring.math(first, unit.iterations)
            yield from self.epilogue.steps(warp, self.ring.math_warps, units, at)
            first += unit.iterations
        yield from self.epilogue.end(warp)

    def _set_up(self) -> Iterator[Step]:
        yield from self.ring.inits()
        lanes = (1 << self.ring.slots) - 1
        yield Step(INIT_FENCE, lanes)
        yield Step(ASYNC_FENCE, lanes)

    def _start(self) -> Iterator[Step]:
        """Nobody, here or in the cluster, uses a barrier that is not initialised."""
        if self.ring.ctas > 1:
            yield from _CLUSTER
        else:
            warps = self.ring.math_warps + self.ring.dma_warps + self.idle_warps
            yield Step(Sync(WHOLE_BLOCK, warps))

    def _end(self) -> Iterator[Step]:
        """Nobody leaves while the peer may still load into it or arrive at its barriers."""
        if self.ring.ctas > 1:
            yield from _CLUSTER


_FIRST = Step(LetNextLaunchBegin())
_CLUSTER = (Step(ClusterArrive()), Step(ClusterWait()))
