"""What the runner calls in a GPU process. CUDA is imported inside the functions."""

from __future__ import annotations

from typing import Any

from kernels.norm.cells import Cell
from kernels.protocol import Protocol


def facts() -> dict[str, Any]:
    """What a record says of the GPU."""
    from kernels.session import session

    current = session()
    return {"sms": current.sms, "l2_bytes": current.l2_bytes}


def check_cell(cell: Cell) -> str:
    """``kernels.norm.race.check_cell``."""
    from kernels.norm import race

    return race.check_cell(cell)


def measure_race(cells: list[Cell], protocol: Protocol) -> list[dict[str, Any]]:
    """``kernels.norm.race.measure_race``."""
    from kernels.norm import race

    return race.measure_race(cells, protocol)
