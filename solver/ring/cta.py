"""A CTA's whole barrier program: a common start, the ring and the epilogue, a common end."""

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
    Program,
    Step,
    Sync,
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
            programs[f"math{warp}"] = (*self._start(), *self._math(warp, units), *self._end())
        for warp in range(self.ring.dma_warps + self.idle_warps):
            role = self.ring.dma(warp, iterations) if warp < self.ring.dma_warps else ()
            set_up = self._set_up() if warp == 0 else ()
            programs[f"dma{warp}"] = (*set_up, *self._start(), *role, *self._end())
        return programs

    def _math(self, warp: int, units: Sequence[Unit]) -> Iterator[Step]:
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


_CLUSTER = (Step(ClusterArrive()), Step(ClusterWait()))
