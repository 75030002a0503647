"""Regret from a record of races: candidates of one problem timed in turn, by ``kernels.bench``.

A row of such a record has ``candidates``, each with its ``config``, ``relative``, its time over
that of the first (the median of paired replays), and ``of``, why it was tried. ``learnt`` is what
a verification of the pick found among those of CONTEST, in a pass of its own before the race. What
counts is what the races measured, and today's pick: one that was not among them has no figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from solver.accuracy import ratio_figures
from solver.config import Config

PICK, TOP, TRUTH, CONTEST = "pick", "top", "truth", "contest"
PEERS = ("nvmmh", "triton")
"""Whose picks may be among the candidates, mapped to this family's configurations."""
TOP_COUNT, TRUTH_COUNT = 5, 8
REASONS = (PICK, TOP, CONTEST, TRUTH, *PEERS)
"""Why a configuration is tried: the solver's pick; the model's first TOP_COUNT, it among them; what
a verification with a ``top_k`` of TOP_COUNT would race; the TRUTH_COUNT fastest of the ground
truth; a peer's pick."""


@dataclass(frozen=True, slots=True)
class ShapeRegret:
    """Regrets of one problem, 1 where nothing raced was faster; None where there is no figure.

    ``top`` is of the best of the model's first ones, ``top_missing`` how many of them have no
    figure. ``contest`` is of the best of those that a verification with a ``top_k`` of
    TOP_COUNT races: the pick, and the model's first of further tiles; None of another pick than
    today's. ``learnt`` is of what would be answered after the verification: its winner where
    that surely beat the pick, else the pick. ``best`` is the fastest configuration and why it
    was tried.
    """

    pick: float | None
    learnt: float | None
    top: float | None
    top_missing: int
    contest: float | None
    peers: Mapping[str, float]
    best: Config | None
    best_of: tuple[str, ...]


NOTHING = ShapeRegret(None, None, None, TOP_COUNT, None, {}, None, ())


def shape_regret(row: Mapping[str, Any], first: Sequence[Config]) -> ShapeRegret:
    """The regrets of a row of a record; ``first`` are the model's first TOP_COUNT, pick first."""
    raced: dict[Config, float] = {}
    reasons: dict[Config, tuple[str, ...]] = {}
    for candidate in row.get("candidates") or ():
        if candidate.get("relative") is not None:
            config = Config.from_dict(candidate["config"])
            raced[config] = candidate["relative"]
            reasons[config] = tuple(candidate["of"])
    if not raced:
        return NOTHING
    best = min(raced, key=raced.__getitem__)
    regrets = {config: relative / raced[best] for config, relative in raced.items()}
    top = [regrets[config] for config in first if config in regrets]
    raced_by_top_k = [regrets[config] for config, why in reasons.items() if CONTEST in why]
    of_today = CONTEST in reasons.get(first[0], ())
    peers = {
        peer: regrets[config] for config, why in reasons.items() for peer in PEERS if peer in why
    }
    return ShapeRegret(
        pick=regrets.get(first[0]),
        learnt=_learnt(row, regrets, first[0]),
        top=min(top) if top else None,
        top_missing=sum(config not in regrets for config in first),
        contest=min(raced_by_top_k) if of_today else None,
        peers=peers,
        best=best,
        best_of=reasons[best],
    )


def _learnt(row: Mapping[str, Any], regrets: Mapping[Config, float], pick: Config) -> float | None:
    """The regret of what a row's verification leads to; None where none was run to its end, or of
    another pick than today's."""
    learnt = row.get("learnt")
    candidates = [Config.from_dict(each["config"]) for each in row["candidates"]]
    if learnt is None or learnt["winner"] is None or candidates[0] != pick:
        return None
    return regrets.get(candidates[learnt["winner"]] if learnt["beats_pick"] else pick)


def regret_figures(shapes: Sequence[ShapeRegret]) -> dict[str, Any]:
    """``shapes`` in all, ``geomean`` and ``worst`` of the picks that have a figure,
    ``unmeasured``, those that have none; the best of the top five, and of the five that a
    verification races; what is answered after verifications; how often which reason named the
    best; each peer's over the shapes where it has one, beside the pick's over the same."""
    picks = ratio_figures([s.pick for s in shapes if s.pick is not None])
    tops = ratio_figures([s.top for s in shapes if s.top is not None])
    contests = ratio_figures([s.contest for s in shapes if s.contest is not None])
    learnt = ratio_figures([s.learnt for s in shapes if s.learnt is not None])
    peers = {}
    for peer in PEERS:
        both = [s for s in shapes if peer in s.peers and s.pick is not None]
        theirs = ratio_figures([s.peers[peer] for s in both])
        ours = ratio_figures([s.pick for s in both if s.pick is not None])
        peers[peer] = theirs | {"pick_geomean": ours["geomean"], "pick_worst": ours["worst"]}
    found = [reason for s in shapes for reason in s.best_of]
    return {
        "shapes": len(shapes),
        "geomean": picks["geomean"],
        "worst": picks["worst"],
        "unmeasured": sum(s.pick is None for s in shapes),
        "top5_geomean": tops["geomean"],
        "top5_worst": tops["worst"],
        "top5_missing": sum(s.top_missing for s in shapes),
        "contest_shapes": contests["shapes"],
        "contest_geomean": contests["geomean"],
        "contest_worst": contests["worst"],
        "learnt_shapes": learnt["shapes"],
        "learnt_geomean": learnt["geomean"],
        "learnt_worst": learnt["worst"],
        "best_named_by": {reason: found.count(reason) for reason in REASONS},
        "peers": peers,
    }
