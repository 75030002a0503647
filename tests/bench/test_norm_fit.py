"""norm_activation's fit: planted constants come back, held-out rows decide nothing."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import norm_fit
from solver.calibration.norm_start import norm_start
from solver.device import parse_profile, shipped_text
from solver.errors import InvalidInput
from solver.families import norm_activation as family
from solver.families.norm_activation_cost import CONSTANTS
from solver.split import is_norm_held_out
from tests.norm_profiles import INVENTED, bare, invented
from tests.norm_records import timed, write_record

H200 = bare()
PLANTED = {
    "hbm_bytes_per_us": 3.7e6,
    "static_imbalance": 0.12,
    "degree_instructions": 1.2,
    "element_instructions_half": 14.0,
    "block_start_us": 0.9,
    "batch_cycles": 300.0,
    "memory_latency_us": 0.9,
    "mbarrier_cycles": 250.0,
}
FEW_STEPS = 8


@cache
def measured(noise: float = 0.01) -> tuple[dict[str, Any], ...]:
    """Every second row of the grid's narrower half, as the planted device would take them."""
    rows = timed(invented(**PLANTED), noise, every=2, chosen=lambda c: c.problem.width == 1024)
    return tuple(rows)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_record(tmp_path_factory.mktemp("norm") / "grid.json", list(measured()))


@cache
def fitted(path: Path, steps: int = FEW_STEPS) -> norm_fit.Fit:
    groups = norm_fit.load_races([path], H200)
    return norm_fit.fit(groups, H200, "test", steps)


def test_planted_constants_come_back(result: Path) -> None:
    found = fitted(result)
    for name, value in PLANTED.items():
        estimate = found.estimates[name]
        assert estimate.value == pytest.approx(value, rel=0.2), name
        assert estimate.low < value < estimate.high, name
        assert estimate.determined > 0.8, name


def test_the_fit_errs_by_the_noise_on_rows_it_never_saw(result: Path) -> None:
    groups = norm_fit.load_races([result], H200)
    unseen = [group for group in groups if group.held_out]
    assert 5 < len(unseen) < len(groups) / 2
    off = np.abs(np.expm1(norm_fit.log_errors(unseen, fitted(result).device)))
    assert off.mean() < 0.015
    begun = np.abs(np.expm1(norm_fit.log_errors(unseen, norm_start(H200).device)))
    assert begun.mean() > 3 * off.mean()
    regrets = [group.regret(group.predicted_us(fitted(result).device)) for group in unseen]
    assert np.mean(regrets) < 1.03


def test_what_is_held_out_decides_nothing(result: Path, tmp_path: Path) -> None:
    spoiled = [
        row | {"median_us": row["median_us"] * 3}
        if is_norm_held_out(family.NormProblem(**row["problem"]), row["warps_per_sm"])
        else row
        for row in measured()
    ]
    assert spoiled != list(measured())
    path = write_record(tmp_path / "spoiled.json", spoiled)
    assert fitted(path, 2).estimates == fitted(result, 2).estimates


def test_constants_that_no_row_decides_stay_where_they_began(result: Path) -> None:
    found, start = fitted(result), norm_start(H200).device
    for name in ("silu_instructions", "gelu_instructions", "hbm_sms_exponent"):
        assert found.estimates[name].value == start.constant(family.NAME, name)
        assert found.estimates[name].determined < 0.01
        constant = found.device.models[family.NAME][name]
        assert constant.provenance == "derived"
        assert constant.source.endswith("; no row decides it")
    assert found.device.models[family.NAME]["hbm_bytes_per_us"].provenance == "measured"
    for name in ("clock_ghz", "load_norm"):
        assert name not in found.estimates
        assert found.device.models[family.NAME][name].provenance == "derived"


def test_a_start_has_every_constant_and_keeps_those_of_the_profile() -> None:
    begun = norm_start(H200)
    assert set(begun.device.models[family.NAME]) == set(CONSTANTS)
    assert begun.device.models["sm90_gemm"] == H200.models["sm90_gemm"]
    known = norm_start(invented())
    assert known.device.constant(family.NAME, "launch_us") == INVENTED["launch_us"]


def test_rows_that_failed_and_other_files_are_left_out(tmp_path: Path) -> None:
    rows = [*measured()[:4], dict(measured()[4]) | {"status": "failed"}]
    path = write_record(tmp_path / "some.json", rows)
    (group,) = norm_fit.load_races([path], H200)
    assert len(group.measured_us) == 4
    assert group.cold
    warm = write_record(tmp_path / "warm.json", rows, protocol={"cache": "warm"})
    assert not norm_fit.load_races([warm], H200)[0].cold
    other = write_record(tmp_path / "other.json", rows, suite="llm")
    with pytest.raises(InvalidInput, match=r"kernels\.norm\.bench"):
        norm_fit.load_races([other], H200)


def test_blocks_that_the_model_counts_otherwise_are_told(tmp_path: Path) -> None:
    natural = [row for row in measured() if not row["reserved_smem_bytes"]][:6]
    natural[0] = natural[0] | {"resident_blocks": natural[0]["resident_blocks"] + 1}
    path = write_record(tmp_path / "some.json", natural)
    words = norm_fit.report(norm_fit.load_races([path], H200), invented(**PLANTED))
    assert "resident blocks    5 of 6 rows" in words


def test_the_command_reports_and_writes_only_where_it_is_asked(
    result: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profile = tmp_path / "solver" / "profiles" / "h200.json"
    profile.parent.mkdir(parents=True)
    profile.write_text(shipped_text("h200"), "utf-8")
    monkeypatch.chdir(tmp_path)
    assert norm_fit.main([str(result), "--steps", "2"]) == 0
    told = capsys.readouterr().out
    assert "degree 512" in told
    assert "specialised" in told
    assert "held out" not in told
    assert profile.read_text("utf-8") == shipped_text("h200")
    assert norm_fit.main([str(result), "--steps", "2", "--write", "--held-out"]) == 0
    assert "held out" in capsys.readouterr().out
    written = parse_profile(profile.read_text("utf-8"))
    assert set(written.models[family.NAME]) == set(CONSTANTS)
    assert written.models["sm90_gemm"] == H200.models["sm90_gemm"]
    assert written.models[family.NAME]["degree_instructions"].source.startswith(
        "fitted by bench/norm_fit.py to "
    )


def test_a_record_that_can_not_be_fitted_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        row
        for row in measured()
        if is_norm_held_out(family.NormProblem(**row["problem"]), row["warps_per_sm"])
    ]
    assert norm_fit.main([str(write_record(tmp_path / "held.json", rows))]) == 2
    assert "no row that may be fitted" in capsys.readouterr().err


def test_fixed_blocks_are_priced_as_they_were(result: Path) -> None:
    groups = norm_fit.load_races([result], H200)
    forced = next(group for group in groups if group.warps_per_sm == 4)
    free = dataclasses.replace(
        forced, rows=dataclasses.replace(forced.rows, resident=forced.rows.resident * 2)
    )
    device = invented(**PLANTED)
    assert (free.predicted_us(device) <= forced.predicted_us(device) * 1.02).all()
    assert (free.predicted_us(device) < forced.predicted_us(device) * 0.8).any()
