"""Measured rows of norm_activation, race by race: what ``kernels.norm.bench`` records.

Read by the fit, by ``warpwright bench fused`` and by the pages; needs no GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from solver.calibration.rows import Floats
from solver.device import DeviceProfile
from solver.errors import InvalidInput
from solver.families import norm_activation as family
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_columns import NormRows, norm_rows
from solver.families.norm_activation_cost import priced
from solver.pick import price
from solver.recurrence import Ticks
from solver.split import is_norm_held_out
from solver.units import TICKS_PER_US

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NormRace:
    """The rows of one race that passed: R configurations of a problem, timed in turn.

    ``warps_per_sm``: those that fitted on an SM, None for as many as did by themselves. ``rows``
    have the blocks that an SM held by the driver's count, and the shared memory that kept others
    off; ``counted`` is the model's own count of them. ``measured_us`` in µs. Shape [R] each.
    """

    problem: NormProblem
    warps_per_sm: int | None
    cold: bool
    configs: tuple[NormConfig, ...]
    rows: NormRows
    counted: Ticks
    measured_us: Floats

    @property
    def held_out(self) -> bool:
        """Whether nothing may be fitted to the race."""
        return is_norm_held_out(self.problem, self.warps_per_sm)

    @property
    def kinds(self) -> Any:
        """Each row's kind, in words."""
        return np.array([config.kind for config in self.configs])

    def predicted_us(self, device: DeviceProfile, *, counted: bool = False) -> Floats:
        """Each row's predicted time in µs; with ``counted`` blocks as the model counts them, which
        is all that an answer knows."""
        rows = replace(self.rows, resident=self.counted) if counted else self.rows
        table = priced(self.problem, device, rows, self.cold)
        every = np.arange(table.size)
        predicted: Floats = price(table, every, every)[0] / TICKS_PER_US
        return predicted

    def regret(self, predicted_us: Floats) -> float:
        """Measured time of the row predicted fastest over that of the fastest."""
        return float(self.measured_us[int(predicted_us.argmin())] / self.measured_us.min())


def races_of(record: Record, device: DeviceProfile) -> list[NormRace]:
    """The races of a record, without rows that failed. Raises InvalidInput for another record."""
    try:
        if record["suite"] != family.NAME:
            raise InvalidInput("results", f"must be of kernels.norm.bench, got {record['suite']}")
        cold = record["protocol"].get("cache", "cold") == "cold"
        passed = [row for row in record["rows"] if row["status"] == "passed"]
        found = groupby(passed, key=lambda row: (row["race"], str(row["problem"])))
        return [_race(list(rows), device, cold) for _, rows in found]
    except (KeyError, TypeError) as error:
        raise InvalidInput("results", f"holds no rows of kernels.norm.bench: {error!r}") from error


def _race(rows: Sequence[Record], device: DeviceProfile, cold: bool) -> NormRace:
    problem = NormProblem(**rows[0]["problem"])
    configs = tuple(NormConfig.from_dict(row["config"]) for row in rows)
    reserved = [row["reserved_smem_bytes"] for row in rows]
    return NormRace(
        problem,
        rows[0]["warps_per_sm"],
        cold,
        configs,
        norm_rows(problem, configs, device, [row["resident_blocks"] for row in rows], reserved),
        norm_rows(problem, configs, device, None, reserved).resident,
        np.array([row["median_us"] for row in rows]),
    )
