"""What is said of kernels whose warps divide the work, held against recorded races, point by point;
and like warps against what memory gives.

The published claim: 4 producer and 12 consumer warps, double-buffered, with named barriers, take 30
to 45 % less time than a plain kernel; 4:12 is before 8:8, and that before 2:14.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any

import numpy as np

from solver.advice.rates import rates_of
from solver.device import DeviceProfile
from solver.families.norm_activation import NormConfig
from solver.families.norm_activation_rivals import RIVALS
from solver.fused import HEADLINE, TIE, Outcome

CLAIMED = (0.55, 0.70)
"""Time over a plain kernel's that is claimed: 30 to 45 % less."""
CLAIMED_WARPS = 16
"""Warps of the kernels that the claim is about: they need as many on an SM."""
MEMORY_BOUND = 0.5
"""Of a copy's time, what arithmetic at the general pipes' peak takes at most where memory alone
bounds a problem."""

WHY = {
    "claimed": "the plain kernel has as many warps as fit and finds its rows in the L1 when it "
    "reads them again: there is little latency left to hide",
    "less": "producer warps that load by vectors wait for each turn of their loads, and take issue "
    "slots of the consumers",
    "order": "which ratio is best goes with how many warps share a row and what is to compute, not "
    "with the ratio itself",
    "like": "what gains are copies ahead of their chunks, and like warps have them too",
    "named": "a block of named rings takes all 16 of its barriers, and every thread of both roles "
    "meets there; an mbarrier takes one arrival of a warp",
    "deep": "with whole rows in a chunk two are enough to have the next one on its way",
    "copies": "a bulk copy takes one thread and runs ahead; loads of producer warps come turn by "
    "turn, and their stores to shared memory besides",
}
"""Why each came out as it did."""

UNTRIED: Mapping[str, tuple[Callable[[NormConfig], bool], str]] = {
    "rows held in their slots and stored in bulk from them": (
        lambda config: config.stores == "bulk",
        "mostly where little is computed: rows leave without passing the L1, which keeps scale and "
        "shift; but a team meets once more before each store, and slots are held until then",
    ),
    "blocks that end instead of persistent ones": (
        lambda config: config.rounds > 0,
        "each block fills its rings anew, and waits for its first chunks",
    ),
    "registers moved from producers to consumers": (
        lambda config: config.register_split == 1,
        "all threads are launched with 128 registers, with which fewer blocks fit on an SM",
    ),
    "rows in parts that come twice": (
        lambda config: config.hold == "reload",
        "each chunk is loaded twice, where a ring of more or larger slots holds the whole row",
    ),
}
"""What the first attempt had not tried of divided warps, and why each came out as it did."""

Ratio = Callable[[Outcome], float | None]


def _divided(outcome: Outcome, *roles: tuple[int, int], **fields: Any) -> float | None:
    """Least measured time of rows with these (producers, consumers) and fields, in µs."""
    rows = [
        row
        for row, config in enumerate(outcome.race.configs)
        if (config.producers, config.consumers) in roles and _has(config, fields)
    ]
    return float(outcome.race.measured_us[rows].min()) if rows else None


def _has(config: NormConfig, fields: Mapping[str, Any]) -> bool:
    return all(getattr(config, name) == value for name, value in fields.items())


NAMED = {"copies": "vector", "barrier": "named", "depth": 2}
"""The claimed kernel's form: producers load by vectors, two buffers, named barriers."""


def _claimed(outcome: Outcome, *roles: tuple[int, int]) -> float | None:
    return _divided(outcome, *(roles or ((4, 12),)), **NAMED)


def _over(part: float | None, whole: float | None) -> float | None:
    return None if part is None or whole is None else part / whole


def _against_plain(outcome: Outcome) -> float | None:
    return _over(_claimed(outcome), outcome.least_us("plain"))


def _against_like(outcome: Outcome) -> float | None:
    return _over(_claimed(outcome), outcome.least_us(*RIVALS[HEADLINE]))


def _named_over_mbarrier(outcome: Outcome) -> float | None:
    fields = NAMED | {"barrier": "mbarrier"}
    return _over(_claimed(outcome), _divided(outcome, (4, 12), **fields))


def _deeper_over_double(outcome: Outcome) -> float | None:
    """The better of depth 4 and 6 over depth 2, of one copying thread's rings."""
    ring = {"copies": "bulk", "chunk_bytes": 16384, "groups": 1, "rounds": 0, "stores": "vector"}
    times = {n: _divided(outcome, (1, 8), (1, 4), depth=n, **ring) for n in (2, 4, 6)}
    deeper = [time for n, time in times.items() if n > 2 and time is not None]
    return _over(min(deeper, default=None), times[2])


def _copies_over_loads(outcome: Outcome) -> float | None:
    """The best with one copying thread over the best of producers that load by vectors."""
    rows = {
        copies: [
            row
            for row, config in enumerate(outcome.race.configs)
            if config.kind == "specialised" and config.copies == copies
        ]
        for copies in ("bulk", "vector")
    }
    best = {
        copies: float(outcome.race.measured_us[each].min()) if each else None
        for copies, each in rows.items()
    }
    return _over(best["bulk"], best["vector"])


def _in_order(outcome: Outcome) -> bool | None:
    times = [_claimed(outcome, roles) for roles in ((4, 12), (8, 8), (2, 14))]
    if any(time is None for time in times):
        return None
    known = [time for time in times if time is not None]
    return known == sorted(known)


def claims(found: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Each claim with the problems that it can be held against, in how many it held, and the ratio
    of times that it is about: its median, least and most. None where there is no ratio."""
    natural = [each for each in found if each.natural]
    sixteen = [each for each in found if each.race.warps_per_sm == CLAIMED_WARPS]
    low, high = CLAIMED
    lines = []
    for words, some in (("as many warps as fit", natural), ("16 warps on an SM", sixteen)):
        lines += [
            _line(
                "4:12, two buffers, named barriers: 30 to 45 % less time than a plain kernel",
                words,
                some,
                _against_plain,
                lambda ratio: low <= ratio <= high,
                WHY["claimed"],
            ),
            _line(
                "… any time less",
                words,
                some,
                _against_plain,
                lambda ratio: ratio < 1 - TIE,
                WHY["less"],
            ),
            _order(words, some),
            _line(
                "4:12 beats the best kernel of like warps",
                words,
                some,
                _against_like,
                lambda ratio: ratio < 1 - TIE,
                WHY["like"],
            ),
        ]
    lines += [
        _line(
            "named barriers are as good as mbarriers, within 3 %",
            "4:12, all occupancies",
            found,
            _named_over_mbarrier,
            lambda ratio: abs(ratio - 1) <= 0.03,
            WHY["named"],
        ),
        _line(
            "two buffers are enough: four or six save at most 3 %",
            "one copying thread, all occupancies",
            found,
            _deeper_over_double,
            lambda ratio: ratio >= 0.97,
            WHY["deep"],
        ),
        _line(
            "producer warps that load are as good as one thread's bulk copies, within 2 %",
            "best of each, all occupancies",
            found,
            _copies_over_loads,
            lambda ratio: ratio >= 1 - TIE,
            WHY["copies"],
        ),
    ]
    crowded = [each for each in found if not each.natural]
    for words, some in (("as many warps as fit", natural), ("4, 8 or 16 on an SM", crowded)):
        lines += [
            _line(
                f"not tried before: {what} beat divided warps without, by over 2 %",
                words,
                some,
                partial(_with_over_without, has),
                lambda ratio: ratio < 1 - TIE,
                why,
            )
            for what, (has, why) in UNTRIED.items()
        ]
    return lines


def _with_over_without(has: Callable[[NormConfig], bool], outcome: Outcome) -> float | None:
    """The best divided kernel of those that have something over the best of those without."""
    times: dict[bool, float] = {}
    for config, time_us in zip(outcome.race.configs, outcome.race.measured_us, strict=True):
        if config.kind == "specialised":
            side = has(config)
            times[side] = min(float(time_us), times.get(side, inf))
    return _over(times.get(True), times.get(False))


def _line(
    claim: str,
    over: str,
    found: Sequence[Outcome],
    ratio_of: Ratio,
    holds: Callable[[float], bool],
    why: str,
) -> dict[str, Any]:
    ratios = [ratio for each in found if (ratio := ratio_of(each)) is not None]
    return {
        "claim": claim,
        "over": over,
        "problems": len(ratios),
        "held": sum(holds(ratio) for ratio in ratios),
        "median": float(np.median(ratios)) if ratios else None,
        "least": min(ratios, default=None),
        "most": max(ratios, default=None),
        "why": why,
    }


def _order(over: str, found: Sequence[Outcome]) -> dict[str, Any]:
    known = [order for each in found if (order := _in_order(each)) is not None]
    return {
        "claim": "4:12 is before 8:8, and that before 2:14",
        "over": over,
        "problems": len(known),
        "held": sum(known),
        "median": None,
        "least": None,
        "most": None,
        "why": WHY["order"],
    }


def bandwidth(
    found: Sequence[Outcome], device: DeviceProfile, ceilings: Mapping[str, Any] | None
) -> list[dict[str, Any]] | None:
    """Of each problem at natural occupancy that memory alone bounds: what its fastest strong kernel
    and its fastest of all kinds move, over what a copy moved. None without measured ceilings."""
    if ceilings is None or not ceilings["ceilings"].get("copy_gb_per_s"):
        return None
    copy = float(ceilings["ceilings"]["copy_gb_per_s"])
    flops_per_us, lines = rates_of(device).flops_per_us, []
    for outcome in found:
        problem = outcome.race.problem
        copy_us = problem.storage_bytes / copy / 1e3
        strong = outcome.least_us("strong")
        if not outcome.natural or strong is None:
            continue
        if 2 * problem.fmas / flops_per_us <= MEMORY_BOUND * copy_us:
            best = float(outcome.race.measured_us.min())
            lines.append(
                {
                    **problem.to_dict(),
                    "strong_us": strong,
                    "strong_of_copy": copy_us / strong,
                    "best_of_copy": copy_us / best,
                }
            )
    return lines
