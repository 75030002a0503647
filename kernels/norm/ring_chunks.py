"""The bytes of a block's chunks on their way through a PTX run: into slots, out of them, to y."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernels.norm.ring_launches import NormLaunch
from kernels.ptx_parser import PtxError

QUAD = 16  # bytes of an access to a slot
Offsets = npt.NDArray[np.int64]


class Chunks:
    """What becomes of each 16 bytes of each chunk of a group, in the order in which they come;
    of y, by row. Methods raise PtxError, in the words of the access, for one that is not the
    launch's."""

    def __init__(self, launch: NormLaunch, groups: int) -> None:
        problem, config = launch.plan.problem, launch.plan.config
        self._launch = launch
        units = list(launch.units)
        self.of_group = [
            [chunk for unit in units[group::groups] for chunk in launch.chunks_of(unit)]
            for group in range(groups)
        ]
        self.filled, self.read, self.put = (
            [[np.zeros(len(chunk) // QUAD, np.int64) for chunk in own] for own in self.of_group]
            for _ in range(3)
        )
        # The thread that has last read each 16 bytes of a chunk.
        self._reader = [[np.full(len(c), -1) for c in own] for own in self.read]
        self._reads = 2 if config.hold == "shared" else 1
        self._row_bytes = problem.row_bytes
        self._unit = config.vector_bytes  # what y is stored by, at least
        self._done = np.zeros(problem.rows * problem.row_bytes // self._unit, np.int64)
        self._teams = self._teams_of_rows(units, groups)

    def _teams_of_rows(self, units: list[int], groups: int) -> dict[int, int]:
        """Which of the block's teams has each row."""
        config = self._launch.plan.config
        each = config.group_warps // config.team
        return {
            row: at % groups * each + number % each
            for at, unit in enumerate(units)
            for number, row in enumerate(self._launch.rows_of(unit))
        }

    def fill(self, group: int, chunk: int, offsets: Offsets, sources: Offsets, what: str) -> None:
        """16 bytes each come from ``sources`` in x to ``offsets`` of the chunk's slot."""
        own = self.of_group[group][chunk]
        wrong = (sources != own.start + offsets) | self._outside(own, offsets)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise PtxError(
                f"{what}: byte {sources[at]} of x goes to byte {offsets[at]} of the slot of bytes "
                f"{own.start} to {own.stop}"
            )
        np.add.at(self.filled[group][chunk], offsets // QUAD, 1)

    def read_at(
        self, group: int, chunk: int, offsets: Offsets, threads: Offsets, what: str
    ) -> None:
        """Threads read 16 bytes each of a slot."""
        self._require_inside(group, chunk, offsets, what)
        np.add.at(self.read[group][chunk], offsets // QUAD, 1)
        self._reader[group][chunk][offsets // QUAD] = threads

    def put_at(self, group: int, chunk: int, offsets: Offsets, threads: Offsets, what: str) -> None:
        """Threads put results where they have read."""
        self._require_inside(group, chunk, offsets, what)
        if (self._reader[group][chunk][offsets // QUAD] != threads).any():
            raise PtxError(f"{what}: results are put where another thread has read last")
        np.add.at(self.put[group][chunk], offsets // QUAD, 1)

    def _require_inside(self, group: int, chunk: int, offsets: Offsets, what: str) -> None:
        own = self.of_group[group][chunk]
        if (wrong := self._outside(own, offsets)).any():
            at = int(offsets[wrong][0])
            raise PtxError(f"{what}: byte {at} is none of the {len(own)} of the chunk")

    @staticmethod
    def _outside(own: range, offsets: Offsets) -> npt.NDArray[np.bool_]:
        wrong: npt.NDArray[np.bool_]
        wrong = (offsets % QUAD != 0) | (offsets < 0) | (offsets + QUAD > len(own))
        return wrong

    def stored(self, warp_team: int, starts: Offsets, size: int, what: str) -> None:
        """A team's warp stores ``size`` bytes each of y, at these places."""
        rows = starts // self._row_bytes
        for row in np.unique(rows).tolist():
            if self._teams.get(row) != warp_team:
                raise PtxError(
                    f"{what}: team {warp_team} stores to row {row}, which is not its own"
                )
        for at in range(0, size, self._unit):
            np.add.at(self._done, (starts + at) // self._unit, 1)

    def require_rows(self) -> None:
        """Raise PtxError where some of the block's rows was not stored, or more than once."""
        wanted = np.zeros_like(self._done)
        each = self._row_bytes // self._unit
        for row in self._teams:
            wanted[row * each : (row + 1) * each] = 1
        if (wrong := np.flatnonzero(wanted != self._done)).size:
            at = int(wrong[0])
            raise PtxError(
                f"byte {at * self._unit} of y is stored {self._done[at]} times, not {wanted[at]}"
            )

    def require_all(self, *, bulk_stores: bool) -> None:
        """Raise PtxError where some of a chunk, or of the block's rows, was left out or came more
        than once."""
        self.require_rows()
        reads = self._reads
        for name, counts, times in (
            ("comes", self.filled, 1),
            ("is read", self.read, reads),
            ("is put", self.put, int(bulk_stores)),
        ):
            for group, own in enumerate(counts):
                for chunk, each in enumerate(own):
                    passes = times
                    if name == "is put" and self._launch.plan.config.hold == "reload":
                        passes = times * self._comes_last(group, chunk)
                    if (each != passes).any():
                        at = int(np.flatnonzero(each != passes)[0])
                        raise PtxError(
                            f"byte {at * QUAD} of chunk {chunk} of group {group} {name} "
                            f"{each[at]} times, not {passes}"
                        )

    def _comes_last(self, group: int, chunk: int) -> int:
        """Whether a chunk of a row that comes twice comes the second time."""
        own = self.of_group[group]
        return int(own[chunk] not in own[chunk + 1 :])
