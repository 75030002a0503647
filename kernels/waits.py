"""Who waits for whom in a launch that stands still, told from the debug build's records.

What a barrier takes is the protocol's (docs/kernels.md): full[s] one arrival of each DMA warp
and the bytes that land here, a peer's multicast included; empty[s] one of each MATH warp of the
cluster; the other barriers every warp that shares them. Whether a warp has done its part
follows from its place. Nothing here touches a GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from kernels.launch_plan import LaunchPlan
from kernels.progress import Place
from solver.families import sm90_gemm as family

REDUCE_BARRIER = 15  # of all MATH warps; a warpgroup's own is 1 + its index
_WARPGROUP_WARPS = family.WARPGROUP // family.WARP


def named_barrier(identity: int) -> str:
    """The name of a barrier of whole warps by its number."""
    return f"named barrier {identity}"


@dataclass(frozen=True, slots=True)
class Step:
    """A k-iteration: number ``iteration``, from 0, of the ``of`` of a unit of work."""

    unit: int
    iteration: int
    of: int


@dataclass(frozen=True, slots=True)
class Warp:
    """A warp's record. ``name`` is math0 … or dma0 …, as warps lie in the block."""

    cta: int
    index: int
    name: str
    place: Place
    iterations: int
    unit: int

    @property
    def current(self) -> int:
        """The k-iteration it is at, from 0 over all of its units."""
        return self.iterations - 1


@dataclass(frozen=True, slots=True)
class Wait:
    """A barrier of a CTA (of a cluster: of its first) that does not complete.

    ``needs`` are the warps whose arrivals or loads complete it, ``missing`` those of them that
    have not done so by their place, ``passed`` those that have gone past a barrier that others
    wait at. ``step`` is the k-iteration of a warp that waits, None at the first and last barrier;
    ``slot`` is None where the barrier is none of the ring's. ``reuses`` is the k-iteration whose
    slot an empty barrier gives back, None on the first visit to a slot.
    """

    cta: int
    barrier: str
    needs: tuple[Warp, ...]
    missing: tuple[Warp, ...]
    passed: tuple[Warp, ...] = ()
    slot: int | None = None
    step: Step | None = None
    reuses: Step | None = None


class RootKind(StrEnum):
    """Why a chain of waits ends where it does."""

    ABSENT = "absent"  # at warps that have not come and wait at no barrier
    COMPLETE = "complete"  # at a barrier to which all have come
    CIRCLE = "circle"  # at itself


@dataclass(frozen=True, slots=True)
class Root:
    """The end of a chain of waits: the barrier, and who keeps it from completing."""

    kind: RootKind
    wait: Wait
    culprits: tuple[Warp, ...]


@dataclass(frozen=True, slots=True)
class Walk:
    """The units of work that a CTA walks: every ``stride`` from ``first`` below ``units``."""

    first: int
    stride: int
    split_k: int
    k_iterations: int

    units: int

    @classmethod
    def of(cls, plan: LaunchPlan, cta: int) -> Walk:
        """The walk of a CTA of a launch."""
        return cls(
            first=cta // plan.cluster,
            stride=plan.grid // plan.cluster,
            split_k=plan.config.split_k,
            k_iterations=-(-plan.problem.k // plan.config.tile_k),
            units=plan.units // plan.cluster,
        )

    @property
    def total(self) -> int:
        """k-iterations of all its units."""
        last = self.units - 1 - (self.units - 1 - self.first) % self.stride
        return self.before(last) + self.length(last)

    def length(self, unit: int) -> int:
        """k-iterations of a unit."""
        split = unit % self.split_k
        end, begin = (s * self.k_iterations // self.split_k for s in (split + 1, split))
        return end - begin

    def before(self, unit: int) -> int:
        """k-iterations of this CTA's units before one of them."""
        period = self.split_k // math.gcd(self.split_k, self.stride)
        whole, rest = divmod((unit - self.first) // self.stride, period)
        lengths = [self.length(self.first + i * self.stride) for i in range(period)]
        return whole * sum(lengths) + sum(lengths[:rest])

    def step(self, index: int, unit: int) -> Step:
        """The k-iteration ``index``, counted over all units, of ``unit`` or one before it."""
        begin = self.before(unit)
        while index < begin:
            unit -= self.stride
            begin -= self.length(unit)
        return Step(unit, index - begin, self.length(unit))


class Cluster:
    """The warps of one cluster (of one CTA where there are none) as their records leave them.

    ``first`` is its first CTA; ``records`` are ``progress.records_of`` the whole grid's.
    """

    def __init__(self, plan: LaunchPlan, records: np.ndarray[Any, Any], first: int) -> None:
        self.plan = plan
        self.ctas = range(first, first + plan.cluster)
        self.math_warps = plan.config.math_warpgroups * _WARPGROUP_WARPS
        self.warps = tuple(self._warp(records, c, w) for c in self.ctas for w in range(plan.warps))

    def _warp(self, records: np.ndarray[Any, Any], cta: int, index: int) -> Warp:
        place, _, iterations, unit = (int(x) for x in records[cta, index])
        is_math = index < self.math_warps
        name = f"math{index}" if is_math else f"dma{index - self.math_warps}"
        return Warp(cta, index, name, Place(place), iterations, unit)

    def _math(self, cta: int) -> list[Warp]:
        return [w for w in self.warps if w.cta == cta and w.index < self.math_warps]

    def _dma(self, cta: int) -> list[Warp]:
        end = self.math_warps + self.plan.config.dma_warps
        return [w for w in self.warps if w.cta == cta and self.math_warps <= w.index < end]

    def step(self, warp: Warp) -> Step | None:
        """The k-iteration a warp is at; None before its first and after its last."""
        if warp.place <= Place.SET_UP or warp.place is Place.DONE:
            return None
        return Walk.of(self.plan, warp.cta).step(warp.current, warp.unit)

    def wait_of(self, warp: Warp) -> Wait | None:
        """The barrier a warp waits at; None for one that waits at none, or has ended."""
        match warp.place:
            case Place.SET_UP:
                return self._first_barrier(warp)
            case Place.WAITS_EMPTY:
                return self._empty(warp)
            case Place.WAITS_FULL:
                return self._full(warp)
            case Place.REDUCES:
                return self._named(REDUCE_BARRIER, self._math(warp.cta), warp)
            case Place.STORES:
                group = warp.index // _WARPGROUP_WARPS
                first = group * _WARPGROUP_WARPS
                members = self._math(warp.cta)[first : first + _WARPGROUP_WARPS]
                return self._named(1 + group, members, warp)
            case Place.DONE:
                return self._last_barrier()
        return None

    def _first_barrier(self, warp: Warp) -> Wait:
        clustered = self.plan.cluster > 1
        needs = [w for w in self.warps if clustered or w.cta == warp.cta]
        return Wait(
            cta=self.ctas[0] if clustered else warp.cta,
            barrier="cluster's first barrier" if clustered else "block's first barrier",
            needs=tuple(needs),
            missing=tuple(w for w in needs if w.place == Place.NOT_STARTED),
            passed=tuple(w for w in needs if w.place > Place.SET_UP),
        )

    def _last_barrier(self) -> Wait | None:
        missing = tuple(w for w in self.warps if w.place is not Place.DONE)
        if self.plan.cluster == 1 or not missing:
            return None
        return Wait(self.ctas[0], "cluster's last barrier", self.warps, missing)

    def _empty(self, warp: Warp) -> Wait:
        walk, slots = Walk.of(self.plan, warp.cta), self.plan.config.stages
        given_back = warp.current - slots
        needs = [w for cta in self.ctas for w in self._math(cta)]
        missing = [w for w in needs if not self._gave_back(w, given_back)]
        return Wait(
            cta=warp.cta,
            barrier=f"empty[{warp.current % slots}]",
            needs=tuple(needs) if given_back >= 0 else (),
            missing=tuple(missing) if given_back >= 0 else (),
            slot=warp.current % slots,
            step=walk.step(warp.current, warp.unit),
            reuses=walk.step(given_back, warp.unit) if given_back >= 0 else None,
        )

    def _gave_back(self, warp: Warp, index: int) -> bool:
        """Whether a MATH warp has surely given back the slot of a k-iteration."""
        if warp.place <= Place.SET_UP:
            return False
        if warp.place > Place.MULTIPLIES:
            return index < warp.iterations
        step = self.step(warp)
        # One group in flight: the slot before is given back while this one's products run.
        held = self.plan.config.mma_in_flight and step is not None and step.iteration > 0
        return index < warp.current - int(held)

    def _full(self, warp: Warp) -> Wait:
        config = self.plan.config
        needs = self._dma(warp.cta)
        for cta in self.ctas:
            if cta != warp.cta:  # a cluster down C's rows shares B, one along its columns A
                needs = [*needs, self._dma(cta)[-1 if config.cluster_m > 1 else 0]]
        # At LOADS it has announced its bytes, but not all of its loads need be under way.
        missing = [w for w in needs if w.place is not Place.DONE and w.current <= warp.current]
        return Wait(
            cta=warp.cta,
            barrier=f"full[{warp.current % config.stages}]",
            needs=tuple(needs),
            missing=tuple(missing),
            slot=warp.current % config.stages,
            step=Walk.of(self.plan, warp.cta).step(warp.current, warp.unit),
        )

    def _named(self, identity: int, members: list[Warp], warp: Warp) -> Wait:
        """A barrier of MATH warps alone, after the last k-iteration of a unit."""

        def beside(other: Warp) -> int:
            """-1 before this warp's place, 0 at it, 1 past it."""
            if other.place <= Place.SET_UP:
                return -1
            if other.place is Place.DONE:
                return 1
            mine, theirs = (warp.unit, warp.place), (other.unit, other.place)
            return (theirs > mine) - (theirs < mine)

        return Wait(
            cta=warp.cta,
            barrier=named_barrier(identity),
            needs=tuple(members),
            missing=tuple(w for w in members if beside(w) < 0),
            passed=tuple(w for w in members if beside(w) > 0),
            step=Walk.of(self.plan, warp.cta).step(warp.current, warp.unit),
        )

    def roots(self) -> list[Root]:
        """Where the chains of all waits end, each barrier once."""
        found: dict[tuple[int, str], Root] = {}
        for warp in self.warps:
            wait = self.wait_of(warp)
            if wait is not None:
                root = self._root(wait)
                found.setdefault((root.wait.cta, root.wait.barrier), root)
        return list(found.values())

    def _root(self, wait: Wait) -> Root:
        seen: set[tuple[int, str]] = set()
        while wait.missing:
            theirs = [(w, x) for w in wait.missing if (x := self.wait_of(w)) is not None]
            if len(theirs) < len(wait.missing):
                waiting = {w for w, _ in theirs}
                absent = tuple(w for w in wait.missing if w not in waiting)
                return Root(RootKind.ABSENT, wait, absent)
            if (wait.cta, wait.barrier) in seen:
                return Root(RootKind.CIRCLE, wait, wait.missing)
            seen.add((wait.cta, wait.barrier))
            _, wait = min(theirs, key=lambda pair: pair[0].iterations)  # the furthest behind
        return Root(RootKind.COMPLETE, wait, wait.passed)
