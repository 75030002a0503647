"""Elements of C that a PTX run loads or stores one by one: those of its pieces, each once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kernels.barrier_collect import refuse
from kernels.barrier_steps import LoadElements, StoreElements
from kernels.launch_plan import LaunchPlan
from kernels.launch_units import WorkUnit, piece_columns, pieces_of
from kernels.ptx_events import Event
from kernels.ptx_parser import PtxError
from solver.families import sm90_gemm as family

_Access = type[LoadElements] | type[StoreElements]


class Elements:
    """Counts the accesses to every element of C. ``stored`` are the units whose tiles the CTA
    stores; with ``adds`` it loads them too."""

    def __init__(self, plan: LaunchPlan, stored: Sequence[WorkUnit], adds: bool) -> None:
        problem = plan.problem
        shape = problem.m, problem.n
        self._columns = piece_columns(plan)
        pieces = [
            [piece for unit in stored for piece in pieces_of(plan, unit, warpgroup)]
            for warpgroup in range(plan.config.math_warpgroups)
        ]
        self._wanted = np.zeros(shape, np.int64)
        for row, column in (piece for own in pieces for piece in own):
            self._wanted[row : row + family.MMA_M, column : column + self._columns] += 1
        self._done: dict[_Access, npt.NDArray[np.int64]] = {}
        if adds:
            self._done[LoadElements] = np.zeros(shape, np.int64)
        if not plan.c_by_tma:
            self._done[StoreElements] = np.zeros(shape, np.int64)
        # The piece after a warpgroup's last lies nowhere, as does the one before its first.
        self._most = max(map(len, pieces))
        self._first = np.full((len(pieces), self._most + 1, 2), -family.MMA_M)
        for warpgroup, own in enumerate(pieces):
            self._first[warpgroup, : len(own)] = np.reshape(own, (-1, 2))

    def touch(
        self,
        event: Event,
        kind: _Access,
        row: npt.NDArray[np.int64],
        column: npt.NDArray[np.int64],
        piece: npt.NDArray[np.int64],
    ) -> None:
        """An access of each of an event's threads, while its warpgroup is at a piece, counted
        over all of its units."""
        if kind not in self._done:
            raise PtxError(f"{event.instruction}: this launch has no {kind.__name__}")
        lanes = np.flatnonzero(event.lanes)
        at = np.minimum(piece[lanes], self._most)
        first = self._first[lanes // family.WARPGROUP, at]
        rows, columns = row[lanes], column[lanes]
        down = (rows - first[:, 0]) // family.MMA_M
        along = (columns - first[:, 1]) // self._columns
        wrong = np.zeros(len(event.lanes), np.bool_)
        wrong[lanes] = (down != 0) | (along != 0)
        refuse(event, wrong, "an element of the piece that is in the buffer")
        np.add.at(self._done[kind], (rows, columns), 1)

    def require_all(self) -> None:
        """Raise PtxError where an element of the CTA's pieces was left out, or taken twice."""
        for kind, done in self._done.items():
            wrong = np.argwhere(done != self._wanted)
            if len(wrong):
                row, column = wrong[0].tolist()
                times = int(done[row, column]), int(self._wanted[row, column])
                raise PtxError(
                    f"{kind.__name__}: C's element {row}, {column} {times[0]} times, not {times[1]}"
                )
