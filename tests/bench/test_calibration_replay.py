"""Calibrations over the recorded ground truth: what they may look at, and where they begin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.calibration_page import ON_GPU, PAGES, filled, on_gpu_words
from bench.calibration_replay import (
    NAME,
    PLANTED,
    ROWS_EACH,
    main,
    measured_rows,
    recorded_pool,
    starts,
)
from bench.records import read_record
from solver.calibration.design import PROBLEMS, choose
from solver.calibration.prior import Kind, widths
from solver.calibration.rows import FAMILY, row_count
from solver.device import load_profile
from solver.ground_truth import GroundTruthGroup, load_ground_truth
from solver.model_version import MODEL_VERSION
from solver.split import held_out

ROOT = Path(__file__).parents[2]
DOCS, RESULTS = ROOT / "docs", ROOT / "bench" / "results" / "h200"
H200, SHEET = load_profile("h200"), load_profile("h200_datasheet")


@pytest.fixture(scope="module")
def table() -> tuple[GroundTruthGroup, ...]:
    return load_ground_truth(RESULTS / "ground_truth.csv.gz")


def test_rows_are_the_tables_own_and_none_is_held_out(table: tuple[GroundTruthGroup, ...]) -> None:
    pool = recorded_pool(table, seed=3)
    assert 0.8 * sum(PROBLEMS.values()) < len(pool) <= sum(PROBLEMS.values())
    assert max(len(candidates) for candidates, _, _ in pool) <= ROWS_EACH
    candidates = [each for each, _, _ in pool]
    chosen = choose(candidates, H200, widths(H200, scratch=False), 60, seed=3)
    groups = measured_rows(pool, chosen)
    assert row_count(groups) == len(set(chosen)) == 60
    known = {(group.problem, group.cold): group for group in table}
    for group in groups:
        assert not any(mask.any() for mask in held_out(group.problem, group.columns).values())
        recorded = known[group.problem, group.cold]
        for row in range(len(group.measured_us)):
            same = np.logical_and.reduce(
                [recorded.columns[name] == column[row] for name, column in group.columns.items()]
            )
            assert recorded.measured_us[same].tolist() == [group.measured_us[row]]


def test_starts_are_what_they_are_called() -> None:
    found = {start.name: start for start in starts(H200, SHEET, RESULTS / "ceilings.json")}
    assert len(found) == 6
    bare = found["datasheet"].device
    assert bare.constant(FAMILY, "hbm_bytes_per_us") == 4.8e6
    told = found["datasheet and ceilings"]
    assert told.device.constant(FAMILY, "hbm_bytes_per_us") < 4.8e6
    assert told.widths["hbm_bytes_per_us"] < found["datasheet"].widths["hbm_bytes_per_us"]
    part = found[f"datasheet, {Kind.PART} and {Kind.SYSTEM} alone fitted"].widths
    alone = found[f"datasheet, {Kind.ARCHITECTURE} alone fitted"].widths
    assert set(part) | set(alone) == set(found["datasheet"].widths)
    assert not set(part) & set(alone)
    for name, factor in PLANTED.items():
        planted = found["planted"].device.constant(FAMILY, name)
        assert planted == factor * H200.constant(FAMILY, name)
    assert "datasheet and ceilings" not in {s.name for s in starts(H200, SHEET, None)}


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_have_the_records_tables(name: str) -> None:
    text = (DOCS / name).read_text("utf-8")
    record, on_gpu = read_record(RESULTS / NAME), read_record(RESULTS / ON_GPU)
    assert "| the committed profile |" in text
    assert filled(text, record, on_gpu) == text
    other = {**record, "committed": record["starts"]["datasheet"]["before"]}
    assert filled(text, other, on_gpu) != text


@pytest.mark.parametrize("other", [{"model_version": "1"}, {"profile_sha256": "0" * 64}])
def test_a_page_says_where_calibrations_are_of_another_model_or_profile(
    other: dict[str, str],
) -> None:
    recorded = read_record(RESULTS / NAME)
    present = {**recorded, "model_version": MODEL_VERSION, "profile_sha256": H200.sha256}
    on_gpu = read_record(RESULTS / ON_GPU)
    for name, tables in (("calibration.md", 1), ("new-gpu.md", 2)):
        text = (DOCS / name).read_text("utf-8")
        assert filled(text, present, on_gpu).count("Not replayed yet") == 0
        assert filled(text, present | other, on_gpu).count("Not replayed yet") == tables


def test_what_a_gpu_was_seen_to_do_is_what_its_record_says() -> None:
    record = read_record(RESULTS / ON_GPU)
    drift, none = record["cured"]["drift_before"], record["cured"]["drift"]
    assert "Picks, verified, tell of drift: " in on_gpu_words(record)
    unseen = {**record, "cured": {**record["cured"], "drift_before": none, "drift": drift}}
    assert "Picks, verified, tell of no drift: " in on_gpu_words(unseen)
    assert "the same timings tell of drift: " in on_gpu_words(unseen)
    ended = {**record, "shared_later": {"status": "failed", "details": "the GPU went"}}
    assert "a calibration failed: the GPU went." in on_gpu_words(ended)


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--device", "h999"], "device"),
        (["--datasheet", "h999"], "device"),
        (["--results", "nowhere"], "ground_truth"),
        (["--seeds", "1", "-1"], "seeds"),
    ],
)
def test_wrong_arguments_of_a_replay_are_named(
    words: list[str], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert f"{field}: " in capsys.readouterr().err
