"""What a sweep has recorded, without a database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Kept:
    """Rows as a database keeps them."""

    def __init__(self) -> None:
        self.basis = ""
        self.rows: dict[int, Mapping[str, Any]] = {}

    def begin(self, basis: str) -> Mapping[int, Mapping[str, Any]]:
        if basis != self.basis:
            self.rows.clear()
        self.basis = basis
        return dict(self.rows)

    def add(self, number: int, data: Mapping[str, Any]) -> None:
        assert number not in self.rows, "measured twice"
        self.rows[number] = data
