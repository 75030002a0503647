"""What recorded races say of advice: signs, shares of the decided, claims and bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_columns import norm_rows
from solver.fused import Outcome, advice_figures, figures, outcomes
from solver.fused_claims import bandwidth, claims
from solver.fused_sweep import depth_sweep, ratio_sweep
from solver.norm_record import NormRace, races_of
from tests.norm_profiles import invented
from tests.norm_records import timed

DEVICE = invented()
PROBLEM = NormProblem(65536, 1024, "fp32", "layer", "poly", 0)


def roles(producers: int, consumers: int, **more: Any) -> NormConfig:
    loads = {"copies": "vector", "barrier": "named", "depth": 2, "chunk_bytes": 16384, "rounds": 0}
    return NormConfig("specialised", consumers, producers, **{**loads, **more})


PLAIN, STRONG = NormConfig("plain", 8, hold="reload"), NormConfig("strong", 8)
RING = NormConfig("ring", 8, depth=2, chunk_bytes=16384, rounds=0)
BULK = roles(1, 8, copies="bulk", barrier="mbarrier")


def outcome(
    times: dict[NormConfig, float],
    predicted: Sequence[float] | None = None,
    *,
    problem: NormProblem = PROBLEM,
    warps: int | None = None,
    **verdicts: str,
) -> Outcome:
    configs = tuple(times)
    rows = norm_rows(problem, configs, DEVICE)
    measured = np.array(list(times.values()))
    race = NormRace(problem, warps, True, configs, rows, rows.resident, measured)
    said = dict.fromkeys(("like_warps", "strong", "plain"), "no") | verdicts
    gains = {"specialise": 1.1, "no": 0.9, "undecided": 1.001}
    expected = {rival: gains[verdict] for rival, verdict in said.items()}
    return Outcome(race, measured if predicted is None else np.array(predicted), said, expected)


def four(plain: float, strong: float, ring: float, divided: float, **more: Any) -> Outcome:
    return outcome({PLAIN: plain, STRONG: strong, RING: ring, BULK: divided}, **more)


def test_a_gain_is_the_rivals_time_over_that_of_the_fastest_divided_kernel() -> None:
    found = four(200.0, 120.0, 110.0, 100.0)
    gains = [found.gain(rival) for rival in ("like_warps", "strong", "plain")]
    assert gains == [1.1, 1.2, 2.0]
    assert [four(1.0, 1.0, 1.0, t).sign("strong") for t in (0.97, 0.985, 1.0, 1.019, 1.03)] == [
        "wins",
        "ties",
        "ties",
        "ties",
        "loses",
    ]
    assert outcome({PLAIN: 1.0, STRONG: 2.0}).gain("strong") is None


def test_advice_is_right_of_the_decided_alone() -> None:
    some = [
        four(1.0, 1.1, 1.1, 1.0, like_warps="specialise"),
        four(1.0, 1.1, 1.1, 1.0, like_warps="no"),
        four(1.0, 1.1, 1.1, 1.0, like_warps="undecided"),
        four(1.0, 1.0, 1.0, 1.1, like_warps="no"),
        four(1.0, 1.0, 1.0, 1.0, like_warps="specialise"),
    ]
    found = advice_figures(some, "like_warps")
    assert (found["decided"], found["undecided"], found["coverage"]) == (4, 1, 0.75)
    assert found["advice_right"] == pytest.approx(2 / 3)
    assert (found["right_when_yes"], found["right_when_no"]) == (0.5, 1.0)
    assert (found["advice_right_all"], found["sign_right"]) == (0.5, 0.75)
    assert (found["right_when_yes_all"], found["right_when_no_all"]) == (pytest.approx(1 / 3), 1.0)
    assert found["specialised_wins"] == 3
    assert found["confusion"]["specialise"] == {"wins": 1, "loses": 0, "ties": 1}
    never = advice_figures(some[3:], "like_warps")
    assert never["right_when_yes"] is None
    assert advice_figures([], "plain")["advice_right"] is None
    silent = advice_figures(some[2:3], "like_warps")
    assert (silent["coverage"], silent["advice_right"], silent["advice_right_all"]) == (0, None, 0)


def test_regret_is_of_the_row_that_the_model_picks() -> None:
    found = four(4.0, 2.0, 1.0, 3.0, predicted=[4.0, 1.0, 2.0, 3.0])
    assert found.regret == 2.0
    assert found.errors.tolist() == [0.0, 0.5, 1.0, 0.0]


@cache
def recorded() -> tuple[NormRace, ...]:
    rows = timed(DEVICE, 0.0, chosen=lambda cell: cell.problem.degree in (0, 128))
    return tuple(races_of({"suite": "norm_activation", "protocol": {}, "rows": rows}, DEVICE))


def test_a_model_that_made_the_record_has_no_error_and_no_regret() -> None:
    found = figures(outcomes(recorded(), DEVICE))
    assert found["problems"] == len(recorded()) == 32
    assert 0 < found["problems_heldout"] < 16
    assert found["mean_ape"] == pytest.approx(0, abs=1e-9)
    assert found["regret_mean"] == 1
    strong = found["against"]["strong"]
    assert sum(sum(row.values()) for row in strong["confusion"].values()) == 32
    assert found["headline"] == "like_warps"
    assert found["advice_right"] == found["against"]["like_warps"]["advice_right"]


def test_sweeps_hold_measured_beside_modelled() -> None:
    found = outcomes(recorded(), DEVICE)
    lines = ratio_sweep(found)
    named = {(line["warps_per_sm"], line["producers"], line["consumers"]) for line in lines}
    assert {(None, 2, 14), (None, 4, 12), (None, 8, 8), (16, 4, 12), (4, 1, 3)} <= named
    for line in (*lines, *depth_sweep(found)):
        assert line["measured"] == pytest.approx(line["modelled"])
        assert line["problems"] <= 8
    assert {line["depth"] for line in depth_sweep(found)} == {2, 4, 6}


def test_claims_count_where_they_held() -> None:
    fast, slow = roles(4, 12), roles(4, 12, barrier="mbarrier")
    some = [
        outcome({PLAIN: 1.0, STRONG: 1.0, fast: t, slow: t, roles(8, 8): 0.8, roles(2, 14): 0.9})
        for t in (0.6, 0.75, 0.95, 1.2)
    ]
    by_claim = {line["claim"]: line for line in claims(some) if line["over"] != "16 warps on an SM"}
    whole = next(line for claim, line in by_claim.items() if "30 to 45" in claim)
    assert (whole["held"], whole["problems"], whole["median"]) == (1, 4, 0.85)
    order = next(line for claim, line in by_claim.items() if "before 8:8" in claim)
    assert (order["held"], order["problems"]) == (2, 4)
    named = next(line for claim, line in by_claim.items() if "named" in claim[:6])
    assert (named["held"], named["median"]) == (4, 1.0)
    assert all(line["why"] for line in by_claim.values())


def test_what_had_not_been_tried_is_held_against_divided_warps_without_it() -> None:
    stored = roles(1, 8, copies="bulk", barrier="mbarrier", hold="shared", stores="bulk")
    some = [
        outcome({STRONG: 0.1, BULK: 1.0, stored: 0.9, roles(1, 4): 0.95}),
        outcome({STRONG: 0.1, BULK: 1.0, stored: 0.9, roles(1, 4): 0.91}),
        outcome({STRONG: 0.1, BULK: 1.0}),
        outcome({STRONG: 0.1, BULK: 1.0, stored: 1.1}, warps=8),
    ]
    lines = {
        line["over"]: line
        for line in claims(some)
        if line["claim"].startswith("not tried before: rows held in their slots")
    }
    natural, crowded = lines["as many warps as fit"], lines["4, 8 or 16 on an SM"]
    assert (natural["held"], natural["problems"]) == (1, 2)
    assert natural["least"] == pytest.approx(0.9 / 0.95)
    assert (crowded["held"], crowded["problems"], crowded["median"]) == (0, 1, 1.1)
    ends = [line for line in claims(some) if "blocks that end" in line["claim"]]
    assert [line["problems"] for line in ends] == [0, 0]


def test_bandwidth_is_of_problems_that_memory_alone_bounds() -> None:
    ceilings = {"ceilings": {"copy_gb_per_s": 4000.0}}
    heavy = NormProblem(65536, 1024, "fp32", "layer", "poly", 512)
    some = [
        four(300.0, 150.0, 140.0, 160.0),
        four(300.0, 150.0, 140.0, 160.0, warps=4),
        four(300.0, 150.0, 140.0, 160.0, problem=heavy),
    ]
    (line,) = bandwidth(some, DEVICE, ceilings) or []
    copy_us = 2 * 65537 * 4096 / 4e6
    assert line["strong_of_copy"] == pytest.approx(copy_us / 150)
    assert line["best_of_copy"] == pytest.approx(copy_us / 140)
    assert bandwidth(some, DEVICE, None) is None
