"""Steps that norm_activation's rings have besides those of ``solver.ring.steps``.

Slots are numbered through all rings of a block, group by group, and so are their mbarriers,
``full[i]`` and ``empty[i]``; named barriers go by their ids. Accesses to a slot are those of the
lanes that have a part of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from solver.ring.steps import Op


@dataclass(frozen=True, slots=True)
class SyncArrive(Op):
    """Arrive at a named barrier that takes ``warps`` whole warps, without waiting at it."""

    id: int
    warps: int

    @property
    def words(self) -> str:
        return f"arrive at barrier {self.id} for {self.warps} warps"


@dataclass(frozen=True, slots=True)
class ArriveLoaded(Op):
    """Arrive, each lane once, as soon as all of its asynchronous copies have landed."""

    barrier: str

    @property
    def words(self) -> str:
        return f"arrive at {self.barrier} once its copies have landed"


@dataclass(frozen=True, slots=True)
class SlotOp(Op):
    """An access to a slot."""

    slot: int


@dataclass(frozen=True, slots=True)
class CopyAsync(SlotOp):
    """Start asynchronous copies into a slot."""

    @property
    def words(self) -> str:
        return f"start copies into slot {self.slot}"


@dataclass(frozen=True, slots=True)
class WriteSlot(SlotOp):
    """Fill a slot by ordinary stores."""

    @property
    def words(self) -> str:
        return f"write to slot {self.slot}"


@dataclass(frozen=True, slots=True)
class ReadSlot(SlotOp):
    """Read a slot."""

    @property
    def words(self) -> str:
        return f"read slot {self.slot}"


@dataclass(frozen=True, slots=True)
class Rewrite(SlotOp):
    """Put results where what they were made of was read."""

    @property
    def words(self) -> str:
        return f"put results into slot {self.slot}"


@dataclass(frozen=True, slots=True)
class StoreSlot(SlotOp):
    """Start a bulk store from a slot."""

    @property
    def words(self) -> str:
        return f"start a bulk store of slot {self.slot}"


@dataclass(frozen=True, slots=True)
class ScratchOp(Op):
    """An access to one of a team's two lines of scratch."""

    team: int
    line: int


@dataclass(frozen=True, slots=True)
class WriteScratch(ScratchOp):
    """Put a warp's part of a sum into its place of a line."""

    @property
    def words(self) -> str:
        return f"write to line {self.line} of team {self.team}"


@dataclass(frozen=True, slots=True)
class ReadScratch(ScratchOp):
    """Read every warp's part of a sum."""

    @property
    def words(self) -> str:
        return f"read line {self.line} of team {self.team}"


FILLS = (CopyAsync, WriteSlot)
"""What lanes fill a slot with."""

READS = (ReadSlot, Rewrite, StoreSlot)
"""What needs a slot to be full, and to stay so."""

OF_ITS_LANES = (*FILLS, ReadSlot, Rewrite, ReadScratch)
"""Accesses by those lanes alone that have a part, which may be none; those that are equal in an
unbroken run of these are one step."""
