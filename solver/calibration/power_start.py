"""Where a fit of the power constants begins: round figures, and how far each may be from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from solver.device import MEASURED_APART, Constant, DeviceProfile
from solver.families.sm90_gemm_power import TABLE

WIDE, VERY_WIDE = 0.5, 1.0

_ROUND: Mapping[str, tuple[float, float]] = {
    "power_static_w": (120.0, WIDE),
    "power_sm_w": (0.5, VERY_WIDE),
    "power_tensor_w": (350.0, WIDE),
    "power_load_w": (60.0, VERY_WIDE),
    "power_l2_w": (60.0, VERY_WIDE),
    "power_memory_w": (120.0, WIDE),
    "power_voltage_exponent": (1.5, WIDE),
}
LIMIT, MARGIN = "power_limit_w", "power_margin"
_MARGIN = 0.15
"""Until errors are known."""


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
    begun = {name: value for name, (value, _) in _ROUND.items()} | {MARGIN: _MARGIN}
    units = MEASURED_APART[TABLE]
    table = {
        name: Constant(value, units[name], "derived", "a round figure of no authority")
        for name, value in begun.items()
    }
    limit = Constant(limit_w, units[LIMIT], "measured", source)
    models = {**device.models, TABLE: {LIMIT: limit, **table}}
    return PowerStart(
        dataclasses.replace(device, models=models),
        {name: width for name, (_, width) in _ROUND.items()},
    )
