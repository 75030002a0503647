"""Whether dividing the warps pays, by the model: what an answer says of its kind and the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from solver.device import DeviceProfile
from solver.families import norm_activation as family
from solver.families.norm_activation import NormConfig
from solver.occupancy import sm_limits
from solver.pick import price
from solver.table import Table
from solver.units import us_from_ticks
from solver.words import digits


def fastest_by_kind(table: Table) -> dict[str, int]:
    """The work of each kind that takes the least time, in the order of KINDS, kinds without one
    left out. Of works that take alike it is the first."""
    every = np.arange(table.size)
    time, _ = price(table, every, every)
    found = {}
    for kind in family.KINDS:
        code = family.WORDS["kind"].index(kind)
        mine = np.flatnonzero(table.works.config["kind"] == code)
        if mine.size:
            found[kind] = int(mine[time[mine].argmin()])
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
        "resident_blocks": family.resident_blocks(
            config,
            int(table.kernels.registers[work]),
            int(table.kernels.smem_bytes[work]),
            sm_limits(device),
        ),
        "strong_time_us": strong,
        "specialised_time_us": specialised,
        "kinds": kinds,
        "specialising": _words(config.kind, us_from_ticks(mine), strong, specialised),
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


def _words(kind: str, mine: float, strong: float | None, specialised: float | None) -> str:
    """In µs: what is answered, the best strong kernel and the best specialised one."""
    if kind == "specialised":
        if strong is None:
            return "specialising is what is left: no strong kernel is legal for this problem"
        beside = f"{mine:.4g} µs against {strong:.4g} µs of the best strong kernel"
        if mine < strong:
            return f"specialising pays: {beside}, {digits(1 - mine / strong)} less"
        return (
            f"specialising does not pay in time: {beside}, {digits(mine / strong - 1)} more; this "
            "one is first by the objective that was asked for"
        )
    if specialised is None:
        return "specialising does not pay: no specialised kernel is legal for this problem"
    if specialised < mine:
        return (
            f"specialising would pay in time: the best specialised kernel takes {specialised:.4g} "
            f"µs against {mine:.4g} µs of this {kind} one, which is first by the objective that "
            "was asked for"
        )
    return (
        f"specialising does not pay: the best specialised kernel takes {specialised:.4g} µs "
        f"against {mine:.4g} µs of this {kind} one, {digits(specialised / mine - 1)} more"
    )
