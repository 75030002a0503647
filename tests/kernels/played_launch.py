"""A launch of the debug build played without a GPU, as far as its warps get.

One generator a warp, step by step as in ``kernels/cuda``, with barriers as the hardware has
them and copies that land at once. What is left when nobody can move are the records of a hang.
Faults are planted by name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from kernels.launch_plan import LaunchPlan
from kernels.progress import RECORD, Place, records_of

Steps = Iterator[Callable[[], bool]]  # each step ends where the warp waits for something

FAULTS = (
    "a missing release",
    "a full count too high",
    "an empty count too high",
    "a DMA phase off by one",
    "a whole-block barrier in one branch",
    "a missing remote arrive",
    "bytes that nobody delivers",
    "a reduction's barrier that counts too many",
    "a warp that takes one epilogue barrier less",
)


class Mbarrier:
    """Completes a phase once ``count`` have arrived and all expected bytes have landed."""

    def __init__(self, count: int) -> None:
        self.count = self.left = count
        self.bytes = self.phase = 0

    def arrive(self, tx_bytes: int = 0) -> None:
        self.left -= 1
        self.land(-tx_bytes)

    def land(self, tx_bytes: int) -> None:
        self.bytes -= tx_bytes
        if self.left == 0 and self.bytes == 0:
            self.left, self.phase = self.count, self.phase ^ 1

    def completed(self, parity: int) -> bool:
        return self.phase != parity


class WarpBarrier:
    """A barrier of ``count`` whole warps, used again and again."""

    def __init__(self, count: int) -> None:
        self.count, self.here, self.turn = count, 0, 0

    def sync(self) -> Steps:
        turn = self.turn
        self.here += 1
        if self.here == self.count:
            self.here, self.turn = 0, turn + 1
        yield lambda: self.turn != turn


@dataclass(frozen=True)
class Stop:
    """A warp that gets no further than a k-iteration, counted from 1 over all its units."""

    cta: int
    warp: int
    iteration: int


class Played:
    """All warps of a launch. ``play`` runs them until none can move."""

    def __init__(
        self, plan: LaunchPlan, fault: str | None = None, stop: Stop | None = None
    ) -> None:
        assert fault is None or fault in FAULTS
        self.plan, self.config = plan, plan.config
        self.fault, self.stop = fault, stop
        self.math_warps = 4 * self.config.math_warpgroups
        self.records = np.zeros((plan.grid, plan.warps), RECORD)
        slots, ctas = range(self.config.stages), range(plan.grid)
        full = self.config.dma_warps + (fault == "a full count too high")
        empty = self.math_warps * plan.cluster + (fault == "an empty count too high")
        self.full = [[Mbarrier(full) for _ in slots] for _ in ctas]
        self.empty = [[Mbarrier(empty) for _ in slots] for _ in ctas]
        over = fault == "a reduction's barrier that counts too many"
        self.reduce = [WarpBarrier(self.math_warps + over) for _ in ctas]
        self.block = [WarpBarrier(plan.warps) for _ in ctas]
        self.groups = [[WarpBarrier(4) for _ in range(self.config.math_warpgroups)] for _ in ctas]
        self.products = [[WarpBarrier(4) for _ in groups] for groups in self.groups]
        clusters = range(plan.grid // plan.cluster)
        self.together = [WarpBarrier(plan.cluster * plan.warps) for _ in clusters]
        self.arrived: dict[int, int] = {}  # by tile

    def at(self, cta: int, warp: int, place: Place, slot: int, iterations: int, unit: int) -> None:
        self.records[cta, warp] = (place, slot, iterations, unit)

    def units(self, cta: int) -> Iterator[tuple[int, int]]:
        """(unit, its k-iterations) in the order of a CTA."""
        split = self.config.split_k
        share, remainder = divmod(-(-self.plan.problem.k // self.config.tile_k), split)

        def first(s: int) -> int:
            return s * share + s * remainder // split

        cluster = self.plan.cluster
        stride = self.plan.grid // cluster
        for unit in range(cta // cluster, self.plan.units // cluster, stride):
            yield unit, first(unit % split + 1) - first(unit % split)

    def enter(self, cta: int) -> Steps:
        """The barrier before the roles part."""
        clustered = self.plan.cluster > 1
        barrier = self.together[cta // self.plan.cluster] if clustered else self.block[cta]
        yield from barrier.sync()

    def leave(self, cta: int) -> Steps:
        if self.plan.cluster > 1:
            yield from self.together[cta // self.plan.cluster].sync()

    def release(self, cta: int, slot: int) -> None:
        self.empty[cta][slot].arrive()
        if self.plan.cluster > 1 and self.fault != "a missing remote arrive":
            self.empty[cta ^ 1][slot].arrive()

    def math(self, cta: int, warp: int) -> Steps:
        config, fault = self.config, self.fault
        at = partial(self.at, cta, warp)
        at(Place.SET_UP, 0, 0, 0)
        yield from self.enter(cta)
        slot = phase = iterations = 0
        skips = warp == 1 and fault == "a missing release"
        for unit, length in self.units(cta):
            if fault == "a whole-block barrier in one branch":
                yield from self.block[cta].sync()
            held: int | None = None
            for _ in range(length):
                iterations += 1
                at(Place.WAITS_FULL, slot, iterations, unit)
                yield partial(self.full[cta][slot].completed, phase)
                at(Place.MULTIPLIES, slot, iterations, unit)
                if self.stop == Stop(cta, warp, iterations):
                    yield lambda: False
                # wgmma takes all four warps of a warpgroup: seen on an H200.
                yield from self.products[cta][warp // 4].sync()
                given, held = (held, slot) if config.mma_in_flight else (slot, None)
                if given is not None and not skips:
                    self.release(cta, given)
                slot, phase = (slot + 1, phase) if slot + 1 < config.stages else (0, phase ^ 1)
            if held is not None:
                self.release(cta, held)
            if config.split_k > 1:
                at(Place.REDUCES, 0, iterations, unit)
                yield from self.reduce[cta].sync()
                tile = unit // config.split_k * self.plan.cluster + cta % self.plan.cluster
                if warp == 0:
                    self.arrived[tile] = self.arrived.get(tile, 0) + 1
                    last = self.arrived[tile] == config.split_k
                    self.last = {**getattr(self, "last", {}), (cta, unit): last}
                yield from self.reduce[cta].sync()
                if not self.last[cta, unit]:
                    continue
            at(Place.STORES, 0, iterations, unit)
            less = warp == 1 and fault == "a warp that takes one epilogue barrier less"
            for _ in range(2 - less):
                yield from self.groups[cta][warp // 4].sync()
        at(Place.DONE, 0, iterations, unit)
        yield from self.leave(cta)

    def dma(self, cta: int, warp: int) -> Steps:
        config, plan = self.config, self.plan
        own = warp - self.math_warps
        at = partial(self.at, cta, warp)
        at(Place.SET_UP, 0, 0, 0)
        yield from self.enter(cta)
        slot = iterations = unit = 0
        phase = int(self.fault != "a DMA phase off by one")
        for unit, length in self.units(cta) if own < config.dma_warps else ():
            for _ in range(length):
                iterations += 1
                at(Place.WAITS_EMPTY, slot, iterations, unit)
                yield partial(self.empty[cta][slot].completed, phase)
                at(Place.LOADS, slot, iterations, unit)
                if self.stop == Stop(cta, warp, iterations):
                    yield lambda: False
                loads = []
                if own == 0:
                    loads.append((plan.a.tx_bytes, config.cluster_n))
                if own == config.dma_warps - 1:
                    loads.append((plan.b.tx_bytes, config.cluster_m))
                extra = 16 if self.fault == "bytes that nobody delivers" else 0
                self.full[cta][slot].arrive(sum(tx for tx, _ in loads) + extra)
                for tx_bytes, sharers in loads:
                    for to in {cta} if sharers == 1 else {cta, cta ^ 1}:
                        self.full[to][slot].land(tx_bytes // sharers)
                slot, phase = (slot + 1, phase) if slot + 1 < config.stages else (0, phase ^ 1)
        at(Place.DONE, 0, iterations, unit)
        yield from self.leave(cta)

    def play(self, seed: int = 0) -> np.ndarray:
        """The records once nobody can move, whatever order the warps went in."""
        order = random.Random(seed)
        roles = [
            (self.math if warp < self.math_warps else self.dma)(cta, warp)
            for cta in range(self.plan.grid)
            for warp in range(self.plan.warps)
        ]
        waiting: list[tuple[Steps, Callable[[], bool]]] = [(role, lambda: True) for role in roles]
        moved = True
        while moved:
            moved = False
            order.shuffle(waiting)
            for i, (role, ready) in enumerate(waiting):
                if ready():
                    moved = True
                    waiting[i] = (role, next(role, lambda: False))
        return records_of(self.records.tobytes(), self.plan)
