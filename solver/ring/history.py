"""What a warp has done before each of its steps, whatever the others do."""

from __future__ import annotations

from collections import Counter

from solver.ring.steps import (
    ASYNC_FENCE,
    ClusterArrive,
    Fill,
    LoadFlag,
    Multiply,
    Op,
    Program,
    Stage,
    StoreFlag,
)

Key = tuple[type[Op], int]
ANY = -1
"""Whatever the slot or buffer."""
_COUNTED = (Multiply, Fill, Stage, StoreFlag, LoadFlag, ClusterArrive)


class Unfenced(Op):
    """A Stage that a fence has not followed yet in all of its lanes; no step of a program."""


def history(steps: Program) -> list[Counter[Key]]:
    """How often each kind of operation was done before each step, and at the end: in all, and of
    each slot or buffer.

    Under Unfenced: the lanes, as a mask, that have not made what they staged in a buffer visible
    to TMA yet.
    """
    seen: Counter[Key] = Counter()
    counted = [Counter(seen)]
    for step in steps:
        op = step.op
        if isinstance(op, _COUNTED):
            seen[type(op), ANY] += 1
        if isinstance(op, Multiply):
            seen[Multiply, op.slot] += 1
        if isinstance(op, Fill | Stage):
            seen[type(op), op.buffer] += 1
        if isinstance(op, Stage):
            seen[Unfenced, op.buffer] |= step.lanes
        if op == ASYNC_FENCE:
            for key in seen:
                if key[0] is Unfenced:
                    seen[key] &= ~step.lanes
        counted.append(Counter(seen))
    return counted
