"""Records of norm_activation as ``kernels.norm.bench`` writes them, of a device that is made up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from bench.norm_grid import cells
from kernels.norm.cells import Cell
from solver.device import DeviceProfile, load_profile
from solver.families import norm_activation_block as block
from solver.families.norm_activation_columns import norm_rows
from solver.families.norm_activation_cost import priced
from solver.occupancy import sm_limits
from solver.pick import price
from solver.units import TICKS_PER_US

H200 = load_profile("h200")


@cache
def planned() -> tuple[Cell, ...]:
    """The grid's cells."""
    return tuple(cells(H200))


def timed(
    device: DeviceProfile,
    noise: float = 0.01,
    *,
    every: int = 1,
    chosen: Callable[[Cell], bool] = lambda cell: True,
) -> list[dict[str, Any]]:
    """Every n-th row of the chosen races of the grid, as the device's model has them, and noise."""
    limits, random = sm_limits(H200), np.random.default_rng(7)
    rows: list[dict[str, Any]] = []
    for _, members in groupby(planned(), key=lambda cell: cell.race):
        race = list(members)[::every]
        if not chosen(race[0]):
            continue
        problem, configs = race[0].problem, [cell.config for cell in race]
        resident = [
            block.resident_blocks(
                cell.config,
                block.launch_registers(problem, cell.config, limits.registers),
                block.smem_bytes(problem, cell.config) + cell.reserved_smem_bytes,
                limits,
            )
            for cell in race
        ]
        table = priced(
            problem,
            device,
            norm_rows(problem, configs, device, resident, [c.reserved_smem_bytes for c in race]),
        )
        works = np.arange(table.size)
        times = price(table, works, works)[0] / TICKS_PER_US
        times = times * np.exp(random.normal(0, noise, table.size))
        for cell, blocks, time_us in zip(race, resident, times.tolist(), strict=True):
            row = {"status": "passed", "median_us": time_us, "resident_blocks": blocks}
            rows.append(cell.to_dict() | row)
    return rows


def write_record(path: Path, rows: Iterable[dict[str, Any]], **head: Any) -> Path:
    """A record of these rows."""
    known = {"device": "NVIDIA H200", "driver": "1", "nvrtc": "13.5", "commit": "0" * 40}
    known |= {"source_hash": "0" * 64, "date": "2026-11-30T00:00:00+00:00", "complete": True}
    head = {"suite": "norm_activation", "protocol": {"cache": "cold"}, **known} | head
    path.write_text(json.dumps({**head, "rows": list(rows)}), "utf-8")
    return path
