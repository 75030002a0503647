"""Costs of norm_activation kernels on a device that was made up, for tests of their terms."""

from __future__ import annotations

import dataclasses

from solver.device import DeviceProfile
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_columns import norm_rows
from solver.families.norm_activation_cost import priced
from solver.pick import price
from solver.table import Table
from solver.units import TICKS_PER_US
from tests.norm_profiles import invented

DEVICE = invented()
SMS = DEVICE.limit("sms")
POLY = NormProblem(132 * 512, 4096, "fp32", "layer", "poly", 64)
STRONG = NormConfig("strong", 8, team=4)
ROLES = NormConfig(
    "specialised",
    12,
    4,
    team=12,
    copies="vector",
    barrier="named",
    depth=2,
    chunk_bytes=16384,
    rounds=0,
)
BULK = dataclasses.replace(ROLES, producers=1, copies="bulk", barrier="mbarrier")
RING = NormConfig("ring", 8, team=8, depth=4, chunk_bytes=16384, rounds=0)

WAITS = ("row_cycles", "batch_cycles", "turn_cycles", "mbarrier_cycles", "l2_latency_us")
"""What a warp of a ring waits for besides its chunks."""


def cost(
    problem: NormProblem,
    config: NormConfig,
    device: DeviceProfile = DEVICE,
    resident: int = 1,
    cold: bool = True,
) -> Table:
    return priced(problem, device, norm_rows(problem, [config], device, [resident]), cold)


def time_us(
    problem: NormProblem,
    config: NormConfig,
    device: DeviceProfile = DEVICE,
    resident: int = 1,
    cold: bool = True,
) -> float:
    table = cost(problem, config, device, resident, cold)
    return float(price(table, [0], [0])[0][0]) / TICKS_PER_US


def total_us(table: Table, part: str) -> float:
    """A work's load or math of all iterations."""
    w = table.works
    return float(getattr(w, part)[0] * w.iterations[0]) / TICKS_PER_US


def steady(**changed: float) -> DeviceProfile:
    """A device on which loads and math don't meet."""
    return invented(**{"overlap_norm": 400.0} | changed)
