"""What operands that TMA can't take cost, and what there would be where they lay otherwise."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from solver.alignment import STEPS_BYTES, alignments
from solver.config import Config
from solver.device import load_profile
from solver.engine import Engine
from solver.explain import explain
from solver.families.sm90_gemm_operands import copied_operands, stores_by_tma
from solver.flips import Asked
from solver.objective import objective_from_dict
from solver.problem import MAX_EXTENT, Problem
from solver.question import Question

H200 = load_profile("h200")
PROBLEMS = [
    (Problem(300, 512, 777), [("a",), ("b",), ("a", "b")]),
    (Problem(300, 512, 768, lda=780, a_offset=3), [("a",)]),
    (Problem(300, 512, 768, layout="nt", ldb=519), [("a",), ("b",), ("a", "b")]),
    (Problem(1, 512, 768, a_offset=1), [("a",)]),
    (Problem(300, 512, 1, b_offset=5), [("b",)]),
    (Problem(300, 512, 768, ldc=515), [("c",)]),
    (Problem(300, 512, 768, out_dtype="fp32", c_offset=2), [("c",)]),
    (Problem(300, 512, 777, layout="tt", ldc=515), [("a",), ("c",), ("a", "c")]),
    (Problem(300, 250, 768), []),
    (Problem(300, 512, 768), []),
]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine()


@pytest.mark.parametrize(("problem", "sets"), PROBLEMS)
def test_each_operand_and_then_all_are_moved_to_where_tma_takes_them(
    engine: Engine, problem: Problem, sets: list[tuple[str, ...]]
) -> None:
    found = alignments(Asked(Question(problem), H200), engine.prover)
    assert [each.operands for each in found] == sets
    for each in found:
        moved = dataclasses.replace(problem, **each.after)
        assert not set(copied_operands(moved)) & set(each.operands)
        assert "c" not in each.operands or stores_by_tma(moved)
        left = {"a", "b"} - set(each.operands)
        assert set(copied_operands(moved)) == set(copied_operands(problem)) & left
        assert Asked(Question(moved), H200).first() == each.row
        for field, value in each.after.items():
            assert each.before[field] == getattr(problem, field) != value


@pytest.mark.parametrize(("problem", "sets"), PROBLEMS[:3])
def test_no_pitch_tried_is_better_than_the_one_named(
    engine: Engine, problem: Problem, sets: list[tuple[str, ...]]
) -> None:
    asked = Asked(Question(problem), H200)
    for each in alignments(asked, None):
        pitches = {field for field in each.after if field.startswith("ld")}
        for step in STEPS_BYTES:
            rounded = {f: -(-each.before[f] * 2 // step) * step // 2 for f in pitches}
            moved = dataclasses.replace(problem, **(each.after | rounded))
            assert each.row.time <= asked.of(moved).first().time


def test_a_pitch_next_to_the_largest_is_not_named(engine: Engine) -> None:
    problem = Problem(64, 64, 63, lda=MAX_EXTENT)
    assert [each.operands for each in alignments(Asked(Question(problem), H200), None)] == [("b",)]


def test_the_published_model_knows_no_copies() -> None:
    question = Question(Problem(512, 512, 512), device="a6000", model="paper")
    assert alignments(Asked(question, load_profile("a6000")), None) == []


@pytest.mark.parametrize(
    "objective",
    [
        {"kind": "lexicographic", "order": ["time", "wait"]},
        {"kind": "weighted", "weights": {"time": 1, "smem": 0.05}},
    ],
)
def test_the_text_and_the_figures_are_those_of_the_question_asked_again(
    engine: Engine, objective: dict[str, Any]
) -> None:
    problem = Problem(333, 4096, 777, layout="tt", c_offset=1)
    question = Question(problem, objective=objective_from_dict(objective))
    body = explain(engine, question)
    (said,) = (text for text in body["text"] if "no copy of A" in text)
    assert [each["operands"] for each in body["alignments"]] == [["a"], ["c"], ["a", "c"]]
    mine = body["predicted"]["time_us"]
    for each in body["alignments"]:
        moved = dataclasses.replace(problem, **each["after"])
        again = engine.optimize(dataclasses.replace(question, problem=moved)).to_dict()
        assert Config.from_dict(each["config"]) == Config.from_dict(again["config"])
        assert each["time_us"] == again["predicted"]["time_us"]
        assert each["time_change"] == pytest.approx(each["time_us"] / mine - 1)
        assert f"{each['time_us']:.2f} µs instead of {mine:.2f}" in said
    assert "With lda = " in said
    assert "c_offset = 0 instead of 1, C stored by TMA" in said
