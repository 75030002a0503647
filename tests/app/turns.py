"""A job's turn without a queue: its rows lie in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.turn import Turn
from kernels.process import Worker


class RowsInMemory:
    """Rows of runs, as the database has them."""

    def __init__(self) -> None:
        self.basis = ""
        self.kept: dict[int, Mapping[str, Any]] = {}

    def begin(self, basis: str) -> dict[int, Mapping[str, Any]]:
        if basis != self.basis:
            self.kept.clear()
        self.basis = basis
        return dict(self.kept)

    def add(self, number: int, data: Mapping[str, Any]) -> None:
        self.kept[number] = data


def turn(
    on_report: Callable[[dict[str, Any]], None] = lambda facts: None,
    rows: RowsInMemory | None = None,
) -> Turn:
    """A turn with a process that is not started."""
    return Turn(Worker(), 60.0, on_report, rows or RowsInMemory())
