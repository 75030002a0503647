"""The suites are what their names say, and are made again the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import make_suites
from bench.records import SQUARES, SUITES
from solver.engine import Engine
from solver.families.sm90_gemm_operands import copied_operands, stores_by_tma
from solver.problem import LAYOUTS, Problem
from solver.question import Question
from solver.suites import load_suite

FOLDER = Path(make_suites.__file__).with_name("suites")


def suite(name: str) -> tuple[Problem, ...]:
    return load_suite(str(FOLDER / f"{name}.csv"))


@pytest.mark.parametrize("name", make_suites.suites())
def test_the_files_hold_what_the_generator_makes(name: str) -> None:
    made = make_suites.suites()[name]
    assert suite(name) == tuple(made)
    assert (FOLDER / f"{name}.csv").read_text("utf-8") == make_suites.as_csv(made)
    assert len(set(made)) == len(made)
    assert name in (*SUITES, SQUARES)


def test_forty_odd_pitches_are_taken_by_tma_and_start_no_row_on_128_bytes() -> None:
    problems = suite("odd40")
    assert len(problems) == 40
    for problem in problems:
        assert copied_operands(problem) == ()
        assert stores_by_tma(problem)
        for matrix in (problem.a, problem.b):
            assert matrix.pitch * 2 % 16 == 0
            assert matrix.pitch * 2 % 128
    rows = [problem.m for problem in problems]
    assert (rows[0], rows[-1]) == (1, 300)
    assert rows == sorted(rows)
    assert sum(m >= 16 for m in rows) >= 15
    assert any(problem.lda != problem.k for problem in problems)


def test_twenty_unaligned_have_each_an_operand_that_tma_cannot_take() -> None:
    problems = suite("unaligned20")
    assert len(problems) == 20
    assert all(copied_operands(p) or not stores_by_tma(p) for p in problems)
    assert {p.layout for p in problems} == set(LAYOUTS)
    assert {1, 17} <= {p.m for p in problems}
    assert any(p.a_offset for p in problems)
    assert any(p.b_offset for p in problems)
    assert any(p.lda != p.k and p.layout == "tn" for p in problems)


def test_of_five_large_ones_c_alone_is_unaligned() -> None:
    alone = [
        p for p in suite("unaligned20") if not copied_operands(p) and min(p.m, p.n, p.k) > 4000
    ]
    assert len(alone) == 5
    assert not any(stores_by_tma(p) for p in alone)


@pytest.mark.parametrize("name", make_suites.suites())
def test_every_one_has_a_pick(name: str) -> None:
    engine = Engine()
    for problem in suite(name):
        assert engine.optimize(Question(problem, device="h200", proof="none")).config
