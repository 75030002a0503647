"""Drift: told where the device has moved, and not for the model's own errors."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from app.recorded import results_folder
from app.regret_plan import model_first
from bench.calibration_replay import PLANTED
from kernels.drift import ADVICE, BANDS, ENOUGH, FAR, LATEST, NEAR, drift_of
from solver.calibration.rows import with_constants
from solver.device import DeviceProfile
from solver.ground_truth import CONFIG_FIELDS
from solver.problem import Problem
from solver.row_price import price_rows
from solver.suites import load_suite
from solver.units import TICKS_PER_US
from tests.ground_truths import H200

SPREAD = 0.07
"""Of the logarithm of one problem's error: beyond what is recorded of picks (a mean of 4.2 %)."""


def ratios(rng: random.Random, count: int, off: float = 1.0) -> list[float]:
    """Ratios of a model that is right but for its errors, on a device that is ``off``."""
    return [off * math.exp(rng.gauss(0.0, SPREAD)) for _ in range(count)]


@pytest.mark.parametrize("count", [ENOUGH, 16, LATEST])
@pytest.mark.parametrize("bias", [0.95, 1.0, 1.05])
def test_a_true_model_with_errors_and_a_small_bias_is_not_said_to_have_drifted(
    count: int, bias: float
) -> None:
    found = [drift_of(ratios(random.Random(seed), count, bias)).found for seed in range(2000)]
    assert None not in found
    assert sum(map(bool, found)) <= 20  # once in a hundred at the most, which is the rule's word


@pytest.mark.parametrize("off", [1 / 1.25, 1.25])
def test_a_device_that_is_a_quarter_off_is_found(off: float) -> None:
    found = [drift_of(ratios(random.Random(seed), 24, off)).found for seed in range(500)]
    assert sum(map(bool, found)) >= 499
    whole = drift_of(ratios(random.Random(1), 24, off)).to_dict()
    assert whole["advice"] == ADVICE
    assert 24 >= whole["off"] > 24 * whole["usual"]
    assert abs(whole["ratio"] / off - 1) < whole["band"]


def test_too_few_problems_tell_nothing_and_old_ones_do_not_count() -> None:
    few = drift_of([2.0] * (ENOUGH - 1))
    assert (few.found, few.ratio, few.problems) == (None, None, ENOUGH - 1)
    assert few.to_dict()["advice"] is None
    assert drift_of([1.0] * LATEST + [2.0] * 500).found is False
    assert drift_of([2.0] * LATEST + [1.0] * 500).problems == LATEST


@pytest.mark.parametrize("count", [ENOUGH, 18, 24, LATEST])
def test_a_device_that_is_off_both_ways_is_found_though_the_median_stays(count: int) -> None:
    both = [factor for _ in range(count // 2) for factor in (0.8, 1.25)]
    whole = drift_of(both)
    assert whole.ratio == pytest.approx(1.0, abs=0.03)
    assert whole.found is True
    assert (
        drift_of([1.0 + 0.9 * (ratio - 1) * (NEAR.width / 0.25) for ratio in both]).found is False
    )


def test_a_third_of_the_picks_may_be_off_and_hardly_more() -> None:
    found = [drift_of([1.2] * off + [1.0] * (48 - off)).found for off in range(49)]
    assert found.index(True) in range(48 // 3 + 4, 48 // 2 + 4)
    assert found == sorted(found, key=bool)  # once found, found for all that is worse


def test_problems_of_one_kind_that_are_far_off_are_found_among_others_that_are_not() -> None:
    """As an H200 measured a planted profile: memory-bound picks alone are off, and by a lot."""
    memory_bound = [0.73, 0.771, 0.751, 0.745, 0.715, 0.733, 0.704, 0.757, 0.773, 0.757]
    others = [1.013, 1.016, 0.886, 1.039, 1.002, 1.077, 0.928, 0.972]
    drift = drift_of([*memory_bound, *others])
    assert (drift.found, drift.off, drift.band) == (True, 10, FAR)
    assert drift_of([*(1 - 0.45 * (1 - r) for r in memory_bound), *others]).found is False


@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("count", [ENOUGH, 18, LATEST])
def test_a_band_that_as_many_lie_beyond_as_usual_tells_of_nothing(band: Any, count: int) -> None:
    off = int(band.usual * count)
    ratios = [1 + band.width * 1.01] * off + [1.0] * (count - off)
    assert drift_of(ratios).found is False
    assert drift_of([1 / ratio for ratio in ratios]).found is False


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("place", [0, LATEST])
def test_a_ratio_that_no_two_times_have_is_refused(ratio: float, place: int) -> None:
    ratios = [1.0] * LATEST
    ratios.insert(place, ratio)
    with pytest.raises(ValueError, match="finite number above 0"):
        drift_of(ratios)


def test_one_outlier_is_no_drift() -> None:
    assert drift_of([1.0] * 20 + [9.0]).found is False


def scaled(profile: DeviceProfile, factor: float) -> DeviceProfile:
    """A profile whose every rate, of memory or of multiply-adds, is so many times what it is."""

    def planted(name: str, constant: Any) -> Any:
        is_rate = constant.unit.startswith(("B/", "MAC/"))
        return replace(constant, value=constant.value * factor) if is_rate else constant

    models = {
        model: MappingProxyType({name: planted(name, c) for name, c in table.items()})
        for model, table in profile.models.items()
    }
    return replace(profile, models=MappingProxyType(models))


def predicted_us(problem: Problem, config: Any, profile: DeviceProfile) -> float:
    columns = {name: np.array([getattr(config, name)]) for name in CONFIG_FIELDS}
    return float(price_rows(problem, profile, columns, cold=True)[0][0] / TICKS_PER_US)


def mixed(profile: DeviceProfile) -> DeviceProfile:
    """Some constants too high, others too low, as ``bench.gpu_calibrate`` plants them."""
    spoiled = {name: f * profile.constant("sm90_gemm", name) for name, f in PLANTED.items()}
    return with_constants(profile, spoiled, "planted")


@pytest.mark.parametrize("plant", [lambda profile: scaled(profile, 1.4), mixed])
def test_constants_that_were_planted_wrong_are_found_and_the_true_ones_are_not(
    plant: Callable[[DeviceProfile], DeviceProfile],
) -> None:
    rng = random.Random(7)
    wrong = plant(H200)
    true_ratios, wrong_ratios = [], []
    for problem in load_suite("llm")[::6]:
        config, believed_us = model_first(problem, wrong)[0]
        measured_us = predicted_us(problem, config, H200) * math.exp(rng.gauss(0, SPREAD))
        wrong_ratios.append(measured_us / believed_us)
        true_ratios.append(measured_us / predicted_us(problem, config, H200))
    assert len(true_ratios) >= ENOUGH
    assert drift_of(wrong_ratios).found is True
    assert drift_of(true_ratios).found is False


def test_the_band_is_more_than_any_class_of_held_out_rows_is_off_by_in_the_mean() -> None:
    record = json.loads((results_folder("h200") / "accuracy.json").read_text("utf-8"))
    errors = [
        figures["mean_ape"]
        for part in ("paper", "llm")
        for group in ("by_m", "by_kind", "by_suite")
        for figures in record[part][group].values()
        if figures["rows"]
    ]
    assert max(errors) <= NEAR.width


@pytest.mark.parametrize(
    "record", ["best_llm", "best_paper", "best_odd40", "best_unaligned20", "picks_further60"]
)
def test_the_picks_that_are_recorded_have_not_drifted(record: str) -> None:
    rows = json.loads((results_folder("h200") / f"{record}.json").read_text("utf-8"))["rows"]
    picks = [r for r in rows if r["role"] == "pick" and r["median_us"]]
    measured = [row["median_us"] / row["predicted_us"] for row in picks]
    assert len(measured) >= ENOUGH
    assert drift_of(measured).found is False
    assert drift_of([1.3 * ratio for ratio in measured]).found is True
