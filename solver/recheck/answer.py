"""The answer to a question, found anew: every member of a certificate that is not asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from solver.recheck.events import last_math_end
from solver.recheck.hopper import hopper_space
from solver.recheck.published import published_space
from solver.recheck.question import CONFIG_FIELDS, VALUES, Question
from solver.recheck.ranking import (
    Ranked,
    Ranking,
    Row,
    front,
    pipeline,
    ranking,
    true_row,
    values_at,
)
from solver.recheck.shipped import read_profile, read_registers
from solver.recheck.space import (
    JOULES_PER_TICK,
    PER_MILLE,
    TICKS_PER_US,
    Kernel,
    Space,
    Work,
    config_values,
    countable,
    table_sha256,
    within,
)


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """``members`` as a certificate must have them; the spaces and rows they come from.

    ``first`` has as many rows as are listed; ``played`` counts runs priced by their events.
    """

    members: Mapping[str, Any]
    legal: Space
    allowed: Space
    first: tuple[Row, ...]
    played: int


def legal_space(question: Question) -> Space:
    """Every legal configuration, priced for the CTAs that the question's bounds leave."""
    profile = read_profile(question.device)
    if question.model == "paper":
        return published_space(question, profile)
    return countable(hopper_space(question, profile))


def allowed_space(question: Question, legal: Space) -> Space:
    """The configurations that the question's bounds leave."""
    ends: dict[tuple[int, int], int] = {}

    def watts(work: Work, kernel: Kernel) -> int:
        ring = (id(work), kernel.slots)
        if ring not in ends:
            ends[ring] = last_math_end(pipeline(work, kernel.slots))
        return work.watts(values_at(work, kernel, ends[ring])[0])

    return within(legal, question.bounds, watts)


def find_answer(question: Question, legal: Space, allowed: Space) -> Answer:
    """The answer to a question whose allowed space is not empty."""
    if question.objective.kind == "pareto":
        members, first, played = _front_members(question, allowed)
    else:
        members, first, played = _ranked_members(question, allowed)
    best = first[0]
    time_us = best.time / TICKS_PER_US
    registers = read_registers()
    members |= {
        "device": {
            "name": question.device,
            "profile_sha256": read_profile(question.device).sha256,
        },
        "registers": None
        if question.model == "paper"
        else {"nvrtc": registers.nvrtc, "source_hash": registers.source_hash},
        "space": {
            "legal": legal.size,
            "excluded_by_constraints": legal.size - allowed.size,
            "configurations": allowed.size,
        },
        "table_sha256": table_sha256(allowed),
        "config": _config(allowed, best),
        "kernel": {
            "grid": best.work.active,
            "threads": best.kernel.threads,
            "smem_bytes": best.kernel.smem_bytes,
            "registers_per_thread": best.kernel.registers or None,
        },
        "predicted": {
            "time_us": time_us,
            "wait_us": best.wait / TICKS_PER_US,
            "tflops": 2 * question.m * question.n * question.k / time_us / 1e6,
            **_sustained_prediction(best),
        },
    }
    return Answer(members, legal, allowed, first, played)


def _ranked_members(
    question: Question, allowed: Space
) -> tuple[dict[str, Any], tuple[Row, ...], int]:
    order = ranking(question.objective)
    rows = Ranked(allowed, order.key)
    first = tuple(islice(rows, question.top_k))
    least = order.key(first[0].values)[0]
    alternatives = []
    for row in first[1:]:
        rank = order.key(row.values)[0]
        gap = rank / least - 1 if least else None
        alternatives.append(_listed(allowed, row, _score(order, row), gap))
    members = {
        "score": _score(order, first[0]),
        "alternatives": alternatives,
        "front": None,
        "front_size": None,
        "complete": None,
    }
    return members, first, rows.played


def _front_members(
    question: Question, allowed: Space
) -> tuple[dict[str, Any], tuple[Row, ...], int]:
    found = front(allowed, question.objective)
    listed = found.points[: question.objective.cap]
    members = {
        "score": None,
        "alternatives": [],
        "front": [_listed(allowed, row, None, row.time / found.least_time - 1) for row in listed],
        "front_size": len(found.points),
        "complete": len(listed) == len(found.points),
    }
    return members, listed, found.played


def _score(order: Ranking, row: Row) -> float | None:
    return None if order.score is None else float(order.key(row.values)[0] * order.score)


def _config(space: Space, row: Row) -> dict[str, Any]:
    values = config_values(row.work, row.kernel)
    return {"family": space.family, **dict(zip(CONFIG_FIELDS, values, strict=True))}


def _listed(space: Space, row: Row, score: float | None, gap: float | None) -> dict[str, Any]:
    return {
        "config": _config(space, row),
        "time_us": row.time / TICKS_PER_US,
        "wait_us": row.wait / TICKS_PER_US,
        "smem_bytes": row.kernel.smem_bytes,
        "registers_per_thread": row.kernel.registers or None,
        "score": score,
        "gap": gap,
        **_sustained(row),
    }


def _sustained(row: Row) -> dict[str, float]:
    """Power and energy of a row's launches that follow one another for seconds."""
    power = row.work.power
    if not power:
        return {}
    energy = row.values[VALUES.index("energy")]
    held = row.time * power["power_slowdown"]
    return {
        "power_w": energy * PER_MILLE / held,
        "power_high_w": row.work.watts(row.time),
        "energy_j": energy * JOULES_PER_TICK,
    }


def standing(answer: Answer, config: Any) -> str:
    """Why a claimed configuration is not the first: not legal, not allowed, or behind it."""
    row = _row_of(answer.legal, config)
    if row is None:
        return "is not a legal configuration for this problem, model and device"
    if _row_of(answer.allowed, config) is None:
        return "breaks the constraints"
    words = ("time_us", "wait_us", "smem_bytes", "registers_per_thread")
    scale = (TICKS_PER_US, TICKS_PER_US, 1, 1)
    own, best = (
        ", ".join(
            f"{word} {value / unit if unit > 1 else value}"
            for word, value, unit in zip(words, each.values, scale, strict=False)
        )
        for each in (row, answer.first[0])
    )
    return f"does not come first: it has {own}; the first has {best}"


def _sustained_prediction(row: Row) -> dict[str, Any]:
    """What a prediction says of launches that follow one another for seconds."""
    power = row.work.power
    if not power:
        return {}
    held_us = row.time * power["power_slowdown"] / (TICKS_PER_US * PER_MILLE)
    return {
        "sustained": {
            **_sustained(row),
            "time_us": held_us,
            "clock_mhz": power["power_clock_mhz"],
        }
    }


def _row_of(space: Space, config: Any) -> Row | None:
    if type(config) is not dict or config.get("family") != space.family:
        return None
    wanted = tuple(config.get(name) for name in CONFIG_FIELDS)
    if any(type(value) is not int for value in wanted):
        return None
    for work, kernel in space.rows():
        if config_values(work, kernel) == wanted:
            return true_row(work, kernel)
    return None
