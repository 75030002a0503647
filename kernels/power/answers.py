"""Answers to be held against the GPU: what was asked, what was answered, and whether it holds.

A file of them (``python -m bench.power_plan --answers``) is JSON: ``questions``, each with the
fields of a problem, ``cache``, ``weights`` (time per µs, energy per mJ), ``cap_w`` and ``answers``,
which has of the roles ``pick``, ``weighted`` and ``capped`` each a ``config`` and what is
``predicted`` of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from kernels.bench_plan import InvalidPlan, problem_of
from kernels.files import read_json
from kernels.power.meter import Held
from kernels.statistics import median_interval, ratio_interval
from solver.config import Config
from solver.errors import InvalidInput
from solver.problem import CACHES, Problem

PICK, WEIGHTED, CAPPED = ROLES = ("pick", "weighted", "capped")
CONFIDENCE = 0.95
HOLDS, FAILS, UNDECIDED, SAME = ("holds", "fails", "undecided", "the pick itself")
MJ_PER_J = 1e3


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and its answers by role. ``raw`` is what the file says of it."""

    problem: Problem
    cache: str
    weights: Mapping[str, float]
    cap_w: int
    configs: Mapping[str, Config]
    raw: Mapping[str, Any]


def read_answers(path: Path) -> tuple[Asked, ...]:
    """The questions of a file. Raises InvalidInput where it can't be read, InvalidPlan naming the
    place that is wrong."""
    raw = read_json(path, "answers")
    questions = raw.get("questions") if isinstance(raw, dict) else None
    if not isinstance(questions, list) or not questions:
        raise InvalidPlan("answers", "must be an object with a list of questions")
    return tuple(_asked(each, f"questions[{i}]") for i, each in enumerate(questions))


def _asked(raw: Any, place: str) -> Asked:
    try:
        configs = {role: Config.from_dict(raw["answers"][role]["config"]) for role in ROLES}
        weights = {name: float(raw["weights"][name]) for name in ("time", "energy")}
        asked = Asked(problem_of(raw), raw["cache"], weights, int(raw["cap_w"]), configs, raw)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidPlan(place, f"is no question with its answers: {error!r}") from error
    except InvalidInput as error:
        raise InvalidPlan(f"{place}.{error.field}", error.message) from error
    if asked.cache not in CACHES:
        raise InvalidPlan(f"{place}.cache", f"must be one of {', '.join(CACHES)}")
    return asked


def score(held: Held, weights: Mapping[str, float]) -> float:
    """The weighted sum of a hold: its time per launch in µs and its energy in mJ."""
    return weights["time"] * held.launch_us + weights["energy"] * held.energy_j * MJ_PER_J


def judge(asked: Asked, holds: Mapping[str, Sequence[Held]]) -> dict[str, Any]:
    """What the holds of each role, which took turns, say of the weighted and the capped answer.

    The weighted one holds where its measured score is below the pick's with CONFIDENCE, the capped
    one where its power is at most the cap; each fails where the opposite is sure.
    """
    weighted = _against_pick(
        [score(h, asked.weights) for h in holds[WEIGHTED]],
        [score(h, asked.weights) for h in holds[PICK]],
        asked.configs[WEIGHTED] == asked.configs[PICK],
    )
    low, high = median_interval([h.power_w for h in holds[CAPPED]], CONFIDENCE)
    capped = {
        "cap_w": asked.cap_w,
        "power_w": median([h.power_w for h in holds[CAPPED]]),
        "power_low_w": low,
        "power_high_w": high,
        "verdict": HOLDS if high <= asked.cap_w else FAILS if low > asked.cap_w else UNDECIDED,
    }
    return {
        "measured": {role: _figures(holds[role]) for role in ROLES},
        "weighted": {"score_ratio_to_pick": weighted, "verdict": weighted.pop("verdict")},
        "capped": capped,
    }


def verdict_words(record: Mapping[str, Any]) -> str:
    """A question's record in one line."""
    name = f"{record['m']} x {record['n']} x {record['k']}"
    if "weighted" not in record:
        return f"{name}: {record['details']}"
    ratio, capped = record["weighted"]["score_ratio_to_pick"], record["capped"]
    return (
        f"{name}: weighted {record['weighted']['verdict']} ({ratio['ratio']:.3f} of the pick's "
        f"sum, {ratio['low']:.3f} to {ratio['high']:.3f}), capped {capped['verdict']} "
        f"({capped['power_w']:.0f} W, {capped['power_low_w']:.0f} to {capped['power_high_w']:.0f}, "
        f"of {capped['cap_w']} W)"
    )


def _against_pick(ours: Sequence[float], picks: Sequence[float], same: bool) -> dict[str, Any]:
    ratios = [a / b for a, b in zip(ours, picks, strict=True)]
    found = ratio_interval(ratios, CONFIDENCE)
    verdict = HOLDS if found.high < 1 else FAILS if found.low > 1 else UNDECIDED
    return {
        "ratio": found.ratio,
        "low": found.low,
        "high": found.high,
        "verdict": SAME if same else verdict,
    }


def _figures(holds: Sequence[Held]) -> dict[str, Any]:
    """Medians and their intervals over a role's holds."""
    figures: dict[str, Any] = {"holds": len(holds)}
    for name in ("power_w", "energy_j", "launch_us"):
        values = [getattr(h, name) for h in holds]
        low, high = median_interval(values, CONFIDENCE)
        figures |= {name: median(values), f"{name}_low": low, f"{name}_high": high}
    clocks = [h.sm_clock_mhz for h in holds if h.sm_clock_mhz is not None]
    figures["sm_clock_mhz"] = median(clocks) if clocks else None
    return figures
