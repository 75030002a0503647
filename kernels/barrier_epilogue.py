"""The epilogue of a PTX run: staging buffers, C's elements and boxes, counters, flag."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kernels.barrier_collect import Collector, Handler, by_value, outside, refuse, signed
from kernels.barrier_elements import Elements
from kernels.barrier_partials import WORKSPACE_BASE, Partials
from kernels.barrier_steps import BoxStore, CountAt, LoadElements, StoreElements
from kernels.launch_plan import LaunchPlan
from kernels.launch_units import WorkUnit, piece_columns
from kernels.ptx_events import STORE_TILE, Event
from kernels.ptx_parser import PtxError
from kernels.ptx_registers import SHARED_BASE, WARP
from kernels.ring_layout import WARP_ROWS, RingLayout
from solver.families import sm90_gemm as family
from solver.ring.program import WARPGROUP_WARPS
from solver.ring.steps import (
    ALL,
    Fill,
    LoadFlag,
    Op,
    ReadFilled,
    ReadStaged,
    Stage,
    StoreCommit,
    StoreFlag,
    StoreWait,
)

# Where C and the counters would be: far apart, and from the workspace, so that a stray address
# shows.
C_BASE, COUNTERS_BASE = 1 << 52, 1 << 54
_Staged = Fill | ReadFilled | Stage | ReadStaged


class Epilogue:
    """Reads the epilogue's accesses against a launch; ``handlers`` by opcode.

    ``work`` are the CTA's units, ``last`` is what the split-K flag says after each of them in
    turn, over and over. ``map_c`` is the address of C's tensor map, to be set before the run.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        layout: RingLayout,
        collector: Collector,
        work: Sequence[WorkUnit],
        *,
        last: Sequence[bool],
        alpha: float,
        beta: float,
    ) -> None:
        self._c = C_BASE + plan.problem.c_offset * plan.problem.out_bytes
        addresses = self._c, WORKSPACE_BASE, COUNTERS_BASE
        self.arguments = plan.arguments(*addresses, alpha=alpha, beta=beta).tobytes()
        self.map_c = 0
        self._plan = plan
        self._layout = layout
        self._collector = collector
        self._last = last
        # How often each thread has counted at a tile, told the flag and looked at it.
        self._counted, self._told, self._looked = np.zeros((3, plan.threads), np.int64)
        self._partials = Partials(plan, work, collector)
        stored = [
            unit for at, unit in enumerate(work) if plan.config.split_k == 1 or last[at % len(last)]
        ]
        self._elements = Elements(plan, stored, beta != 0)
        # Bytes that were staged of each row of each buffer, and read of C in it, in all pieces.
        rows = layout.buffers, family.MMA_M
        self._done = {kind: np.zeros(rows, np.int64) for kind in (Stage, ReadFilled)}
        # The element of a piece that each thread has brought this far, -1: none.
        self._carried = np.full(plan.threads, -1, np.int64)
        each = collector.each
        self.handlers: dict[str, Handler] = {
            STORE_TILE: each(self._store),
            "cp.async.bulk.commit_group": each(lambda event: StoreCommit()),
            "cp.async.bulk.wait_group.read": each(lambda event, n: StoreWait(n)),
            "stmatrix.sync.aligned.m8n8.x2.shared.b16": self._stage,
            "stmatrix.sync.aligned.m8n8.x4.shared.b16": self._stage,
            "ldmatrix.sync.aligned.m8n8.x2.shared.b16": self._read_filled,
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16": self._read_filled,
            "st.shared.v2.f32": self._stage_pair,
            "ld.shared.v2.f32": self._read_filled_pair,
            "st.shared.u16": self._fill,
            "ld.shared.u16": self._read_staged,
            "st.shared.u32": self._store_word,
            "ld.shared.u32": self._load_word,
            "st.global.u16": self._element,
            "st.global.u32": self._element,
            "ld.global.u16": self._element,
            "ld.global.u32": self._element,
            "atom.global.inc.u32": self._count,
        } | self._partials.handlers

    def _store(self, event: Event, target: int, column: int, row: int, address: int) -> Op:
        start = self._layout.stages * self._layout.slot
        number, within = divmod(address - SHARED_BASE - start, self._layout.staging)
        if within or not 0 <= number < self._layout.buffers:
            raise outside(event, address, "the start of a staging buffer")
        if target != self.map_c or self._plan.c is None:
            raise PtxError(f"{event.instruction}: stores to what is no tensor map of C")
        buffer = divmod(number, family.STAGING_BUFFERS)
        return BoxStore(*buffer, signed(row), signed(column))

    def _staged(self, event: Event, make: type[_Staged], size: int, whole: bool = False) -> None:
        """Accesses of ``size`` bytes to a staging buffer of the warp's own warpgroup.

        Stage and ReadFilled keep to the warp's own rows and go through each from its start to its
        end, Fill and ReadStaged to where the element of C belongs that the thread brings or takes;
        ``whole``: all lanes of a warp take part, whether or not they give an address.
        """
        layout = self._layout
        offsets = event.values[0].astype(np.int64) - SHARED_BASE - layout.stages * layout.slot
        number, within = np.divmod(offsets, layout.staging)
        row, byte = layout.staged(within)
        wrong = (number < 0) | (number >= layout.buffers) | (row >= family.MMA_M)
        refuse(event, wrong | (byte % size != 0), "a staging buffer")
        warpgroup, buffer = np.divmod(number, family.STAGING_BUFFERS)
        warps = np.arange(len(offsets)) // WARP
        refuse(event, warpgroup != warps // WARPGROUP_WARPS, "a buffer of its own warpgroup")
        if make in (Stage, ReadFilled):
            own = row // WARP_ROWS == warps % WARPGROUP_WARPS
            refuse(event, ~own, "in its warp's own rows")
            self._go_on(event, self._done[make], number * family.MMA_M + row, byte, size)
        else:
            self._carry(event, row * layout.staging_row + byte, size, takes=make is ReadStaged)
        for warp, lanes, (found,) in by_value(Event(event.instruction, event.lanes, (buffer,))):
            self._collector.add(warp, make(warp // WARPGROUP_WARPS, found), ALL if whole else lanes)

    def _go_on(
        self,
        event: Event,
        done: npt.NDArray[np.int64],
        row: npt.NDArray[np.int64],
        byte: npt.NDArray[np.int64],
        size: int,
    ) -> None:
        """Hold accesses to rows against where each row goes on: accumulators come in the order
        of their columns, from instruction to instruction and from lane to lane of each."""
        width, lanes = self._layout.staging_row, np.flatnonzero(event.lanes)
        rows, which, counts = np.unique(row[lanes], return_inverse=True, return_counts=True)
        by_row = np.argsort(which, kind="stable")
        before = np.empty_like(which)  # accesses to the same row by lower lanes
        before[by_row] = np.arange(len(lanes)) - np.repeat(np.cumsum(counts) - counts, counts)
        so_far = done.reshape(-1)
        wrong = np.zeros(len(event.lanes), np.bool_)
        wrong[lanes] = byte[lanes] != so_far[rows][which] % width + before * size
        refuse(event, wrong, f"where its row of {width} bytes goes on")
        so_far[rows] += counts * size

    def require_whole_rows(self, event: Event) -> None:
        """Raise PtxError where a warp comes to a barrier, or its end, with rows of a piece, an
        element of C or partial sums unfinished."""
        self._partials.require_whole(event)
        if (self._carried[event.lanes] != -1).any():
            raise PtxError(f"{event.instruction}: an element of C is taken and not set down")
        for warp, _, _ in by_value(Event(event.instruction, event.lanes, ())):
            warpgroup, number = divmod(warp, WARPGROUP_WARPS)
            first = warpgroup * family.STAGING_BUFFERS
            buffers = slice(first, first + family.STAGING_BUFFERS)
            own = slice(number * WARP_ROWS, (number + 1) * WARP_ROWS)
            rows = np.stack([done[buffers, own] for done in self._done.values()])
            if (rows % self._layout.staging_row).any() or (rows != rows[..., :1]).any():
                raise PtxError(
                    f"{event.instruction}: warp {warp} leaves rows of a piece unfinished"
                )

    def _carry(self, event: Event, at: npt.NDArray[np.int64], size: int, takes: bool) -> None:
        """An element of a piece that each thread takes up, or sets down where it belongs.

        ``at``: its byte in the piece.
        """
        element = at // size
        if takes:
            refuse(event, self._carried != -1, "taken once the element before is set down")
            np.copyto(self._carried, element, where=event.lanes)
        else:
            refuse(event, self._carried != element, "where the element that was taken belongs")
            np.copyto(self._carried, -1, where=event.lanes)

    def _matrix(self, event: Event, make: type[_Staged]) -> None:
        """``stmatrix`` and ``ldmatrix``: lanes give addresses of rows, 16 of them where x2."""
        lanes = event.lanes
        if ".x2." in event.instruction.opcode:
            lanes = lanes & (np.arange(len(lanes)) % WARP < 16)
        self._staged(Event(event.instruction, lanes, event.values), make, 16, whole=True)

    def _stage(self, event: Event) -> None:
        self._matrix(event, Stage)

    def _read_filled(self, event: Event) -> None:
        self._matrix(event, ReadFilled)

    def _stage_pair(self, event: Event) -> None:
        self._staged(event, Stage, 8)

    def _read_filled_pair(self, event: Event) -> None:
        self._staged(event, ReadFilled, 8)

    def _fill(self, event: Event) -> None:
        self._staged(event, Fill, self._plan.problem.out_bytes)

    def _read_staged(self, event: Event) -> None:
        self._staged(event, ReadStaged, self._plan.problem.out_bytes)

    def _element(self, event: Event) -> None:
        """One element of C, loaded or stored."""
        problem, opcode = self._plan.problem, event.instruction.opcode
        matrix = problem.c
        if not opcode.endswith(f".u{8 * problem.out_bytes}"):
            raise PtxError(f"{event.instruction}: C has elements of {problem.out_bytes} bytes")
        element, odd = np.divmod(event.values[0].astype(np.int64) - self._c, problem.out_bytes)
        row, column = np.divmod(element, matrix.pitch)
        inside = (row >= 0) & (row < problem.m) & (column < problem.n) & (odd == 0)
        refuse(event, ~inside, "an element of C")
        loads = opcode.startswith("ld.")
        kind = LoadElements if loads else StoreElements
        # What is loaded belongs to the piece that is staged next, what is stored to the one before.
        self._elements.touch(event, kind, row, column, self._staged_pieces() - (not loads))
        columns = piece_columns(self._plan)
        at = (row % family.MMA_M * columns + column % columns) * problem.out_bytes
        self._carry(event, at, problem.out_bytes, takes=loads)
        self._collector.add_to_all(event, kind())

    def _staged_pieces(self) -> npt.NDArray[np.int64]:
        """How many pieces each thread's warp has staged."""
        rows = self._done[Stage].reshape(-1, family.STAGING_BUFFERS, WARPGROUP_WARPS, WARP_ROWS)
        by_warp = rows[..., 0].sum(axis=1).reshape(-1) // self._layout.staging_row
        pieces = np.zeros(self._plan.threads, np.int64)
        pieces[: len(by_warp) * WARP] = np.repeat(by_warp, WARP)
        return pieces

    def finish(self) -> None:
        """Raise PtxError where elements of C were left out, or taken twice."""
        self._elements.require_all()

    def _count(self, event: Event) -> int:
        """What the counter had: its end's value for the CTA that is the last, else another."""
        self._collector.each(self._count_tile)(event)
        end = int(event.values[1][event.lanes][0])
        return end if self._is_last(event, self._counted) else abs(end - 1)

    def _is_last(self, event: Event, often: npt.NDArray[np.int64]) -> bool:
        """Whether the CTA is the last of the tile of the unit that an event's threads are at."""
        units = set(often[event.lanes].tolist())
        if len(units) > 1:
            raise PtxError(f"{event.instruction}: threads are at the flag of different units")
        often += event.lanes
        return bool(self._last[int(units.pop()) % len(self._last)])

    def _count_tile(self, event: Event, address: int, last: int) -> Op:
        tile, odd = divmod(address - COUNTERS_BASE, 4)
        if odd or not 0 <= tile < self._plan.counter_bytes // 4:
            raise PtxError(f"{event.instruction}: {address:#x} is no tile's counter")
        return CountAt(last, tile)

    def _load_word(self, event: Event) -> int | None:
        """A word of shared memory: an element on its way to C, or the split-K flag."""
        if not self._is_flag(event):
            self._read_staged(event)
            return None
        last = self._is_last(event, self._looked)
        self._collector.add_to_all(event, LoadFlag(last))
        return int(last)

    def _store_word(self, event: Event) -> None:
        if self._is_flag(event):
            told = event.values[1][event.lanes]
            if (told != int(self._is_last(event, self._told))).any():
                raise PtxError(f"{event.instruction}: the flag does not say what the counter does")
            self._collector.add_to_all(event, StoreFlag())
        else:
            self._fill(event)

    def _is_flag(self, event: Event) -> bool:
        offset = event.values[0].astype(np.int64) - SHARED_BASE
        if (
            self._plan.problem.out_bytes == 4
            and (offset[event.lanes] < self._layout.barriers).all()
        ):
            return False
        refuse(event, offset != self._layout.flag, "the split-K flag")
        return True
