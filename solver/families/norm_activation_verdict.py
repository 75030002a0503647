"""Whether dividing the warps pays, by the model: what an answer says of its kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.families import norm_activation as family
from solver.pick import price
from solver.table import Table
from solver.units import us_from_ticks
from solver.words import digits


def fastest_by_kind(table: Table) -> dict[str, int]:
    """The work of each kind that takes the least time, kinds without one left out."""
    every = np.arange(table.size)
    time, _ = price(table, every, every)
    found = {}
    for code, kind in enumerate(family.WORDS["kind"]):
        mine = np.flatnonzero(table.works.config["kind"] == code)
        if mine.size:
            found[kind] = int(mine[time[mine].argmin()])
    return found


def verdict(table: Table, work: int) -> dict[str, Any]:
    """The kind of a work, the least times of strong and specialised kernels, and in words what
    specialising is worth."""
    best = fastest_by_kind(table)
    every = np.array([work, *best.values()])
    mine, *times = (int(time) for time in price(table, every, every)[0])
    of_kind = dict(zip(best, times, strict=True))
    kind = family.WORDS["kind"][int(table.works.config["kind"][work])]
    strong, specialised = (of_kind.get(name) for name in ("strong", "specialised"))
    return {
        "kind": kind,
        "strong_time_us": None if strong is None else us_from_ticks(strong),
        "specialised_time_us": None if specialised is None else us_from_ticks(specialised),
        "specialising": _words(kind, mine, strong, specialised),
    }


def _words(kind: str, mine: int, strong: int | None, specialised: int | None) -> str:
    if kind == "specialised":
        if strong is None:
            return "specialising is what is left: no strong kernel is legal for this problem"
        return (
            f"specialising pays: {us_from_ticks(mine):.4g} µs against {us_from_ticks(strong):.4g} "
            f"µs of the best strong kernel, {digits(1 - mine / strong)} less"
        )
    if specialised is None:
        return "specialising does not pay: no specialised kernel is legal for this problem"
    return (
        f"specialising does not pay: the best specialised kernel takes "
        f"{us_from_ticks(specialised):.4g} µs against {us_from_ticks(mine):.4g} µs of this {kind} "
        f"one, {digits(specialised / mine - 1)} more"
    )
