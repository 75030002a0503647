"""Times by races beside a problem: the model's, over what it was off by there."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.recorded import results_folder
from bench import norm_races
from solver.advice.advise import ALTERNATIVE, CAVEAT
from solver.advice.thresholds import TIE
from solver.device import DeviceProfile, load_profile
from solver.families import norm_activation_raced as raced
from solver.families.norm_activation import KINDS, NormProblem
from solver.families.norm_activation_advice import advise_problem, verdict_of
from solver.families.norm_activation_cost import predicted_us
from solver.families.norm_activation_rivals import DEFAULT_RIVAL, DIVIDED, RIVALS, compare
from solver.norm_record import NormRace, races_of
from tests.norm_profiles import bare, invented

H200 = load_profile("h200")
RECORDS = [results_folder("h200") / f"{name}.json" for name in ("norm_grid", "norm_further")]
POLY = NormProblem(65536, 1024, "fp32", "layer", "poly", 8)


def recorded(path: Path = RECORDS[0]) -> list[NormRace]:
    return races_of(json.loads(path.read_text("utf-8")), H200)


@pytest.mark.parametrize("device", [H200, invented()], ids=["fitted", "made up"])
def test_a_raced_problem_is_told_what_was_measured_whatever_the_model(
    device: DeviceProfile,
) -> None:
    race = next(each for each in recorded() if each.problem == POLY and each.warps_per_sm == 16)
    found = raced.corrected(POLY, device, 16)
    assert found is not None
    assert found.between
    told = dict(zip(found.configs, found.time_us.tolist(), strict=True))
    for config, measured_us in zip(race.configs, race.measured_us.tolist(), strict=True):
        assert told[config] == pytest.approx(measured_us, rel=1e-5)
    half = raced.corrected(replace(POLY, rows=POLY.rows // 2), device, 16)
    assert half is not None
    assert half.time_us == pytest.approx(found.time_us / 2, rel=0.1)


def test_between_races_errors_go_in_a_straight_line_over_the_logarithm_of_arithmetic() -> None:
    ends = [replace(POLY, degree=degree) for degree in (8, 32)]
    middle = replace(POLY, degree=16)
    config = next(
        each
        for each, resident in zip(recorded()[0].configs, recorded()[0].counted, strict=True)
        if each.kind == "strong" and resident == 5
    )
    off = []
    for problem in (*ends, middle):
        found = raced.corrected(problem, H200, None)
        assert found is not None
        told = float(found.time_us[found.configs.index(config)])
        off.append(np.log(told / predicted_us(problem, config, H200)))
    at = np.log([6 + 2 + degree for degree in (8, 32, 16)])
    part = (at[2] - at[0]) / (at[1] - at[0])
    assert off[2] == pytest.approx(off[0] + part * (off[1] - off[0]), abs=1e-3)


def test_unseen_knows_nothing_of_the_problems_own_race() -> None:
    seen = raced.corrected(POLY, H200, None)
    unseen = raced.corrected(POLY, H200, None, unseen=True)
    assert seen is not None
    assert unseen is not None
    assert seen.time_us[:5].tolist() != unseen.time_us[:5].tolist()
    lowest = replace(POLY, degree=0)
    first = raced.corrected(lowest, H200, None, unseen=True)
    assert first is not None
    assert not first.between


def test_what_ships_is_the_fitted_races_of_the_records() -> None:
    content = norm_races.races(RECORDS, H200)
    shipped = json.loads(norm_races.PATH.read_text("utf-8"))
    assert {name: shipped[name] for name in content} == content
    held_out = {(each.problem, each.warps_per_sm) for each in recorded() if each.held_out}
    assert len(held_out) == 19
    assert not held_out & {
        (NormProblem(**each["problem"]), each["warps_per_sm"]) for each in shipped["races"]
    }
    assert norm_races.text(shipped) == norm_races.PATH.read_text("utf-8")


def test_the_ranges_that_ship_are_those_of_races_model_and_constants_as_they_are() -> None:
    """After a change: python -m bench.norm_races."""
    assert norm_races.off(RECORDS[0], H200) == json.loads(norm_races.PATH.read_text())["off"]
    for basis in ("between", "beyond", "model"):
        for low, middle, high in (
            (each.low, each.expected, each.high) for each in raced.ranges(basis).values()
        ):
            assert 0.5 < low <= middle <= high


def least_us(race: NormRace, *kinds: str) -> float:
    return float(race.measured_us[np.isin(race.kinds, kinds)].min())


def test_what_advice_says_was_measured_is_what_the_record_has() -> None:
    races = recorded()
    gains = np.array(
        [least_us(race, *RIVALS[DEFAULT_RIVAL]) / least_us(race, DIVIDED) for race in races]
    )
    natural = np.array([race.warps_per_sm is None for race in races])
    won = gains > 1 + TIE.value
    least, most = (100 * (at(gains[won & natural]) - 1) for at in (np.min, np.max))
    for words in (
        f"over {len(races)} problems",
        f"{1 / gains.max():.2f} to {1 / gains.min():.2f} times the time",
        f"({np.median(1 / gains):.2f} times in the median)",
        f"won {(won & natural).sum()} of {natural.sum()} problems, by {least:.0f} to {most:.0f} %",
        f"{(won & ~natural).sum()} of {(~natural).sum()}, by up to {100 * gains.max() - 100:.0f} %",
    ):
        assert words in CAVEAT
    rings = np.array([least_us(race, "ring") / least_us(race, DIVIDED) for race in races])
    for words in (
        f"over {len(races)} problems",
        f"{rings.min():.2f} to {rings.max():.2f} times the time",
        f"({np.median(rings):.2f} times in the median)",
    ):
        assert words in ALTERNATIVE


DOCS = Path(__file__).parents[2] / "docs"


def words_of(page: str) -> str:
    return " ".join((DOCS / page).read_text("utf-8").split())


def test_the_models_page_says_how_far_off_each_kind_is() -> None:
    off: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for race in recorded():
        errors = np.abs(race.predicted_us(H200, counted=True) / race.measured_us - 1)
        for kind, values in off.items():
            values += errors[race.kinds == kind].tolist()
    percent = {kind: f"{100 * np.mean(values):.0f}" for kind, values in off.items()}
    assert (
        f"{percent['ring']} to {percent['strong']} % over strong kernels and rings, "
        f"{percent['specialised']} % over specialised ones, {percent['plain']} % over plain ones"
    ) in words_of("norm-model.md")


def test_advices_page_says_what_the_model_alone_and_figures_alone_are_worth() -> None:
    said, hidden = Counter[tuple[bool, str]](), Counter[bool]()
    for race in recorded():
        gain = least_us(race, *RIVALS[DEFAULT_RIVAL]) / least_us(race, DIVIDED)
        if abs(gain - 1) <= TIE.value:
            continue
        asked = (race.problem, H200, "cold", race.warps_per_sm, DEFAULT_RIVAL)
        found = compare(*asked, raced=False)
        assert found.gain is not None
        said[gain > 1, verdict_of(found.gain, raced.ranges("model")[DEFAULT_RIVAL])] += 1
        by_figures = advise_problem(race.problem, bare(), warps_per_sm=race.warps_per_sm).advice
        hidden[gain > 1] += "latency_hidden" in {each.reason for each in by_figures.reasons}
    given = sum(count for (_, verdict), count in said.items() if verdict != "undecided")
    right = said[True, "specialise"] + said[False, "no"]
    page = words_of("advice.md")
    assert f"on {given} of {said.total()} ({right} right)" in page
    won = sum(count for (wins, _), count in said.items() if wins)
    assert hidden[True] == won
    assert f"spoke against all {won} problems of the grid that divided warps won" in page
    assert f"(and {hidden[False]} of the {said.total() - won} that they lost)" in page
