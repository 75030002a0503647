"""Errors and regrets over a ground truth whose times were chosen for known ones."""

from __future__ import annotations

import csv
import gzip
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from solver.accuracy import (
    FITTED,
    HELD_OUT,
    Predictor,
    Scored,
    error_figures,
    first_regret,
    kinds_of,
    m_class,
    m_classes,
    measured_regret,
    part_figures,
    scaled_errors,
    score,
)
from solver.errors import InvalidInput
from solver.ground_truth import GroundTruthGroup, load_ground_truth
from solver.problem import Problem
from tests.ground_truths import H200, Timed, config, off_by, write_truth

HELD, SEEN = Problem(64, 4096, 4096), Problem(16, 4096, 4096)
SEEN_TILE, HELD_TILE = 64, 16

ROWS = (
    off_by(HELD, config(SEEN_TILE, 4), 0.10, apart=0.02),
    off_by(HELD, config(SEEN_TILE, 5), -0.05, role="top", apart=0.06),
    off_by(HELD, config(HELD_TILE, 4), 0.03),
    off_by(SEEN, config(HELD_TILE, 4), 0.20, spread=0.07),
    off_by(SEEN, config(SEEN_TILE, 4), 0.40),
    Timed(off_by(SEEN, config(SEEN_TILE, 6), 0.0).row, None),
)
"""Held out: the first four, two by shape, one by both, one by configuration."""


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("median_us", value) for value in ("0", "-1", "nan", "inf", "x")),
        ("p95_us", "0"),
        ("repeat_us", "-3"),
        ("cache", "lukewarm"),
        ("tile_k", ""),
    ],
)
def test_a_table_with_a_figure_that_none_can_be_is_refused_with_its_path(
    column: str, value: str, tmp_path: Path
) -> None:
    path = write_truth(tmp_path, ROWS)
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    with gzip.open(path, "wt", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows([rows[0] | {column: value}, *rows[1:]])
    with pytest.raises(InvalidInput, match="can't be read") as refused:
        load_ground_truth(path)
    assert str(path) in refused.value.message


def scored(
    folder: Path, rows: Sequence[Timed] = ROWS, others: dict[str, Predictor] | None = None
) -> list[Scored]:
    groups = load_ground_truth(write_truth(folder, rows))
    return [score(group, H200, others or {}) for group in groups]


def test_errors_of_held_out_rows_are_those_chosen_noisy_ones_among_them(tmp_path: Path) -> None:
    figures = part_figures(scored(tmp_path))
    assert figures["rows"] == 4
    assert figures["mean_ape"] == pytest.approx((0.10 + 0.05 + 0.03 + 0.20) / 4, abs=1e-5)
    assert figures["p95_ape"] == pytest.approx(0.10 + 0.85 * 0.10, abs=1e-5)
    assert figures["max_ape"] == pytest.approx(0.20, abs=1e-5)
    assert figures["worst"]["m"] == SEEN.m
    assert figures["worst"]["config"]["tile_n"] == HELD_TILE
    assert figures["worst"]["predicted_us"] / figures["worst"]["measured_us"] == pytest.approx(
        1.2, rel=1e-5
    )


def test_rows_noisier_than_5_percent_are_left_out_beside_them(tmp_path: Path) -> None:
    """One by its repeat, one by its replays."""
    figures = part_figures(scored(tmp_path))
    assert figures["quiet"]["rows"] == 2
    assert figures["quiet"]["mean_ape"] == pytest.approx((0.10 + 0.03) / 2, abs=1e-5)
    noise = figures["noise"]
    assert (noise["rows"], noise["noisy_rows"]) == (2, 2)
    assert noise["median"] == pytest.approx(0.04, abs=1e-5)
    assert noise["p95"] == pytest.approx(0.02 + 0.95 * 0.04, abs=1e-5)


def test_each_class_has_its_rows(tmp_path: Path) -> None:
    figures = part_figures(scored(tmp_path))

    def means(group: str) -> dict[str, float]:
        return {name: round(each["mean_ape"], 4) for name, each in figures[group].items()}

    assert means("by_split") == {"shape": 0.075, "configuration": 0.2, "both": 0.03}
    assert means("by_m") == {"2-16": 0.2, "17-64": 0.06}
    assert means("by_role") == {"design": 0.11, "top": 0.05}
    assert means("by_kind") == {"plain": 0.095}
    assert means("by_suite") == {"llm": 0.095}


def test_fitted_figures_do_not_depend_on_what_is_held_out(tmp_path: Path) -> None:
    figures = part_figures(scored(tmp_path / "a"), FITTED)
    assert figures["rows"] == 1
    assert figures["mean_ape"] == pytest.approx(0.40, abs=1e-5)
    assert figures["by_split"] == {}
    others = [off_by(t.row.problem, t.row.config, 0.9) for t in ROWS[:3]]
    again = part_figures(scored(tmp_path / "b", [*others, *ROWS[3:]]), FITTED)
    for name in ("rows", "mean_ape", "p95_ape", "max_ape", "by_m", "worst"):
        assert again[name] == figures[name]


def test_nothing_measured_is_no_error() -> None:
    nothing = {"rows": 0, "mean_ape": None, "p95_ape": None, "max_ape": None}
    assert part_figures([]) == nothing
    assert error_figures(np.array([np.nan])) == nothing


def constant(time_us: float) -> Predictor:
    return lambda group: np.full(len(group.measured_us), time_us)


def of_stages(times_us: dict[int, float]) -> Predictor:
    def predict(group: GroundTruthGroup) -> np.ndarray:  # type: ignore[type-arg]
        return np.array([times_us.get(s, np.nan) for s in group.columns["stages"].tolist()])

    return predict


def test_a_peer_counts_where_it_says_something_beside_the_model_on_the_same(
    tmp_path: Path,
) -> None:
    groups = scored(tmp_path, others={"peer": of_stages({5: 50.0})})
    peer = part_figures(groups)["peers"]["peer"]
    measured = groups[0].group.measured_us[1]
    assert peer["rows"] == 1
    assert peer["mean_ape"] == pytest.approx(abs(50.0 / measured - 1))
    assert peer["model_on_the_same"]["mean_ape"] == pytest.approx(0.05, abs=1e-5)
    assert peer["scaled"]["rows"] == 0  # no fitted row of its own to take the constant from


def test_a_peers_constant_is_the_best_for_fitted_rows(tmp_path: Path) -> None:
    rows = [off_by(SEEN, config(SEEN_TILE, s), 0.0) for s in (3, 4, 5)]
    (group,) = scored(tmp_path, rows, {"peer": of_stages({3: 10.0, 4: 21.0, 5: 33.0})})
    ratios = group.predicted["peer"] / group.group.measured_us
    best = min(np.abs(scale * ratios - 1).mean() for scale in np.linspace(0.01, 2, 4000))
    assert scaled_errors([group], "peer").mean() <= best + 1e-9


def test_regret_is_that_of_the_row_taken_over_the_best_of_the_group(tmp_path: Path) -> None:
    """The model takes the deeper ring, which was measured slower."""
    rows = [
        off_by(HELD, config(SEEN_TILE, 8), -0.20),
        off_by(HELD, config(SEEN_TILE, 4), 0.0),
        off_by(HELD, config(SEEN_TILE, 2), 0.0),
        off_by(SEEN, config(SEEN_TILE, 2), 0.0),
    ]
    groups = scored(tmp_path, rows, {"peer": of_stages({2: 1.0}), "same": constant(1.0)})
    held = groups[0]
    deep, middle, shallow = held.group.measured_us
    assert held.predicted["model"][0] < held.predicted["model"][1]
    assert first_regret(held, "model") == pytest.approx(deep / min(deep, middle, shallow))
    assert first_regret(held, "model", 2) == 1.0
    assert first_regret(held, "peer") == pytest.approx(shallow / min(deep, middle, shallow))
    figures = measured_regret(groups, HELD_OUT)
    assert (figures["model"]["shapes"], figures["peer"]["shapes"]) == (1, 1)
    assert figures["model"]["of_first"]["2"] == 1.0
    assert measured_regret(groups, FITTED)["model"]["worst"] == 1.0
    assert measured_regret([], FITTED) == {}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
def test_who_says_the_same_of_all_draws(count: int, tmp_path: Path) -> None:
    errors = (0.0, 0.3, -0.2, 0.1)
    rows = [off_by(HELD, config(SEEN_TILE, s), e) for s, e in enumerate(errors, start=3)]
    (group,) = scored(tmp_path, rows, {"same": constant(7.0)})
    times = group.group.measured_us
    draws = list(itertools.combinations(times, min(count, len(times))))
    expected = np.exp(np.mean([np.log(min(draw) / times.min()) for draw in draws]))
    assert first_regret(group, "same", count) == pytest.approx(expected)


def test_who_says_nothing_takes_nothing(tmp_path: Path) -> None:
    (group, _) = scored(tmp_path, others={"peer": of_stages({})})
    assert first_regret(group, "peer") is None


def test_every_m_has_one_class() -> None:
    assert m_classes() == ("1", "2-16", "17-64", "65-128", "129-511", "512-4095", "4096-")
    for m, name in ((1, "1"), (2, "2-16"), (128, "65-128"), (511, "129-511"), (512, "512-4095")):
        assert m_class(m) == name
    assert m_class(2**31 - 1) == "4096-"


@pytest.mark.parametrize(
    ("problem", "kinds"),
    [
        (Problem(64, 64, 64), ("plain",)),
        (Problem(64, 64, 72), ("odd_pitch",)),
        (Problem(1, 1, 72), ("plain",)),  # one line each
        (Problem(64, 63, 64), ("unaligned",)),
        (Problem(64, 64, 72, lda=73), ("unaligned",)),
        (Problem(64, 64, 64, layout="tt"), ("layout",)),
        (Problem(64, 72, 64, layout="tt", out_dtype="fp32"), ("odd_pitch", "layout", "output")),
        (Problem(64, 72, 64), ("plain",)),  # C's pitch alone is odd
    ],
)
def test_kinds_say_what_is_special_of_operands(problem: Problem, kinds: tuple[str, ...]) -> None:
    assert kinds_of(problem) == kinds
