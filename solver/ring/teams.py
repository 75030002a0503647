"""The barrier program of warps that share rows: teams of norm_activation's consumers.

Each of a row's sums takes one named barrier of exactly the team's warps and one of two lines of
scratch, in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from solver.ring.steps import Program, Step, Sync
from solver.ring.stream_steps import ReadScratch, WriteScratch

LINES = 2  # of scratch, of each team


@dataclass(frozen=True, slots=True)
class Teams:
    """``warps`` consumers in teams of ``team``; a row takes ``sums``. The block of a kernel without
    rings: warps that are alike."""

    warps: int
    team: int
    sums: int

    def alike(self, rows: Sequence[int]) -> dict[str, Program]:
        """Every warp's program where team t takes ``rows[t]`` rows one after the other."""
        return {
            f"consumer{warp}": tuple(
                step
                for row in range(rows[warp // self.team])
                for step in self.sum_up(warp, row * self.sums)
            )
            for warp in range(self.warps)
        }

    def team_id(self, team: int) -> int:
        """The named barrier of a team."""
        return 1 + team

    def sync(self, warp: int) -> Iterator[Step]:
        """Where a consumer's team comes together."""
        if self.team > 1:
            yield Step(Sync(self.team_id(warp // self.team), self.team))

    def sum_up(self, warp: int, first: int) -> Iterator[Step]:
        """A row's sums, the first of which is a team's number ``first``."""
        if self.team == 1:
            return
        for number in range(first, first + self.sums):
            line = self.line(number)
            yield Step(WriteScratch(warp // self.team, line), 1)
            yield from self.sync(warp)
            yield Step(ReadScratch(warp // self.team, line))

    def line(self, number: Any) -> Any:
        """The line of scratch of a team's sum; in any algebra."""
        return number % LINES
