"""Steps as they are collected from the events of a PTX run, warp by warp."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from kernels.barrier_steps import MERGED
from kernels.ptx_events import Event
from kernels.ptx_parser import PtxError
from kernels.ptx_registers import SHARED_BASE, WARP
from solver.ring.steps import Op, Program, Step

Handler = Callable[[Event], int | None]
_LANE_BITS = 1 << np.arange(WARP, dtype=np.int64)


class Collector:
    """Each warp's steps so far. Accesses of the kinds ``merged`` that are equal are one step."""

    def __init__(self, warps: int, merged: tuple[type[Op], ...] = MERGED) -> None:
        self._merged = merged
        self._steps: list[list[Step]] = [[] for _ in range(warps)]

    def programs(self) -> list[Program]:
        """The steps of every warp."""
        return [tuple(steps) for steps in self._steps]

    def add(self, warp: int, op: Op, lanes: int) -> None:
        """Add a step; a plain access to what its warp accesses already is part of that."""
        steps = self._steps[warp]
        if isinstance(op, self._merged):
            for at in range(len(steps) - 1, -1, -1):
                if not isinstance(steps[at].op, self._merged):
                    break
                if steps[at].op == op:
                    steps[at] = Step(op, steps[at].lanes | lanes)
                    return
        steps.append(Step(op, lanes))

    def add_to_all(self, event: Event, op: Op) -> None:
        """Add one step to every warp of an event, whatever its operands."""
        for warp, lanes in enumerate((event.lanes.reshape(-1, WARP) @ _LANE_BITS).tolist()):
            if lanes:
                self.add(warp, op, lanes)

    def each(self, make: Callable[..., Op]) -> Handler:
        """A handler that makes an op from each distinct set of operand values in a warp."""

        def handle(event: Event) -> None:
            for warp, lanes, values in by_value(event):
                self.add(warp, make(event, *values), lanes)

        return handle


def by_value(event: Event) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """(warp, lanes, operand values) for each warp of an event and each set of values in it."""
    by_warp = event.lanes.reshape(-1, WARP)
    masks = (by_warp @ _LANE_BITS).tolist()
    warps = [warp for warp, mask in enumerate(masks) if mask]
    active = [row[event.lanes] for row in event.values]
    if all((row == row[0]).all() for row in active):
        common = tuple(int(row[0]) for row in active)
        yield from ((warp, masks[warp], common) for warp in warps)
        return
    columns = list(zip(*(row.tolist() for row in active), strict=True))
    lanes = np.flatnonzero(event.lanes).tolist()
    groups: dict[tuple[int, tuple[int, ...]], int] = {}
    for lane, value in zip(lanes, columns, strict=True):
        key = lane // WARP, value
        groups[key] = groups.get(key, 0) | 1 << lane % WARP
    yield from ((warp, mask, value) for (warp, value), mask in groups.items())


def signed(value: int) -> int:
    """A 32-bit value as a signed number."""
    return value - (1 << 32) if value >> 31 else value


def refuse(event: Event, wrong: npt.NDArray[np.bool_], what: str) -> None:
    """Raise PtxError where the address of one of an event's threads is wrong: not ``what``."""
    if (wrong & event.lanes).any():
        thread = int(np.flatnonzero(wrong & event.lanes)[0])
        raise outside(event, int(event.values[0][thread]), what)


def outside(event: Event, address: int, what: str) -> PtxError:
    """The error for an address that is not ``what``."""
    where = f"{address:#x}" if address >= 1 << 32 else f"shared memory + {address - SHARED_BASE}"
    return PtxError(f"{event.instruction}: {where} is not {what}")
