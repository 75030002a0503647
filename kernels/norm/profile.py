"""Nsight Compute's view of norm_activation kernels, side by side."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernels.errors import ProfilerUnusable
from kernels.norm.cells import Cell
from kernels.profiler import find_ncu, run_profiled
from solver.advice.ncu import read_launches
from solver.advice.ncu_metrics import figures_of
from solver.device import DeviceProfile
from solver.errors import InvalidInput

MEMBERS = (
    "time_us",
    "resident_warps",
    "compute_fraction",
    "issue_fraction",
    "long_scoreboard_fraction",
    "barrier_fraction",
    "memory_fraction",
    "l2_hit_fraction",
    "read_bytes",
    "written_bytes",
    "registers_per_thread",
)
"""The figures that are kept of each launch, as in ``solver.advice.figures``."""


def profile_cells(cells: Sequence[Cell], device: DeviceProfile) -> list[dict[str, Any]]:
    """The figures of a cold launch of each cell of one problem, in order; the whole profile as
    figures that ``solver.advice`` takes.

    Raises ProfilerUnusable where Nsight Compute can't be had, may not read counters, or profiled
    something else.
    """
    ncu = find_ncu()
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "cells.json"
        plan.write_text(json.dumps({"cells": [cell.to_dict() for cell in cells]}), "utf-8")
        text = run_profiled(ncu, "kernels.norm.profile_launch", [str(plan)])
    try:
        launches = read_launches(text)
        figures = [figures_of(launch, device)[0].to_dict() for launch in launches]
    except InvalidInput as error:
        raise ProfilerUnusable(f"ncu's output can't be read: {error.message}") from error
    if len(figures) != len(cells):
        raise ProfilerUnusable(f"ncu profiled {len(figures)} launches of {len(cells)}")
    return [{name: each[name] for name in MEMBERS} for each in figures]
