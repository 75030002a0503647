"""Where a fit of the power constants begins: round figures, and how far each may be from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from solver.device import Constant, DeviceProfile
from solver.families.sm90_gemm_power import TABLE

WIDE, VERY_WIDE = 0.5, 1.0

_ROUND: Mapping[str, tuple[float, str, float]] = {
    "power_static_w": (120.0, "W", WIDE),
    "power_sm_w": (0.5, "W/SM", VERY_WIDE),
    "power_tensor_w": (350.0, "W", WIDE),
    "power_load_w": (60.0, "W", VERY_WIDE),
    "power_l2_w": (60.0, "W", VERY_WIDE),
    "power_memory_w": (120.0, "W", WIDE),
    "power_voltage_exponent": (1.5, "1", WIDE),
}
LIMIT = "power_limit_w"


@dataclass(frozen=True, slots=True)
class PowerStart:
    """``device`` has every power constant; ``widths`` are the standard deviations of the logarithms
    of those to be fitted."""

    device: DeviceProfile
    widths: Mapping[str, float]


def power_start(device: DeviceProfile, limit_w: float, source: str) -> PowerStart:
    """The device with constants of power to begin from: those that it has, else round figures.

    ``limit_w`` is the power limit that the driver enforces, read as ``source`` says.
    """
    table = {
        name: Constant(value, unit, "derived", "a round figure of no authority")
        for name, (value, unit, _) in _ROUND.items()
    }
    table |= dict(device.models.get(TABLE, {}))
    table = {LIMIT: Constant(limit_w, "W", "measured", source)} | {n: table[n] for n in _ROUND}
    models = {**device.models, TABLE: table}
    return PowerStart(
        dataclasses.replace(device, models=models),
        {n: width for n, (_, _, width) in _ROUND.items()},
    )
