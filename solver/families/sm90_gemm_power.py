"""What a Hopper GEMM draws where launches follow one another for seconds, and so a launch's energy.

Power has few terms, each with its constant in the profile (``models.sm90_gemm_power``; equations,
units and sources: ``docs/energy.md``): the device with its clocks up, each SM that has a CTA, and
the tensor cores, load paths, L2 and memory for as long as their work takes them at full rate. Where
the sum is beyond the limit of the part the SM clock falls until it is not, and voltage with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.device import DeviceProfile
from solver.recurrence import Ticks
from solver.table import CLOCK, DYNAMIC, HIGH, LIMIT, PER_MILLE, SLOWDOWN, STATIC
from solver.units import TICKS_PER_US

TABLE = "sm90_gemm_power"
"""The profile's table of constants; a device without it has no model of power."""
CLOCK_STEPS = 3
"""Towards the clock at which the power limit holds; the first is exact where MATH alone decides."""
LEAST_LEFT_W = 1.0
"""What the limit leaves for work at the least, however much the idle device draws."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What launches of W works do, at the SM clock ``clock_ghz`` that they are priced at.

    ``active`` SMs have a CTA. ``tensor``, ``load``, ``l2`` and ``memory`` are for how many µs of a
    launch those of the whole device would be at work, each at its full rate and, but for memory, at
    the clock ``rated_ghz``. ``copied_us`` go to copies of operands. ``steady_us`` is how long the
    critical CTA's k-iterations take at a clock in GHz, ``other_us`` what a launch takes besides.
    """

    rated_ghz: float
    clock_ghz: Any
    active: Any
    tensor: Any
    load: Any
    l2: Any
    memory: Any
    copied_us: float
    steady_us: Callable[[Any], Any]
    other_us: Any


def power_columns(device: DeviceProfile, work: Activity) -> Mapping[str, Ticks]:
    """The columns of ``solver.table.POWER`` of works, or none where the device has no constants."""
    if TABLE not in device.models:
        return {}
    k = {name: constant.value for name, constant in device.model(TABLE).items()}
    idle_w = k["power_static_w"] + k["power_sm_w"] * work.active
    exponent = k["power_voltage_exponent"]
    by_clock = (
        k["power_tensor_w"] * work.tensor
        + k["power_load_w"] * work.load
        + k["power_l2_w"] * work.l2
    )
    unclocked = k["power_memory_w"] * (work.memory + work.copied_us)

    def work_uj(clock_ghz: Any) -> Any:
        return by_clock * (clock_ghz / work.rated_ghz) ** exponent + unclocked

    def launch_us(clock_ghz: Any) -> Any:
        return work.steady_us(clock_ghz) + work.other_us

    # Time goes with the clock at the most, and energy with the voltage: each step comes nearer.
    left_w = np.maximum(k["power_limit_w"] - idle_w, LEAST_LEFT_W)
    held_ghz = work.clock_ghz
    for _ in range(CLOCK_STEPS):
        asked_w = work_uj(held_ghz) / launch_us(held_ghz)
        held_ghz = held_ghz * np.minimum(1, left_w / asked_w) ** (1 / (1 + exponent))
    slowdown = launch_us(held_ghz) / launch_us(work.clock_ghz)

    def whole(column: Any) -> Ticks:
        integers: Ticks = np.rint(column).astype(np.int64)
        return integers

    return {
        STATIC: whole(idle_w * slowdown),
        DYNAMIC: whole(work_uj(held_ghz) * TICKS_PER_US),
        SLOWDOWN: whole(slowdown * PER_MILLE),
        CLOCK: whole(held_ghz * 1e3),
        HIGH: whole(np.full_like(slowdown, (1 + k["power_margin"]) * PER_MILLE)),
        LIMIT: whole(np.full_like(slowdown, k["power_limit_w"])),
    }
