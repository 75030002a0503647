"""Terms taken out of the model: each one there is, and what is told of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bench.ablation as ablation
from bench.ablation import NAME, TERMS, WHOLE, Task, ablation_table, facts_of, left_of, run, without
from bench.fit import fit, load_groups, training_rows
from solver.accuracy import FITTED, HELD_OUT
from solver.calibration.prior import FIXED
from solver.calibration.rows import FAMILY, predict_us
from solver.problem import Problem
from tests.ground_truths import H200, Timed, config, off_by, write_truth

HELD, SEEN = Problem(64, 4096, 4096), Problem(16, 4096, 4096)


def truth(folder: Path) -> Path:
    """Rows of one shape that is fitted, twice as long as the model says, and of one that is not."""
    rows: list[Timed] = []
    for problem in (HELD, SEEN):
        rows += [off_by(problem, config(64, stages), -0.5) for stages in range(2, 8)]
    return write_truth(folder, [*rows, off_by(SEEN, config(16, 4), 5.0)])


def test_every_term_has_constants_of_the_profile_and_every_constant_a_term() -> None:
    constants = set(H200.models[FAMILY])
    known = {name for values in TERMS.values() for name in values}
    assert known <= constants
    scales = {"clock_power_tflops", "load_bytes_per_cycle", "l2_step_iterations"}  # of a term given
    ungiven = constants - known - scales - set(FIXED)
    assert ungiven == set(), "a constant that no term turns off"
    for term, values in TERMS.items():
        off = without(term, H200)
        assert all(off.constant(FAMILY, name) == value for name, value in values.items())
        assert (values == {}) == (term == WHOLE)


@pytest.mark.filterwarnings("error")
def test_no_term_leaves_a_time_that_is_none(tmp_path: Path) -> None:
    groups = load_groups([truth(tmp_path)])
    for term in TERMS:
        for group in groups:
            times = predict_us(group, without(term, H200))
            assert np.isfinite(times).all()
            assert (times > 0).all()


def test_the_fit_sees_training_rows_alone(tmp_path: Path) -> None:
    groups = load_groups([truth(tmp_path)])
    (group,) = training_rows(groups)
    assert group.suite == "truth llm"
    assert group.problem == SEEN
    assert set(group.columns["tile_n"].tolist()) == {64}
    assert len(group.measured_us) == 6


def test_a_term_that_is_off_stays_off_and_the_rest_is_fitted(tmp_path: Path) -> None:
    training = training_rows(load_groups([truth(tmp_path)]))
    term = "cold loads"
    off = {"miss_latency_cycles": 0.0}
    profile = ablation.with_constants(H200, off, term)
    fitted = fit(training, profile, "test", {*FIXED, *off}, 3)
    assert fitted.constant(FAMILY, "miss_latency_cycles") == 0.0
    assert fitted.constant(FAMILY, "load_norm") == H200.constant(FAMILY, "load_norm")
    before = np.abs(predict_us(training[0], profile) / training[0].measured_us - 1).mean()
    after = np.abs(predict_us(training[0], fitted) / training[0].measured_us - 1).mean()
    assert after < 0.9 * before


def test_a_run_looks_at_what_is_held_out_only_when_told_to(tmp_path: Path) -> None:
    table = truth(tmp_path)
    figures = run(Task(WHOLE, table, "h200", 1, (FITTED,)))
    assert list(figures) == [FITTED]
    assert figures[FITTED]["llm"]["rows"] == 6
    assert figures[FITTED]["paper"]["rows"] == 0
    both = run(Task(WHOLE, table, "h200", 1, (FITTED, HELD_OUT)))
    assert both[FITTED] == figures[FITTED]
    assert both[HELD_OUT]["llm"]["rows"] == 7
    assert both[HELD_OUT]["regret"]["worst"] >= 1


def figures_of(mean: float) -> dict[str, Any]:
    errors = {"rows": 9, "mean_ape": mean, "p95_ape": 2 * mean, "max_ape": 3 * mean}
    return {"paper": errors, "llm": errors, "regret": {"geomean": 1 + mean, "worst": 1.5}}


def test_it_goes_on_with_what_is_missing_of_the_same_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = truth(tmp_path)
    terms = {name: TERMS[name] for name in (WHOLE, "launch")}
    monkeypatch.setattr(ablation, "TERMS", terms)
    facts = facts_of(table, "h200", 1, (FITTED,))
    done = {WHOLE: {FITTED: figures_of(0.04)}}
    assert left_of(facts | {"terms": done}, facts) == done
    assert left_of(facts | {"terms": done, "evaluations": 2}, facts) == {}
    assert left_of(None, facts) == {}
    out = tmp_path / NAME
    out.write_text(json.dumps(facts | {"terms": done}))
    record = ablation.ablate(table, "h200", 1, (FITTED,), 1, out)
    assert record["terms"][WHOLE] == done[WHOLE]
    assert list(record["terms"]) == list(terms)
    assert json.loads(out.read_text()) == record


def test_the_table_has_the_whole_model_first_and_then_what_is_worth_most() -> None:
    terms = {WHOLE: 0.04, "launch": 0.05, "L2": 0.09}
    record = {
        "sides": [FITTED, HELD_OUT],
        "evaluations": 5,
        "terms": {name: {HELD_OUT: figures_of(mean)} for name, mean in terms.items()},
    }
    table = ablation_table(record)
    assert table is not None
    assert "held-out rows" in table
    lines = table.splitlines()[-3:]
    assert [line.split(" | ")[0] for line in lines] == [f"| {WHOLE}", "| L2", "| launch"]
    assert lines[1] == "| L2 | 9.0% | 27.0% | 9.0% | 18.0% | 1.090 | 1.500 |"
    fitted = {name: {FITTED: figures_of(mean)} for name, mean in terms.items()}
    assert "fitted rows" in str(ablation_table(record | {"sides": [FITTED], "terms": fitted}))
    assert ablation_table(None) is None
    assert ablation_table({"terms": {}}) is None


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["nowhere.csv.gz"], "nowhere.csv.gz"),
        (["TRUTH", "--device", "h999"], "device: "),
        (["TRUTH", "--device", "a100"], "a100 has no sm90_gemm constants"),
        (["TRUTH", "--evaluations", "0"], "--evaluations: must be at least 1, got 0"),
        (["TRUTH", "--processes", "-1"], "--processes: must be at least 1, got -1"),
    ],
)
def test_wrong_arguments_are_named(
    words: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = truth(tmp_path)
    with pytest.raises(SystemExit) as ended:
        ablation.main([str(table) if word == "TRUTH" else word for word in words])
    assert ended.value.code == 2
    assert named in capsys.readouterr().err
