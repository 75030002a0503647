"""The operations a barrier program is made of, each as one thread executes it.

Barriers are ``full[i]`` and ``empty[i]``; slots, warpgroups and buffers are numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from solver.ring.program import MultiplyWait, Wait


@dataclass(frozen=True, slots=True)
class Init:
    """Initialise an mbarrier: ``count`` arrivals complete each of its phases."""

    barrier: str
    count: int


@dataclass(frozen=True, slots=True)
class Arrive:
    """One arrival."""

    barrier: str


@dataclass(frozen=True, slots=True)
class ArriveExpect:
    """One arrival, and ``tx_bytes`` more that the phase waits for."""

    barrier: str
    tx_bytes: int


@dataclass(frozen=True, slots=True)
class Load:
    """Start a TMA load of one box into a slot, which reports ``bytes`` to a barrier.

    It lands in subtile ``subtile`` of the slot's A or B tile and comes from ``row`` and
    ``column`` (along k) of the operand.
    """

    slot: int
    operand: Literal["a", "b"]
    barrier: str
    bytes: int
    subtile: int
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Multiply:
    """Commit a group of wgmma that multiplies this warpgroup's rows of a whole slot.

    ``fresh`` where the product replaces the accumulators instead of being added to them.
    """

    slot: int
    fresh: bool


@dataclass(frozen=True, slots=True)
class BlockBarrier:
    """``bar.sync``: block until ``threads`` threads are at the named barrier."""

    id: int
    threads: int


@dataclass(frozen=True, slots=True)
class WarpBarrier:
    """``bar.warp.sync``: block until the whole warp is here."""


@dataclass(frozen=True, slots=True)
class Fence:
    """A fence, by PTX's name for what it orders."""

    kind: str


@dataclass(frozen=True, slots=True)
class SetRegisters:
    """``setmaxnreg``: to have ``count`` registers a thread, more (may block) or fewer."""

    count: int
    more: bool


@dataclass(frozen=True, slots=True)
class Stage:
    """Write rounded accumulators to a warpgroup's staging buffer."""

    warpgroup: int
    buffer: int


@dataclass(frozen=True, slots=True)
class ReadStaged:
    """Read elements back from a staging buffer."""

    warpgroup: int
    buffer: int


@dataclass(frozen=True, slots=True)
class Store:
    """Start a TMA store of a staging buffer to this row and column of C."""

    warpgroup: int
    buffer: int
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class StoreCommit:
    """Commit the thread's TMA stores as a group."""


@dataclass(frozen=True, slots=True)
class StoreWait:
    """Block until at most ``pending`` of the thread's groups have not read their buffers yet."""

    pending: int


@dataclass(frozen=True, slots=True)
class StoreElements:
    """Store elements of C one by one."""


@dataclass(frozen=True, slots=True)
class StorePartial:
    """Store accumulators to the split-K workspace."""


@dataclass(frozen=True, slots=True)
class LoadPartial:
    """Load accumulators from the split-K workspace."""


@dataclass(frozen=True, slots=True)
class CountTile:
    """Count this CTA at a tile's counter, which wraps to zero beyond ``last``."""

    tile: int
    last: int


@dataclass(frozen=True, slots=True)
class StoreFlag:
    """Tell the CTA, in the split-K flag, whether it is the last at its tile."""


@dataclass(frozen=True, slots=True)
class LoadFlag:
    """Read the split-K flag, and whether this run says that the CTA is the last."""

    last: bool


@dataclass(frozen=True, slots=True)
class Exit:
    """The thread's end."""


Op = (
    Init
    | Wait
    | Arrive
    | ArriveExpect
    | Load
    | Multiply
    | MultiplyWait
    | BlockBarrier
    | WarpBarrier
    | Fence
    | SetRegisters
    | Stage
    | ReadStaged
    | Store
    | StoreCommit
    | StoreWait
    | StoreElements
    | StorePartial
    | LoadPartial
    | CountTile
    | StoreFlag
    | LoadFlag
    | Exit
)

RING = (Wait, Arrive, ArriveExpect, Load, Multiply, MultiplyWait)
"""What works the ring once its barriers are initialised."""

MERGED = (Stage, ReadStaged, StoreElements, StorePartial, LoadPartial)
"""Plain memory accesses: in an unbroken run of these, those that are equal are one step."""


@dataclass(frozen=True, slots=True)
class Step:
    """An operation and the lanes of a warp that execute it, as a mask; each counts for itself."""

    op: Op
    lanes: int

    @property
    def count(self) -> int:
        """How many lanes execute it."""
        return self.lanes.bit_count()

    def __contains__(self, lane: int) -> bool:
        return bool(self.lanes >> lane & 1)

    def __repr__(self) -> str:
        first = (self.lanes & -self.lanes).bit_length() - 1
        who = f"lane {first}" if self.count == 1 else f"{self.count} lanes"
        return f"{self.op!r} by {who}"
