"""The fastest kernel of each kind by the model, on an SM of its own or on one that is taken up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.device import DeviceProfile
from solver.families import norm_activation as family
from solver.families.norm_activation import FIELDS, NormConfig, NormProblem
from solver.families.norm_activation_cost import priced
from solver.families.norm_activation_crowding import rows_on_sm
from solver.pick import price, row_values
from solver.table import Table
from solver.units import us_from_ticks


@dataclass(frozen=True, slots=True)
class Forecast:
    """A configuration and what it is predicted to take."""

    config: NormConfig
    time_us: float

    def to_dict(self) -> dict[str, Any]:
        """The forecast as JSON-ready values."""
        return {
            "kind": self.config.kind,
            "time_us": self.time_us,
            "config": self.config.to_dict(),
        }


def fastest_by_kind(table: Table) -> dict[str, int]:
    """The work of each kind that comes first in the default ranking, in the order of KINDS, kinds
    without one left out."""
    every = np.arange(table.size)
    values = row_values(table, every, every)
    time = values[0]
    found = {}
    for kind in family.KINDS:
        code = family.WORDS["kind"].index(kind)
        mine = np.flatnonzero(table.works.config["kind"] == code)
        if mine.size:
            near = mine[time[mine] == time[mine].min()]
            order = (*values, *(table.works.config[name] for name in FIELDS))
            found[kind] = int(near[np.lexsort([column[near] for column in reversed(order)])[0]])
    return found


def forecasts(
    problem: NormProblem, device: DeviceProfile, cache: str, warps_per_sm: int | None
) -> dict[str, Forecast]:
    """The fastest legal kernel of each kind that has one, in the order of KINDS.

    ``warps_per_sm``: of each, so many warps fit on an SM; None: as many as do. Raises Unsupported
    for a device without the model's constants.
    """
    rows = rows_on_sm(problem, device, warps_per_sm)
    table = priced(problem, device, rows, cache == "cold")
    best = fastest_by_kind(table)
    works = np.array(list(best.values()), dtype=np.int64)
    times = dict(zip(best, price(table, works, works)[0], strict=True))
    found = {}
    for kind in family.KINDS:
        if kind in best:
            values = {name: int(c[best[kind]]) for name, c in rows.config.items()}
            found[kind] = Forecast(NormConfig.from_columns(values), us_from_ticks(int(times[kind])))
    return found
