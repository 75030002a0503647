"""Calibration without a GPU: rows come from the model with other constants, and noise."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from solver.calibration.design import (
    KERNELS,
    REPEATED,
    ROWS,
    CalibrationDesign,
    make_design,
)
from solver.calibration.fit import Fit, fit
from solver.calibration.least_squares import minimise
from solver.calibration.prior import FIXED, KIND, SCRATCH_WIDTH, WIDTH, Kind, free_names, widths
from solver.calibration.profile import calibrated_text, store_profile
from solver.calibration.rows import (
    FAMILY,
    RowGroup,
    mean_ape,
    predict_us,
    with_constants,
)
from solver.calibration.start import from_datasheet, start_of
from solver.constraints import NONE
from solver.device import (
    AT_MOST_ONE,
    FIXED_LIMITS,
    MEASURED_APART,
    PROFILES_VARIABLE,
    DeviceProfile,
    device_names,
    load_profile,
    profiles_revision,
    shipped_text,
)
from solver.engine import Engine
from solver.errors import InvalidInput, InvalidProblem, UnusableProfile
from solver.families import sm90_gemm_power
from solver.ground_truth import CONFIG_FIELDS
from solver.model_version import MODEL_VERSION
from solver.pick import price
from solver.problem import Problem
from solver.question import Question
from solver.recheck.shipped import read_profile
from solver.space import Pricing, build_space
from solver.split import is_form_held_out, is_held_out
from solver.sweep_design import SweepRow

H200 = load_profile("h200")
POWER = sm90_gemm_power.TABLE
NOISE = 0.01
SPOILED = {"hbm_bytes_per_us": 0.7, "l2_bytes_per_us": 1.4, "launch_us": 1.4, "mma_overhead": 1.15}
CEILINGS = {"read_gb_per_s": 4600.0, "copy_gb_per_s": 3900.0, "tensor_tflops": 900.0}
LIMITS = {"sms": 132, "l2_bytes": 62914560}


@pytest.fixture(scope="module")
def design() -> CalibrationDesign:
    return make_design(H200, widths(H200, scratch=False))


def groups_of(
    rows: Sequence[SweepRow], truth: DeviceProfile, noise: float = NOISE
) -> list[RowGroup]:
    """Rows as a device of these constants would run them."""
    rng = np.random.default_rng(5)
    by_group: dict[object, list[SweepRow]] = {}
    for row in rows:
        by_group.setdefault(row.group, []).append(row)
    groups = []
    for members in by_group.values():
        columns = {
            name: np.array([getattr(row.config, name) for row in members]) for name in CONFIG_FIELDS
        }
        unmeasured = np.ones(len(members))
        group = RowGroup(members[0].problem, members[0].cache == "cold", columns, unmeasured)
        off = np.exp(rng.normal(0, noise, len(members)))
        groups.append(dataclasses.replace(group, measured_us=predict_us(group, truth) * off))
    return groups


def scaled(device: DeviceProfile, factors: dict[str, float]) -> DeviceProfile:
    values = {name: factor * device.constant(FAMILY, name) for name, factor in factors.items()}
    return with_constants(device, values, "spoiled")


def rows_of(design: CalibrationDesign, places: Sequence[int]) -> list[SweepRow]:
    return [design.rows[place] for place in places]


@pytest.fixture(scope="module")
def recovered(design: CalibrationDesign) -> Fit:
    spoiled = scaled(H200, SPOILED)
    rows = groups_of(rows_of(design, design.fitted), H200)
    return fit(rows, spoiled, widths(H200, scratch=False), "test")


@pytest.mark.parametrize("name", sorted(SPOILED))
def test_a_fit_finds_the_constants_that_made_its_rows(name: str, recovered: Fit) -> None:
    found, truth = recovered.estimates[name], H200.constant(FAMILY, name)
    assert found.value == pytest.approx(truth, rel=0.06)
    assert found.low < truth < found.high
    assert found.determined > 0.5
    assert recovered.device.constant(FAMILY, name) == found.value


def test_what_was_spoiled_predicts_fresh_rows_again(
    design: CalibrationDesign, recovered: Fit
) -> None:
    fresh = groups_of(rows_of(design, design.fresh), H200)
    assert mean_ape(fresh, scaled(H200, SPOILED)) > 0.08
    assert mean_ape(fresh, recovered.device) < 0.015


def test_from_scratch_it_comes_near_a_device_that_it_knows_nothing_of(
    design: CalibrationDesign,
) -> None:
    start = start_of(load_profile("h200_datasheet"), LIMITS, CEILINGS, scratch=True)
    rows = groups_of(rows_of(design, design.fitted), H200)
    fresh = groups_of(rows_of(design, design.fresh), H200)
    found = fit(rows, start.device, start.widths, "test")
    assert mean_ape(fresh, start.device) > 0.1
    assert mean_ape(fresh, found.device) < 0.03


def test_a_constant_that_no_row_is_of_stays_and_is_as_unsure_as_before(
    design: CalibrationDesign,
) -> None:
    rows = [row for row in rows_of(design, design.fitted) if row.suite == "paper"]
    found = fit(groups_of(rows, H200), H200, widths(H200, scratch=False), "test", steps=4)
    copies = found.estimates["copy_bytes_per_us"]
    before = H200.constant(FAMILY, "copy_bytes_per_us")
    assert copies.value == pytest.approx(before, rel=1e-3)
    assert copies.high == pytest.approx(before * np.exp(1.96 * WIDTH[Kind.PART]), rel=0.01)
    assert copies.determined == pytest.approx(0, abs=1e-6)


def test_one_row_that_is_twice_too_slow_moves_little(design: CalibrationDesign) -> None:
    rows = groups_of(rows_of(design, design.fitted), H200, noise=0.0)
    rows[0].measured_us[0] *= 2
    found = fit(rows, H200, widths(H200, scratch=False), "test", steps=6)
    assert mean_ape(rows[1:], found.device) < 0.005


def test_the_minimum_is_that_of_the_normal_equations_where_residuals_are_small() -> None:
    rng = np.random.default_rng(1)
    matrix, target = rng.normal(size=(30, 3)), rng.normal(size=30) * 1e-3
    precision = np.array([0.5, 1.0, 2.0])
    told: list[tuple[int, int]] = []
    found = minimise(
        lambda x: matrix @ x - target,
        precision,
        np.full(3, -np.inf),
        soft=10.0,
        steps=20,
        progress=lambda done, most: told.append((done, most)),
    )
    expected = np.linalg.solve(matrix.T @ matrix + np.diag(precision**2), matrix.T @ target)
    assert found.x == pytest.approx(expected, rel=1e-4)
    assert told[0] == (1, 20)
    held = minimise(lambda x: matrix @ x - target, precision, np.full(3, 1e-3), soft=10.0, steps=20)
    assert held.x.min() >= 1e-3


def test_every_constant_has_a_kind_and_those_that_are_chosen_are_not_fitted() -> None:
    assert set(KIND) == set(H200.models[FAMILY])
    assert set(free_names(H200)) == set(KIND) - set(FIXED)
    wide = widths(H200, scratch=False, told={"hbm_bytes_per_us": 1.0})
    assert wide["mma_issue_cycles"] == WIDTH[Kind.ARCHITECTURE]
    assert wide["hbm_bytes_per_us"] < WIDTH[Kind.PART]
    assert set(widths(H200, scratch=True).values()) == {SCRATCH_WIDTH}


def test_a_start_from_the_datasheet_knows_nothing_that_was_fitted() -> None:
    doubled = scaled(H200, dict.fromkeys(free_names(H200), 2.0))
    assert from_datasheet(doubled).models[FAMILY] == from_datasheet(H200).models[FAMILY]
    told = start_of(doubled, LIMITS, CEILINGS, scratch=True)
    assert told.device.constant(FAMILY, "hbm_bytes_per_us") == 4.6e6
    assert told.device.limits["l2_bytes"].value == LIMITS["l2_bytes"]


def test_a_design_is_seeded_and_fits_to_nothing_that_is_held_out(
    design: CalibrationDesign,
) -> None:
    assert make_design(H200, widths(H200, scratch=False)) == design
    assert make_design(H200, widths(H200, scratch=False), seed=2) != design
    fitted, fresh = rows_of(design, design.fitted), rows_of(design, design.fresh)
    assert len(fitted) == ROWS
    assert len({row.key for row in fitted}) <= KERNELS
    assert len(set(design.rows)) == len(design.rows)
    for row in fitted:
        config = row.config
        form = (config.tile_m, config.tile_n, config.tile_k)
        form += (config.split_k, config.cluster_m, config.cluster_n)
        assert not is_form_held_out(form)
        assert not is_held_out(row.problem.m, row.problem.n, row.problem.k)
    assert all(is_held_out(row.problem.m, row.problem.n, row.problem.k) for row in fresh)
    assert len(fresh) > 40


def test_a_design_spans_what_the_constants_are_of(design: CalibrationDesign) -> None:
    rows = rows_of(design, design.fitted)
    assert {row.cache for row in rows} == {"cold", "warm"}
    assert any(row.problem.m == 1 for row in rows)
    assert any(row.problem.m >= 4096 for row in rows)
    assert any(row.config.split_k > 1 for row in rows)
    assert any(row.config.cluster_m * row.config.cluster_n > 1 for row in rows)
    assert any(row.problem.out_dtype not in (None, "bf16") for row in rows)
    assert {row.suite for row in rows} == {"paper", "llm", "odd", "varied", "unaligned"}


def test_repeats_come_after_all_first_measurements(design: CalibrationDesign) -> None:
    visits = design.visits()
    turns = [visit.turn for visit in visits]
    assert turns == sorted(turns)
    firsts = [row for visit in visits if visit.turn == 0 for row in visit.rows]
    again = [row for visit in visits if visit.turn == 1 for row in visit.rows]
    assert sorted(firsts) == list(range(len(design.rows)))
    assert sorted(again) == sorted(design.repeated)
    assert len(again) == REPEATED


CALIBRATION = {"date": "2026-11-30T10:00:00+00:00", "gpu": "NVIDIA H200", "rows": 200}


@pytest.fixture
def stored(recovered: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A calibrated profile where the solver looks for one."""
    text = calibrated_text("h200", recovered, {"sms": 132, "l2_bytes": 2**25}, CALIBRATION, "here")
    path = tmp_path / "profiles" / "h200.json"
    store_profile(path, text)
    monkeypatch.setenv(PROFILES_VARIABLE, str(path.parent))
    return path


def test_a_stored_profile_stands_in_for_the_one_that_ships(stored: Path, recovered: Fit) -> None:
    profile = load_profile("h200")
    assert profile.sha256 != H200.sha256
    assert profile.title == f"{H200.title}, calibrated 2026-11-30"
    assert profile.limit("l2_bytes") == 2**25
    assert profile.limits["l2_bytes"].provenance == "measured"
    for name, estimate in recovered.estimates.items():
        constant = profile.models[FAMILY][name]
        assert constant.value == estimate.value
        assert constant.provenance == ("measured" if estimate.determined >= 0.5 else "derived")
        assert "95 % from" in constant.source
    assert profile.calibration is not None
    assert set(profile.calibration["estimates"]) == set(recovered.estimates)
    body = Engine().optimize(Question(Problem(512, 512, 512), proof="none")).to_dict()
    assert body["device"]["profile_sha256"] == profile.sha256
    assert body["device"]["title"].endswith("calibrated 2026-11-30")
    assert read_profile("h200").sha256 == profile.sha256
    assert load_profile("h100_sxm").calibration is None
    stored.unlink()
    assert load_profile("h200").sha256 == H200.sha256


def test_the_published_models_constants_follow(stored: Path) -> None:
    profile = load_profile("h200")
    launch_us = profile.constant(FAMILY, "launch_us")
    launch_us += profile.constant(FAMILY, "launch_warpgroup_us")
    assert profile.constant("paper", "init_us") == pytest.approx(launch_us, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "h20"}, "is of h20"),
        ({"calibration": {"model_version": "4"}}, "of model 4, this is model"),
        ({"calibration": {"model_version": int(MODEL_VERSION)}}, "model_version must be '"),
        ({"calibration": None}, "model_version must be '.*', is None"),
        ({"models": {}}, "other limits or constants"),
        ({"limits": 3}, "is no profile"),
        (None, "is no profile"),
        ({"calibration": ["5"]}, "is no profile"),
        ({"title": 5}, "its title is no text"),
        ({"must_measure": ["sm90_gemm.launch_us"]}, "must have more measured"),
        ({"must_measure": [[]]}, "is no profile"),
        ({"arch": "sm_80"}, "has other vendor, arch"),
        ({"families": []}, "has other vendor, arch"),
    ],
)
def test_a_file_that_can_not_stand_in_is_refused_with_its_path(
    change: dict[str, object] | None, words: str, stored: Path
) -> None:
    raw = json.loads(stored.read_text("utf-8"))
    store_profile(stored, "{" if change is None else json.dumps(raw | change))
    with pytest.raises(InvalidInput, match=words) as refused:
        load_profile("h200")
    assert refused.value.field == PROFILES_VARIABLE
    assert str(stored) in refused.value.message


def test_a_file_in_other_units_or_of_endless_depth_is_refused(stored: Path) -> None:
    raw = json.loads(stored.read_text("utf-8"))
    raw["models"][FAMILY]["launch_us"]["unit"] = "ms"
    store_profile(stored, json.dumps(raw))
    with pytest.raises(UnusableProfile, match="in other units"):
        load_profile("h200")
    store_profile(stored, "[" * 200_000)
    with pytest.raises(UnusableProfile, match="is no profile"):
        load_profile("h200")


@pytest.mark.parametrize("value", ["1", True, None, 0, -1.5, float("nan"), float("inf"), 10**400])
@pytest.mark.parametrize(
    "path", ["limits.sms", f"models.{FAMILY}.launch_us", "models.paper.init_us"]
)
def test_a_file_with_a_number_that_nothing_can_be_priced_with_is_refused(
    path: str, value: object, stored: Path
) -> None:
    raw = json.loads(stored.read_text("utf-8"))
    *tables, name = path.split(".")
    table = raw
    for each in tables:
        table = table[each]
    table[name]["value"] = value
    stored.write_text(json.dumps(raw))
    with pytest.raises(UnusableProfile, match=rf"{name} must be a finite .* above 0, is "):
        load_profile("h200")


@pytest.mark.parametrize(
    ("family", "name"), [(FAMILY, "release_lag_fraction"), (POWER, "power_margin")]
)
def test_a_part_of_something_is_whole_at_most(family: str, name: str, stored: Path) -> None:
    raw = json.loads(stored.read_text("utf-8"))
    for value, fits in ((1.0, True), (1.001, False)):
        raw["models"][family][name]["value"] = value
        store_profile(stored, json.dumps(raw))
        if fits:
            assert load_profile("h200").constant(family, name) == value
        else:
            with pytest.raises(UnusableProfile, match=rf"{name} must be at most 1"):
                load_profile("h200")


@pytest.mark.parametrize("name", MEASURED_APART[POWER])
def test_constants_of_power_are_whole_or_none(name: str, stored: Path) -> None:
    raw = json.loads(stored.read_text("utf-8"))
    constant = raw["models"][POWER].pop(name)
    store_profile(stored, json.dumps(raw))
    with pytest.raises(UnusableProfile, match=f"{POWER} has other constants or units: {name}"):
        load_profile("h200")
    raw["models"][POWER][name] = constant | {"unit": "kW"}
    store_profile(stored, json.dumps(raw))
    with pytest.raises(UnusableProfile, match=f"{POWER} has other constants or units: {name}"):
        load_profile("h200")
    raw["models"][POWER] = {}
    store_profile(stored, json.dumps(raw))
    with pytest.raises(UnusableProfile, match=f"{POWER} has other .*{name}.*; take the table out"):
        load_profile("h200")
    del raw["models"][POWER]
    store_profile(stored, json.dumps(raw))
    assert POWER not in load_profile("h200").models


@pytest.mark.parametrize("name", FIXED_LIMITS)
def test_a_limit_of_the_architecture_stays(name: str, stored: Path) -> None:
    """Without this a block that holds no kernel left nothing to take the least of."""
    raw = json.loads(stored.read_text("utf-8"))
    raw["limits"][name]["value"] = 1
    store_profile(stored, json.dumps(raw))
    with pytest.raises(UnusableProfile, match=rf"{name} must be \d+, as in the profile"):
        load_profile("h200")


@pytest.mark.parametrize("factor", [1e-300, 1e-9, 1e9, 1e300])
@pytest.mark.parametrize("model", ["calibrated", "paper"])
def test_constants_that_give_no_time_are_refused_and_no_fault_of_ours(
    factor: float, model: str
) -> None:
    """Constant by constant: an answer with times above 0, or a word on what is wrong."""
    table = {"calibrated": FAMILY, "paper": "paper"}[model]
    refused, large = 0, Problem(2**20, 2**20, 2**20)
    for name, constant in H200.models[table].items():
        changed = dataclasses.replace(constant, value=constant.value * factor)
        if name in AT_MOST_ONE and changed.value > 1:
            continue  # no file may have that
        models = {**H200.models, table: {**H200.models[table], name: changed}}
        device = dataclasses.replace(H200, models=models)
        try:
            space = build_space(large, device, Pricing(model), NONE).legal
        except (UnusableProfile, InvalidProblem):
            refused += 1
            continue
        work, kernel = space.rows(np.arange(len(space.first)))
        time, wait = price(space, work, kernel)
        assert time.min() > 0, name
        assert wait.min() >= 0, name
    assert refused > 0


def test_every_file_that_ships_can_stand_in_for_itself(stored: Path) -> None:
    calibration = {"model_version": MODEL_VERSION}
    for name in device_names():
        raw = json.loads(shipped_text(name)) | {"calibration": calibration}
        store_profile(stored.parent / f"{name}.json", json.dumps(raw))
        assert load_profile(name).calibration == calibration


def test_the_revision_is_another_after_every_change_of_a_file(stored: Path) -> None:
    text, seen = stored.read_text("utf-8"), [profiles_revision()]
    stored.write_text(text + " ")  # in place, as cp does: the folder stays as it was
    seen.append(profiles_revision())
    store_profile(stored.parent / "h20.json", text)
    seen.append(profiles_revision())
    stored.unlink()
    seen.append(profiles_revision())
    assert len(set(seen)) == len(seen)
    (stored.parent / "notes.txt").write_text("of no device")
    assert profiles_revision() == seen[-1]


def test_a_profile_that_can_not_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="can't be written"):
        store_profile(tmp_path / "file" / "h200.json", "{}")
