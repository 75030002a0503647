"""What an answer says of its kind, of the others, and of whether dividing the warps pays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from solver.advice.advise import AGAINST, SOURCES, SPECIALISE, UNDECIDED, Verdict
from solver.device import DeviceProfile
from solver.families import norm_activation as family
from solver.families import norm_activation_block as block
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_advice import VETOES, NormAdvice, advise_problem
from solver.families.norm_activation_forecast import fastest_by_kind
from solver.families.norm_activation_rivals import DIVIDED
from solver.occupancy import sm_limits
from solver.pick import price
from solver.table import Table
from solver.units import us_from_ticks
from solver.words import compared

PAYS: Mapping[Verdict, str] = {
    SPECIALISE: "specialising pays",
    AGAINST: "specialising does not pay",
    UNDECIDED: "whether specialising pays is undecided",
}


def verdict(
    problem: NormProblem, cache: str, table: Table, work: int, device: DeviceProfile
) -> dict[str, Any]:
    """What an answer says of a work: its kind and how its warps are divided, how many blocks an SM
    holds, the best of every kind beside it, and what advice has to say of dividing the warps.

    ``over_answer`` of a kind is its least time over the work's.
    """
    best = fastest_by_kind(table)
    mine, _ = _priced(table, work)
    kinds = {kind: _of_kind(table, best.get(kind), mine) for kind in family.KINDS}
    config: NormConfig = table.config(work, work)
    strong, specialised = (_time_us(kinds[kind]) for kind in ("strong", "specialised"))
    least = min(_priced(table, each)[0] for each in best.values())
    said = advise_problem(problem, device, cache)
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
        "advice": said.advice.verdict,
        "specialising": _words(said, config.kind, us_from_ticks(mine), us_from_ticks(least)),
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


def _words(said: NormAdvice, kind: str, mine_us: float, least_us: float) -> str:
    """What advice says, the times that it is by, and how the answer, of ``mine_us`` by the model,
    comes to be another kernel. ``least_us`` is the least of all by the model."""
    advice = said.advice
    pays = advice.verdict == SPECIALISE
    fastest = {each.config.kind: each for each in said.kernels}
    divided, rival = fastest.get(DIVIDED), fastest[said.config.kind]
    if divided is None:
        return f"{PAYS[AGAINST]}: no specialised kernel is legal for this problem"
    by = SOURCES[advice.source]
    difference = compared(divided.time_us, rival.time_us, ("more", "less", "as long"))
    words = (
        f"{PAYS[advice.verdict]}: by {by} the best specialised kernel takes "
        f"{_us(divided.time_us)} against {_us(rival.time_us)} of the best {said.config.kind} one, "
        f"{difference}"
    )
    if advice.verdict == UNDECIDED:
        words += f", which is no more than {by} may be off by"
    words += "".join(f"; {_phrase(each.words)}" for each in advice.reasons if each.reason in VETOES)
    if mine_us > least_us:
        first_by = "objective that was asked for"
    elif (kind == DIVIDED) != pays:
        first_by = "model"
    else:
        return words
    return f"{words}; this {kind} one, of {_us(mine_us)}, is first by the {first_by}"


def _phrase(sentence: str) -> str:
    return f"{sentence[0].lower()}{sentence[1:].rstrip('.')}"


def _us(time: float) -> str:
    return f"{time:,.0f} µs" if time >= 1e4 else f"{time:.4g} µs"
