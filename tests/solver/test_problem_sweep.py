"""Which rows a sweep of given problems measures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.device import load_profile
from solver.errors import IllegalConfig, InvalidInput
from solver.families import sm90_gemm_legality as legality
from solver.pick import best_rows, find_row
from solver.problem import Problem
from solver.problem_sweep import ROWS_MAX, ProblemSweep, planned_rows, visits_of
from solver.space import tabulate
from solver.units import us_from_ticks

H200 = load_profile("h200")
PROBLEMS = (Problem(512, 512, 512), Problem(64, 4096, 1024, dtype="fp16"))
TABLE = tabulate(PROBLEMS[0], H200, "calibrated")
SECOND = best_rows(TABLE, 2)[1].config


def test_the_models_first_come_in_its_order_and_then_what_covers() -> None:
    rows = planned_rows(ProblemSweep(PROBLEMS, top_k=5, covering=8), H200)
    assert [row.problem for row in rows] == [0] * 13 + [1] * 13
    for place, problem in enumerate(PROBLEMS):
        table = tabulate(problem, H200, "calibrated")
        mine = [row for row in rows if row.problem == place]
        top = [row.config for row in best_rows(table, 5)]
        assert [row.row.config for row in mine[:5]] == top
        assert [row.row.role for row in mine] == ["top"] * 5 + ["covering"] * 8
        assert [row.pick for row in mine] == [True] + [False] * 12
        assert len({row.row.config for row in mine}) == 13
        for row in mine:
            legality.check(row.row.config, problem, H200)
            assert row.predicted_us == us_from_ticks(find_row(table, row.row.config).time)


def test_a_configuration_of_ones_own_is_measured_once_and_may_be_the_pick() -> None:
    pick = best_rows(TABLE, 1)[0].config
    rows = planned_rows(ProblemSweep(PROBLEMS[:1], (SECOND, pick), top_k=3), H200)
    assert [row.row.role for row in rows] == ["given", "given", "top"]
    assert [row.pick for row in rows] == [False, True, False]
    alone = planned_rows(ProblemSweep(PROBLEMS[:1], (SECOND,), top_k=0), H200)
    assert [(row.row.config, row.pick) for row in alone] == [(SECOND, False)]


def test_the_seed_and_the_cache_are_part_of_what_is_measured() -> None:
    sweep = ProblemSweep(PROBLEMS[:1], top_k=1, covering=10)
    first = planned_rows(sweep, H200)
    assert planned_rows(sweep, H200) == first
    assert planned_rows(replace(sweep, seed=2), H200) != first
    warm = planned_rows(replace(sweep, cache="warm"), H200)
    assert {row.row.cache for row in warm} == {"warm"}
    assert warm[0].predicted_us < first[0].predicted_us


def test_an_illegal_configuration_is_refused() -> None:
    with pytest.raises(IllegalConfig):
        planned_rows(ProblemSweep(PROBLEMS[:1], (replace(SECOND, stages=99),)), H200)


def test_visits_keep_a_problem_together_and_leave_out_what_is_done() -> None:
    rows = planned_rows(ProblemSweep(PROBLEMS, top_k=6), H200)
    visits = visits_of(rows, 1, frozenset())
    assert [sorted(visit.rows) for visit in visits] == [list(range(6)), list(range(6, 12))]
    assert visits_of(rows, 2, frozenset()) != visits
    left = visits_of(rows, 1, frozenset({0, 1, 2, 3, 4, 5, 7}))
    assert [visit.rows for visit in left] == [tuple(n for n in visits[1].rows if n != 7)]
    assert visits_of(rows, 1, frozenset(range(12))) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"problems": ()}, "problems"),
        ({"problems": PROBLEMS * 40}, "problems"),
        ({"problems": PROBLEMS + PROBLEMS[:1]}, "problems.2"),
        ({"configs": (SECOND, SECOND)}, "configs.1"),
        ({"top_k": -1}, "top_k"),
        ({"top_k": True}, "top_k"),
        ({"covering": 1001}, "covering"),
        ({"cache": "hot"}, "cache"),
        ({"seed": 2**31}, "seed"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": 1, "covering": 1000}, "problems"),
    ],
)
def test_limits_are_named(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        ProblemSweep(**{"problems": PROBLEMS, **change})  # type: ignore[arg-type]
    assert refused.value.field == field


def test_as_many_rows_as_may_be_are_taken() -> None:
    ProblemSweep(PROBLEMS, top_k=0, covering=ROWS_MAX // 2)
