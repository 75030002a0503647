"""The partial sums of a PTX run with split-K: that each lies where it belongs in the workspace.

A partial tile is [warpgroup][quad][thread] of four floats, and a thread's accumulators are its
quads in their order. Tiles follow one another, in each the splits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kernels.barrier_collect import Collector, Handler, refuse
from kernels.launch_plan import LaunchPlan
from kernels.launch_units import WorkUnit
from kernels.ptx_events import Event
from kernels.ptx_parser import PtxError
from solver.families import sm90_gemm as family
from solver.ring.steps import LoadPartial, StorePartial

WORKSPACE_BASE = 1 << 53
QUAD_BYTES = 16


class Partials:
    """Follows every thread's accesses to the workspace. ``handlers`` by opcode.

    A thread stores the quads of its units one after the other. What it loads are those of every
    split of the tile it stored to last, in the order of the splits: the sum is always the same.
    """

    def __init__(self, plan: LaunchPlan, work: Sequence[WorkUnit], collector: Collector) -> None:
        config = plan.config
        self._collector = collector
        self._splits = config.split_k
        accumulators = family.accumulators(config.tile_m, config.tile_n, config.math_warpgroups)
        self._quads = int(accumulators) // 4  # of a thread
        thread = np.arange(plan.threads)
        warpgroup, within = np.divmod(thread, family.WARPGROUP)
        self._own = warpgroup * self._quads * family.WARPGROUP + within
        self._tile = config.tile_m * config.tile_n // 4  # quads
        self._parts = np.array([unit.tile * config.split_k + unit.split for unit in work])
        self._stored = np.zeros(plan.threads, np.int64)
        self._loaded = np.zeros(plan.threads, np.int64)
        self.handlers: dict[str, Handler] = {
            "ld.global.cg.v4.f32": self._load,
            "st.global.cg.v4.f32": self._store,
        }

    def _store(self, event: Event) -> None:
        unit, quad = np.divmod(self._stored, self._quads)
        within = unit < len(self._parts)
        part = self._parts[np.where(within, unit, 0)]
        self._require(event, part, quad, within, "where this partial sum belongs")
        self._stored += event.lanes
        self._collector.add_to_all(event, StorePartial())

    def _load(self, event: Event) -> None:
        unit, unfinished = np.divmod(self._stored, self._quads)
        split, quad = np.divmod(self._loaded, self._quads)
        within = (unit > 0) & (unfinished == 0) & (split < self._splits)
        first = self._parts[unit - 1] // self._splits * self._splits
        self._require(event, first + split, quad, within, "the next of its tile's partial sums")
        self._loaded += event.lanes
        self._collector.add_to_all(event, LoadPartial())

    def _require(
        self,
        event: Event,
        part: npt.NDArray[np.int64],
        quad: npt.NDArray[np.int64],
        within: npt.NDArray[np.bool_],
        what: str,
    ) -> None:
        belongs = part * self._tile + self._own + quad * family.WARPGROUP
        offset = event.values[0].astype(np.int64) - WORKSPACE_BASE
        refuse(event, ~within | (offset != belongs * QUAD_BYTES), what)

    def require_whole(self, event: Event) -> None:
        """Raise PtxError where a thread comes to a barrier, or its end, with some of a unit's
        sums stored, or some of a tile's loaded."""
        loaded = np.isin(self._loaded, (0, self._splits * self._quads))
        whole = (self._stored % self._quads == 0) & loaded
        if not whole[event.lanes].all():
            raise PtxError(f"{event.instruction}: partial sums are left unfinished")
        self._loaded[event.lanes] = 0
