"""What is read off a kernel beside ``solver.ring.steps``: where copies go, and what is no part of
the protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from solver.ring.steps import (
    CountTile,
    Fill,
    Load,
    LoadPartial,
    Op,
    ReadFilled,
    ReadStaged,
    Stage,
    Store,
    StorePartial,
)


@dataclass(frozen=True, slots=True)
class BoxLoad(Load):
    """A load of one box of an operand, which lands from ``line`` of ``subtile`` on in the slot's
    tile, and comes from ``row`` and ``column`` of the operand's lines."""

    operand: Literal["a", "b"] = "a"
    subtile: int = 0
    line: int = 0
    row: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class BoxStore(Store):
    """A store of one box, to this row and column of C."""

    row: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class CountAt(CountTile):
    """A count at the counter of this tile."""

    tile: int = 0


@dataclass(frozen=True, slots=True)
class StoreElements(Op):
    """Store elements of C one by one."""


@dataclass(frozen=True, slots=True)
class LoadElements(Op):
    """Load elements of C one by one."""


@dataclass(frozen=True, slots=True)
class WarpBarrier(Op):
    """``bar.warp.sync``: block until the whole warp is here."""


@dataclass(frozen=True, slots=True)
class SetRegisters(Op):
    """``setmaxnreg``: to have ``count`` registers a thread, more (may block) or fewer."""

    count: int
    more: bool


@dataclass(frozen=True, slots=True)
class Exit(Op):
    """The thread's end."""


ELEMENTS = (StoreElements, LoadElements)
"""Accesses to C itself."""

ASIDE = (*ELEMENTS, WarpBarrier, SetRegisters, Exit)
"""What the protocol says nothing about."""

MERGED = (
    Fill,
    ReadFilled,
    Stage,
    ReadStaged,
    StoreElements,
    LoadElements,
    StorePartial,
    LoadPartial,
)
"""Plain memory accesses: in an unbroken run of these, those that are equal are one step."""


def plain(op: Op) -> Op:
    """The operation without where its box lies, or its tile."""
    match op:
        case BoxLoad():
            return Load(op.slot, op.barrier, op.tx_bytes, op.shared)
        case BoxStore():
            return Store(op.warpgroup, op.buffer)
        case CountAt():
            return CountTile(op.last)
    return op
