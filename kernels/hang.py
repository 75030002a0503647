"""Why a launch does not end: a short report from the debug build's records.

``diagnose`` is for a launch whose records have stopped changing. It follows who waits for whom
(``kernels.waits``) to the barrier where the waiting starts, and says who has not come there.
CTAs that stand alike are told once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from kernels import hang_words as words
from kernels.launch_plan import LaunchPlan
from kernels.progress import Place
from kernels.waits import Cluster, Walk, Warp


class Verdict(StrEnum):
    """What came of running the debug build."""

    STUCK = "stuck"  # warps wait at a barrier that does not complete
    NO_BARRIER = "no_barrier"  # nothing moves, and no warp waits at a barrier
    MOVING = "moving"  # still getting on when its time was up
    ENDED = "ended"  # in time
    UNKNOWN = "unknown"  # it could not be watched


@dataclass(frozen=True, slots=True)
class WarpName:
    """A warp of the grid: math0 … or dma0 … of a CTA."""

    cta: int
    warp: str


@dataclass(frozen=True, slots=True)
class Hang:
    """Where a launch hangs; ``lines`` say it in words.

    With STUCK the other fields tell the barrier at which the waiting starts: its name and CTA,
    the slot of the ring it belongs to (None: to none), unit of work and k-iteration (counted
    from 1 within the unit; None before the first and after the last), the warps that are
    ``waiting`` at it, those whose arrivals or loads it ``needs``, and the ``culprits``: those that
    have not come, or have gone past it; none where by their records all have done their part.
    ``ctas`` counts those that stand alike.
    """

    verdict: Verdict
    lines: tuple[str, ...]
    ctas: int = 0
    cta: int | None = None
    barrier: str | None = None
    slot: int | None = None
    unit: int | None = None
    k_iteration: int | None = None
    waiting: tuple[WarpName, ...] = ()
    needs: tuple[WarpName, ...] = ()
    culprits: tuple[WarpName, ...] = ()

    @property
    def text(self) -> str:
        """The report, a few lines."""
        return "\n".join(self.lines)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return asdict(self)


def unknown(why: str) -> Hang:
    """The debug build could not be run or watched."""
    return Hang(Verdict.UNKNOWN, (f"The debug build could not be watched: {why}",))


def ended(elapsed_s: float) -> Hang:
    """The debug build's launches came to their ends."""
    line = (
        f"The debug build of this kernel ended after {elapsed_s:.3g} s: no deadlock, or one that "
        "does not come every time."
    )
    return Hang(Verdict.ENDED, (line,))


def moving(plan: LaunchPlan, records: np.ndarray[Any, Any], elapsed_s: float) -> Hang:
    """The debug build was still getting on when its time was up."""
    every = sum(Walk.of(plan, cta).total for cta in range(plan.grid))
    begun = int(records["iterations"][:, 0].sum())
    line = (
        f"The debug build of this kernel was still getting on after {elapsed_s:.3g} s, with "
        f"{begun / every:.0%} of its k-iterations begun: slow, but no deadlock."
    )
    return Hang(Verdict.MOVING, (line,))


def diagnose(plan: LaunchPlan, records: np.ndarray[Any, Any]) -> Hang:
    """The report on a launch that stands still.

    ``records``: ``progress.records_of`` the launch of ``plan``, grid × warps.
    """
    groups = _alike(plan, records)
    stuck = [(group, roots) for group in groups if (roots := group[0].roots())]
    if not stuck:
        return Hang(Verdict.NO_BARRIER, words.standing_still(groups))
    # An early wait tells more than a late one.
    stuck.sort(key=lambda pair: min(w.iterations for w in pair[0][0].warps))
    (group, roots), *others = stuck
    cluster, root = group[0], roots[0]
    step = root.wait.step
    return Hang(
        verdict=Verdict.STUCK,
        lines=(
            *words.report(group, roots),
            *words.elsewhere(others),
            *words.standing_still([group for group in groups if not group[0].roots()]),
        ),
        ctas=len(group) * plan.cluster,
        cta=root.wait.cta,
        barrier=root.wait.barrier,
        slot=root.wait.slot,
        unit=None if step is None else step.unit,
        k_iteration=None if step is None else step.iteration + 1,
        waiting=_names(w for w in cluster.warps if cluster.wait_of(w) == root.wait),
        needs=_names(root.wait.needs),
        culprits=_names(root.culprits),
    )


def _names(warps: Iterable[Warp]) -> tuple[WarpName, ...]:
    return tuple(WarpName(w.cta, w.name) for w in warps)


def _alike(plan: LaunchPlan, records: np.ndarray[Any, Any]) -> list[list[Cluster]]:
    """The grid's clusters, those whose warps stand at the same places together."""
    groups: dict[tuple[object, ...], list[Cluster]] = {}
    for first in range(0, plan.grid, plan.cluster):
        cluster = Cluster(plan, records, first)
        key = tuple((w.place, w.iterations, _turn(plan, w)) for w in cluster.warps)
        if all(place == Place.DONE for place, _, _ in key):
            key = ()
        groups.setdefault(key, []).append(cluster)
    return list(groups.values())


def _turn(plan: LaunchPlan, warp: Warp) -> int:
    """Which of its CTA's units a warp is at."""
    if warp.place <= Place.SET_UP:
        return 0
    walk = Walk.of(plan, warp.cta)
    return (warp.unit - walk.first) // walk.stride
