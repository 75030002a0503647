"""Whether dividing the warps pays, by the model: what an answer says of its kind and the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from solver.device import DeviceProfile
from solver.families import norm_activation as family
from solver.families import norm_activation_block as block
from solver.families.norm_activation import FIELDS, NormConfig
from solver.occupancy import sm_limits
from solver.pick import price, row_values
from solver.table import Table
from solver.units import us_from_ticks
from solver.words import compared


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


def verdict(table: Table, work: int, device: DeviceProfile) -> dict[str, Any]:
    """What an answer says of a work: its kind and how its warps are divided, how many blocks an SM
    holds, the best of every kind beside it, and in words what specialising is worth.

    ``over_answer`` of a kind is its least time over the work's.
    """
    best = fastest_by_kind(table)
    mine, _ = _priced(table, work)
    kinds = {kind: _of_kind(table, best.get(kind), mine) for kind in family.KINDS}
    config: NormConfig = table.config(work, work)
    strong, specialised = (_time_us(kinds[kind]) for kind in ("strong", "specialised"))
    return {
        "kind": config.kind,
        "ratio": f"{config.producers}:{config.consumers}" if config.producers else None,
        "depth": config.depth if config.has_ring else None,
        "chunk_bytes": config.chunk_bytes if config.has_ring else None,
        "barrier": config.barrier if config.has_ring else None,
        "resident_blocks": block.resident_blocks(
            config,
            int(table.kernels.registers[work]),
            int(table.kernels.smem_bytes[work]),
            sm_limits(device),
        ),
        "strong_time_us": strong,
        "specialised_time_us": specialised,
        "kinds": kinds,
        "specialising": _words(
            config.kind,
            us_from_ticks(mine),
            {k: each["time_us"] for k, each in kinds.items() if each},
        ),
    }


def _of_kind(table: Table, work: int | None, answered: int) -> dict[str, Any] | None:
    if work is None:
        return None
    time, wait = _priced(table, work)
    return {
        "config": table.config(work, work).to_dict(),
        "time_us": us_from_ticks(time),
        "wait_us": us_from_ticks(wait),
        "over_answer": time / answered,
    }


def _priced(table: Table, work: int) -> tuple[int, int]:
    """Time and wait of a work's one kernel, in ticks."""
    time, wait = price(table, np.array([work]), np.array([work]))
    return int(time[0]), int(wait[0])


def _time_us(kind: Mapping[str, Any] | None) -> float | None:
    return None if kind is None else kind["time_us"]


def _words(kind: str, mine: float, times: Mapping[str, float]) -> str:
    """What specialising is worth, whatever is answered: the best specialised kernel against the
    best of like warps, a ring of theirs included. In µs, ``mine`` is the answer's time and
    ``times`` are the least of each kind that has one."""
    alike = {name: time for name, time in times.items() if name != "specialised"}
    if "specialised" not in times:
        return "specialising does not pay: no specialised kernel is legal for this problem"
    if not alike:
        return "specialising is what is left: no kernel of like warps is legal for this problem"
    divided = times["specialised"]
    rival = kind if alike.get(kind) == min(alike.values()) else min(alike, key=alike.__getitem__)
    pays = divided < alike[rival]
    difference = compared(divided, alike[rival], ("more", "less", "as long"))
    words = (
        f"specialising {'pays' if pays else 'does not pay'}: the best specialised kernel takes "
        f"{_us(divided)} against {_us(alike[rival])} of the best {rival} one, {difference}"
    )
    if mine > min(times.values()) or (kind == "specialised" and not pays):
        words += f"; this {kind} one, of {_us(mine)}, is first by the objective that was asked for"
    return words


def _us(time: float) -> str:
    return f"{time:,.0f} µs" if time >= 1e4 else f"{time:.4g} µs"
