"""Regret from races: what was measured counts, and what was not is said."""

from __future__ import annotations

from typing import Any

import pytest

from solver.config import Config
from solver.raced import NOTHING, regret_figures, shape_regret
from tests.ground_truths import config

PICK, SECOND, THIRD, OTHER, PEER = (config(stages=stages) for stages in (3, 4, 5, 6, 7))
FIRST = (PICK, SECOND)


def candidate(tried: Config, relative: float | None, *of: str) -> dict[str, Any]:
    return {"config": tried.to_dict(), "of": list(of), "relative": relative}


def raced(*candidates: dict[str, Any]) -> dict[str, Any]:
    return {"candidates": list(candidates)}


WHOLE = raced(
    candidate(PICK, 1.0, "pick", "top"),
    candidate(SECOND, 0.98, "top"),
    candidate(OTHER, 0.96, "truth"),
    candidate(PEER, 1.20, "nvmmh"),
)


def test_a_pick_is_compared_with_the_fastest_of_all_that_ran() -> None:
    regret = shape_regret(WHOLE, FIRST)
    assert regret.pick == pytest.approx(1 / 0.96)
    assert regret.top == pytest.approx(0.98 / 0.96)
    assert regret.peers == {"nvmmh": pytest.approx(1.2 / 0.96)}
    assert (regret.best, regret.best_of, regret.top_missing) == (OTHER, ("truth",), 0)


def test_a_pick_that_did_not_run_or_is_another_by_now_is_unmeasured() -> None:
    failed = raced(candidate(PICK, None, "pick", "top"), candidate(OTHER, 1.0, "truth"))
    for row, first in ((failed, FIRST), (WHOLE, (THIRD, SECOND))):
        regret = shape_regret(row, first)
        assert regret.pick is None
        assert regret_figures([regret])["unmeasured"] == 1
    assert shape_regret(WHOLE, (THIRD, SECOND)).top_missing == 1
    assert shape_regret({"candidates": None}, FIRST) == NOTHING


def test_a_pick_that_another_run_named_may_be_measured_under_another_reason() -> None:
    assert shape_regret(WHOLE, (OTHER, PICK)).pick == 1.0


def test_figures_over_shapes_are_those_of_the_picks_that_have_one() -> None:
    slow = raced(candidate(PICK, 1.0, "pick", "top", "truth", "nvmmh"), candidate(OTHER, 0.5))
    best = raced(candidate(PICK, 1.0, "pick", "top", "truth"))
    figures = regret_figures([*(shape_regret(row, FIRST) for row in (WHOLE, slow, best)), NOTHING])
    assert (figures["shapes"], figures["unmeasured"]) == (4, 1)
    assert figures["geomean"] == pytest.approx((1 / 0.96 * 2) ** (1 / 3))
    assert figures["worst"] == pytest.approx(2.0)
    assert figures["top5_geomean"] == pytest.approx((0.98 / 0.96 * 2) ** (1 / 3))
    assert figures["top5_missing"] == 2 + 5
    assert {name: count for name, count in figures["best_named_by"].items() if count} == {
        **{"pick": 1, "top": 1, "truth": 2},
    }
    nvmmh = figures["peers"]["nvmmh"]
    assert nvmmh["shapes"] == 2
    assert nvmmh["geomean"] == pytest.approx((1.2 / 0.96 * 2) ** 0.5)
    assert nvmmh["pick_geomean"] == pytest.approx((1 / 0.96 * 2) ** 0.5)
    assert figures["peers"]["triton"]["shapes"] == 0
    assert figures["peers"]["triton"]["geomean"] is None


def test_the_best_of_what_a_verification_races_counts_where_it_has_today_s_pick() -> None:
    row = raced(
        candidate(PICK, 1.0, "pick", "top", "contest"),
        candidate(SECOND, 0.97, "top"),
        candidate(THIRD, 0.98, "contest"),
        candidate(OTHER, 0.96, "truth"),
    )
    regret = shape_regret(row, FIRST)
    assert regret.contest == pytest.approx(0.98 / 0.96)
    assert shape_regret(row, (SECOND, PICK)).contest is None
    figures = regret_figures([regret, NOTHING])
    assert (figures["contest_shapes"], figures["contest_worst"]) == (1, regret.contest)


def test_no_race_leaves_every_figure_empty_and_every_shape_unmeasured() -> None:
    figures = regret_figures([NOTHING, NOTHING])
    assert (figures["shapes"], figures["unmeasured"]) == (2, 2)
    assert figures["geomean"] is figures["worst"] is figures["top5_geomean"] is None


def test_the_regret_of_what_was_learnt_is_read_off_the_race_that_did_not_choose_it() -> None:
    learnt = {"winner": 1, "beats_pick": True}
    regret = shape_regret(WHOLE | {"learnt": learnt}, FIRST)
    assert regret.learnt == pytest.approx(0.98 / 0.96)
    unsure = shape_regret(WHOLE | {"learnt": learnt | {"beats_pick": False}}, FIRST)
    assert unsure.learnt == unsure.pick == pytest.approx(1 / 0.96)
    figures = regret_figures([regret, unsure, NOTHING])
    assert figures["learnt_shapes"] == 2
    assert figures["learnt_worst"] == pytest.approx(1 / 0.96)
    assert figures["learnt_geomean"] == pytest.approx((0.98 / 0.96**2) ** 0.5)


@pytest.mark.parametrize(
    ("learnt", "first"),
    [
        (None, FIRST),
        ({"winner": None, "beats_pick": False}, FIRST),
        ({"winner": 1, "beats_pick": True}, (SECOND, PICK)),
    ],
)
def test_a_verification_that_was_not_run_or_is_of_another_pick_teaches_nothing(
    learnt: Any, first: tuple[Config, ...]
) -> None:
    assert shape_regret(WHOLE | {"learnt": learnt}, first).learnt is None
    assert regret_figures([shape_regret(WHOLE, FIRST)])["learnt_geomean"] is None
