"""Plans of power, and a fit: planted constants come back, held-out rows decide nothing."""

from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import power_fit, power_plan
from kernels.bench_plan import parse_plan, problem_of
from kernels.power.answers import ROLES, read_answers
from kernels.protocol import BENCH, rotation_sets
from solver.calibration.rows import with_constants
from solver.device import PROFILES_VARIABLE, DeviceProfile, load_profile, parse_profile
from solver.errors import InvalidInput
from solver.families import sm90_gemm_legality as legality
from solver.families.sm90_gemm_power import TABLE
from solver.ground_truth import CONFIG_FIELDS
from tests.power_profiles import LIMIT_W, powered, powered_raw, write_powered

ROOT = Path(__file__).parents[2]
PLANTED = {
    "power_static_w": 95.0,
    "power_sm_w": 0.8,
    "power_tensor_w": 500.0,
    "power_load_w": 100.0,
    "power_memory_w": 160.0,
    "power_voltage_exponent": 1.2,
}


@cache
def plan(count: int = power_plan.ROWS, seed: int = power_plan.SEED) -> dict[str, Any]:
    return power_plan.row_plan(power_plan.TRUTH, load_profile("h200"), count, seed)


@cache
def planted() -> DeviceProfile:
    return with_constants(powered(), PLANTED, "planted", family=TABLE)


def measured(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows as the planted device would hold them."""
    noise = np.random.default_rng(4)
    found = []
    for index, row in enumerate(rows):
        columns = {name: np.array([row["config"][name]]) for name in CONFIG_FIELDS}
        one = np.ones(1)
        group = power_fit.PowerGroup(problem_of(row), row["cache"] == "cold", columns, one, one)
        watts, joules = power_fit.predict(group, planted())
        off = np.exp(noise.normal(0, 0.01, 2))
        held = {"power_w": float(watts[0] * off[0]), "energy_j": float(joules[0] * off[1])}
        found.append({**row, "row": index, "status": "passed", **held})
    return found


def write_record(path: Path, rows: list[dict[str, Any]], **facts: Any) -> Path:
    record = {
        "suite": "power",
        "device": "NVIDIA H200",
        "profile": "h200",
        "power_limit_w": LIMIT_W,
    }
    path.write_text(json.dumps({**record, **facts, "rows": rows}), "utf-8")
    return path


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("power")
    return write_record(folder / "power.json", measured(plan()["rows"]))


def test_a_plan_has_two_hundred_legal_rows_of_every_suite_none_twice() -> None:
    rows = parse_plan(json.dumps(plan())).rows
    assert len(rows) == power_plan.ROWS == 200
    assert len({(row.problem, row.config) for row in rows}) == len(rows)
    assert {row.suite for row in rows} == set(power_plan.PARTS)
    assert len({row.problem for row in rows}) > 100
    device = load_profile("h200")
    for row in rows:
        legality.check(row.config, row.problem, device)


def test_no_row_of_a_plan_needs_its_l2_flushed() -> None:
    """A flush would draw power of its own."""
    l2_bytes = load_profile("h200").limit("l2_bytes")
    for row in parse_plan(json.dumps(plan())).rows:
        _, flush = rotation_sets(row.problem.operand_bytes, l2_bytes, BENCH.with_cache(row.cache))
        assert not flush
    caches = {row["cache"] for row in plan()["rows"]}
    assert caches == {"cold", "warm"}


def test_a_plan_is_its_seeds() -> None:
    fresh = power_plan.row_plan(power_plan.TRUTH, load_profile("h200"), 40, 3)
    assert fresh["rows"] == plan(40, 3)["rows"]
    assert fresh["rows"] != plan(40, 4)["rows"]


def test_answers_are_planned_where_the_weighted_one_gains_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_powered(tmp_path)
    monkeypatch.setenv(PROFILES_VARIABLE, str(tmp_path))
    out = tmp_path / "answers.json"
    assert (
        power_plan.main(["--answers", "--questions", "3", "--cap", "0.95", "--out", str(out)]) == 0
    )
    for asked in read_answers(out):
        told = {role: asked.raw["answers"][role]["predicted"] for role in ROLES}
        assert asked.configs["weighted"] != asked.configs["pick"]
        assert told["weighted"]["energy_j"] < told["pick"]["energy_j"]
        assert told["capped"]["power_w"] <= asked.cap_w < told["pick"]["power_w"]


def test_no_answers_are_planned_for_a_device_that_was_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--answers", "--device", "h100_sxm", "--out", str(tmp_path / "a.json")]
    assert power_plan.main(arguments) == 2
    assert "has not been measured" in capsys.readouterr().err


def test_planted_constants_come_back(result: Path) -> None:
    record = power_fit.load_record([result])
    fitted, unseen = power_fit.parts(record.groups)
    found = power_fit.fit(fitted, load_profile("h200"), record.limit_w, "test")
    for name, value in PLANTED.items():
        assert found.estimates[name].value == pytest.approx(value, rel=0.2), name
    told = power_fit.report(unseen, found.device)
    assert told["rows"] > 40
    assert told["power"]["mean_ape"] < 0.02
    assert told["energy"]["p95_ape"] < 0.05
    assert found.device.constant(TABLE, "power_limit_w") == LIMIT_W


def test_rows_that_are_held_out_are_not_fitted(result: Path) -> None:
    record = power_fit.load_record([result])
    fitted, unseen = power_fit.parts(record.groups)
    count = sum(len(group.power_w) for group in record.groups)
    assert count == 200 == sum(len(group.power_w) for group in (*fitted, *unseen))
    spoilt = [dataclasses.replace(group, power_w=3 * group.power_w) for group in unseen]
    device = load_profile("h200")
    again, _ = power_fit.parts([*fitted, *spoilt])
    fits = [
        power_fit.fit(some, device, LIMIT_W, "test", steps=3).estimates for some in (fitted, again)
    ]
    assert {n: e.value for n, e in fits[0].items()} == {n: e.value for n, e in fits[1].items()}


def test_the_command_states_errors_and_writes_a_profile(
    result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile, report = tmp_path / "h200.json", tmp_path / "errors.json"
    raw = powered_raw()
    del raw["models"][TABLE]
    profile.write_text(json.dumps(raw), "utf-8")
    arguments = [str(result), "--steps", "4", "--report", str(report)]
    assert power_fit.main([*arguments, "--write", "--profile", str(profile)]) == 0
    assert "power_tensor_w" in capsys.readouterr().out
    written = parse_profile(profile.read_text("utf-8")).models[TABLE]
    assert set(written) == set(powered().models[TABLE])
    assert written["power_tensor_w"].provenance == "measured"
    assert "power.json" in written["power_tensor_w"].source
    assert written["power_limit_w"].value == LIMIT_W
    told = json.loads(report.read_text("utf-8"))
    assert told["held_out"]["power"]["mean_ape"] > 0
    assert told["fitted"]["rows"] + told["held_out"]["rows"] == 200


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"suite": "other"}, "holds no rows of kernels.power"),
        ({"profile": "h100_sxm"}, "several devices or power limits"),
        ({"power_limit_w": 500.0}, "several devices or power limits"),
    ],
)
def test_records_that_do_not_belong_together_are_refused(
    result: Path, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    other = write_record(tmp_path / "other.json", measured(plan()["rows"][:2]), **change)
    with pytest.raises(InvalidInput, match=words):
        power_fit.load_record([result, other])
    assert power_fit.main([str(result), str(other)]) == 2


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}", "utf-8")
    with pytest.raises(InvalidInput, match=r"no record of kernels\.power"):
        power_fit.load_record([path])


def test_the_page_has_the_records_errors_and_what_a_cap_holds() -> None:
    page = " ".join((ROOT / "docs" / "energy.md").read_text("utf-8").split())
    recorded = ROOT / "bench" / "results" / "h200"
    errors = json.loads((recorded / "power_errors.json").read_text("utf-8"))["held_out"]
    power, energy = (
        [f"{errors[kind][name] * 100:.1f} %" for name in ("mean_ape", "p95_ape")]
        for kind in ("power", "energy")
    )
    assert f"{power[0]} in the mean and {power[1]} at the 95th percentile" in page
    assert f"energy by {energy[0]} and {energy[1]}" in page
    device = load_profile("h200")
    margin = device.constant(TABLE, "power_margin")
    assert f"`power_margin` more ({margin * 100:.0f} % on the H200)" in page
    both = json.loads((recorded / "power_errors.json").read_text("utf-8"))
    of = [
        " and ".join(f"{both[part][name] * 100:.0f} %" for part in ("fitted", "held_out"))
        for name in ("within_margin", "within_cap")
    ]
    assert f"{of[0]} of fitted and held-out rows are within that margin" in page
    assert f"{of[1]} are within it" in page
    groups = power_fit.load_record([recorded / "power.json"]).groups
    limit = device.constant(TABLE, "power_limit_w")
    over = max(group.power_w.max() for group in groups) / limit - 1
    assert f"up to {over * 100:.1f} % more" in page
    rows = json.loads((recorded / "power_held.json").read_text("utf-8"))["rows"]
    assert (len(rows), {row["capped"]["verdict"] for row in rows}) == (6, {"holds"})
    left = [1 - row["measured"]["capped"]["power_w"] / row["cap_w"] for row in rows]
    assert f"with {min(left) * 100:.0f} to {max(left) * 100:.0f} % to spare" in page


def test_the_margin_is_what_all_but_one_in_twenty_stay_within(result: Path) -> None:
    """Planted: rows that draw a fifth more than is predicted; the meter's own is the least."""
    device = powered()
    groups = [
        dataclasses.replace(group, power_w=power_fit.predict(group, device)[0])
        for group in power_fit.load_record([result]).groups
    ]

    def drawn(times: float, of: int) -> float:
        return power_fit.margin(
            [
                dataclasses.replace(group, power_w=group.power_w * (times if i < of else 1))
                for i, group in enumerate(groups)
            ],
            device,
        )

    assert drawn(1.2, 0) == pytest.approx(0, abs=1e-9)
    assert drawn(1.2, len(groups)) == pytest.approx(0.2)
    assert drawn(1.2, len(groups) // 40) == pytest.approx(0, abs=1e-9)
    assert drawn(1.2, len(groups) // 8) == pytest.approx(0.2)
    found = power_fit.fit(groups, device, LIMIT_W, "test", steps=3).device
    assert found.constant(TABLE, "power_margin") >= power_fit.LEAST_MARGIN
    assert power_fit.report(groups, found)["within_margin"] >= 0.95


def test_what_a_cap_holds_ends_at_the_limit_and_a_margin_beyond_all_is_refused(
    result: Path,
) -> None:
    """Planted: rows at the driver's limit that draw more than it, and rows that draw thrice."""
    device = powered()
    groups = power_fit.load_record([result]).groups

    def drawn(factor: float) -> list[power_fit.PowerGroup]:
        predicted = [power_fit.predict(group, device)[0] for group in groups]
        return [
            dataclasses.replace(group, power_w=watts * factor)
            for group, watts in zip(groups, predicted, strict=True)
        ]

    margin = device.constant(TABLE, "power_margin")
    assert power_fit.within_cap(drawn(1.0), device) == 1
    assert power_fit.within_cap(drawn(1 + 1.1 * margin), device) < 0.01
    table = dict(device.models[TABLE])
    table["power_limit_w"] = dataclasses.replace(table["power_limit_w"], value=1.0)
    limited = dataclasses.replace(device, models={**device.models, TABLE: table})
    as_predicted = [
        dataclasses.replace(group, power_w=power_fit.predict(group, limited)[0] * 1.05)
        for group in groups
    ]
    assert power_fit.within_cap(as_predicted, limited) < 0.5
    with pytest.raises(InvalidInput, match="times their prediction beyond it"):
        power_fit.fit(drawn(3.0), device, LIMIT_W, "test", steps=0)
