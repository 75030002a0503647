"""Explanations: every flip that is named flips the pick, and the text says what the figures do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from solver.config import Config
from solver.constraints import Constraints
from solver.device import load_profile
from solver.engine import Engine
from solver.errors import InvalidInput, ProofError
from solver.explain import explain
from solver.flips import Asked, Flip, moved_to, prove_flip, tightened
from solver.objective import objective_from_dict
from solver.pick import best_rows
from solver.problem import Problem
from solver.question import Question

H200 = load_profile("h200")
FLIP = ("kind", "name", "before", "stands_at", "after", "change")
Explained = Callable[[Question], dict[str, Any]]
HELD = Constraints.from_dict(
    {"smem_bytes": {"max": 98304}, "config": {"tile_n": {"in": [64, 128]}}}
)
QUESTIONS = [
    Question(Problem(4096, 4096, 4096)),
    Question(Problem(64, 4096, 4096)),
    Question(Problem(1, 8192, 28672)),
    Question(Problem(512, 512, 512), cache="warm"),
    Question(Problem(77, 1000, 72)),
    Question(Problem(4096, 4096, 4096), constraints=HELD),
    Question(Problem(2048, 2048, 2048), constraints=Constraints.from_dict({"sms": {"max": 100}})),
    Question(
        Problem(1024, 1024, 1024), constraints=Constraints.from_dict({"sms": {"in": [32, 64]}})
    ),
    Question(
        Problem(128, 7168, 2048),
        objective=objective_from_dict({"kind": "weighted", "weights": {"time": 1, "smem": 0.05}}),
    ),
    Question(Problem(512, 512, 512), device="a6000", model="paper"),
    Question(Problem(2048, 2048, 24)),
    Question(Problem(16, 14336, 4096)),
]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine()


@pytest.fixture(scope="module")
def explained(engine: Engine) -> Explained:
    """The explanation of a question, which is asked some hundred times over, made once."""
    return cache(lambda question: explain(engine, question))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: f"{q.problem}-{q.model}")
def test_every_flip_named_flips_the_pick_and_the_value_before_it_does_not(
    question: Question, explained: Explained
) -> None:
    body = explained(question)
    asked = Asked(question, load_profile(question.device))
    pick = asked.first()
    named = _named(body)
    assert named
    for said in named:
        flip = Flip(**{member: said[member] for member in FLIP}, row=pick)
        after = moved_to(asked, flip, said["after"]).first()
        assert after.config == Config.from_dict(said["config"]) != pick.config
        assert moved_to(asked, flip, said["stands_at"]).first().config == pick.config


def _named(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [*body["binding"], *body["flips"]["limits"], *body["flips"]["constants"]]


def test_the_nearest_flip_is_the_least_change_of_all(
    explained: Explained,
) -> None:
    body = explained(QUESTIONS[0])
    flips = body["flips"]
    every = [*flips["limits"], *flips["constants"]]
    assert flips["nearest"]["change"] == min(flip["change"] for flip in every)
    changes = [flip["change"] for flip in flips["limits"]]
    assert changes == sorted(changes)


def test_the_text_says_what_a_person_would(
    explained: Explained,
) -> None:
    text = explained(QUESTIONS[5])["text"]
    whole = " ".join(text)
    assert text[0].startswith("For 4096 x 4096 x 4096 in bf16 (tn) on NVIDIA H200")
    assert "allowed configurations" in text[0]
    assert "Your constraints.smem_bytes.max = 98304 binds: at " in whole
    assert "Your constraints.config.tile_n.in = [64, 128] binds: at [" in whole
    assert "The runner-up has" in whole
    plain = explained(QUESTIONS[0])["text"]
    assert "The least change of a constant that was found to flip the pick:" in " ".join(plain)
    for sentence in (*text, *plain):
        assert sentence[0].isupper()
        assert sentence.endswith(".")
        assert "None" not in sentence
        assert "  " not in sentence


@pytest.mark.parametrize(
    ("problem", "said", "unsaid"),
    [
        (Problem(256, 256, 256), [], ["copies", "element by element"]),
        (
            Problem(256, 256, 257),
            [
                "TMA can't take A and B as they lie",
                "first copies them",
                "256 x 256 x 257 in bf16 (tn)",
            ],
            ["element by element"],
        ),
        (
            Problem(256, 250, 256, layout="tt", out_dtype="fp32", c_offset=1),
            ["take B as it lies", "copies it", "C is stored element by element", "C in fp32"],
            [],
        ),
        (
            Problem(256, 256, 256, layout="nn", ldc=260),
            ["C is stored element by element", "(nn, ldc 260)"],
            ["copies"],
        ),
    ],
)
def test_the_text_says_what_operands_off_16_bytes_cost(
    engine: Engine, problem: Problem, said: list[str], unsaid: list[str]
) -> None:
    body = explain(engine, Question(problem, proof="none"))
    whole = " ".join(body["text"])
    assert all(words in whole for words in said), whole
    assert not any(words in whole for words in unsaid), whole
    if body["copied_operands"]:
        copy_us = float(whole.partition("into an aligned buffer, ")[2].partition(" µs")[0])
        assert copy_us == pytest.approx(body["predicted"]["breakdown"]["copy_us"], abs=0.006)


def test_a_cluster_is_named_with_what_it_shares(engine: Engine) -> None:
    for field, shared in (("cluster_m", "B"), ("cluster_n", "A")):
        held = Constraints.from_dict({"config": {field: {"in": [2]}}})
        question = Question(Problem(256, 256, 256), constraints=held, proof="none")
        body = explain(engine, question)
        whole = " ".join(body["text"])
        assert f"clusters of 2 CTAs that share {shared}" in body["text"][0]
        assert f"Your constraints.config.{field}.in = [2] binds" in whole or "No limit" in whole


def test_the_runner_up_stands_beside_the_pick_with_its_breakdown(
    explained: Explained,
) -> None:
    question = Question(Problem(64, 4096, 4096))
    body = explained(question)
    rows = best_rows(Asked(question, H200).space().allowed, 2)
    assert body["runner_up"]["config"] == rows[1].config.to_dict()
    assert set(body["runner_up"]["predicted"]["breakdown"]) == set(body["predicted"]["breakdown"])
    other = body["best_other_tile"]
    tile = ("tile_m", "tile_n", "tile_k")
    assert any(other["config"][name] != body["config"][name] for name in tile)
    parts = other["predicted"]["breakdown"]
    assert sum(parts.values()) == pytest.approx(other["predicted"]["time_us"])


def test_a_front_a_list_and_a_limit_of_time_are_not_explained(engine: Engine) -> None:
    problem = Problem(512, 512, 512)
    front = objective_from_dict({"kind": "pareto", "axes": ["time", "smem"]})
    for question, field in (
        (Question(problem, objective=front), "objective"),
        (Question(problem, top_k=2), "top_k"),
        (Question(problem, time_limit_ms=5), "time_limit_ms"),
    ):
        with pytest.raises(InvalidInput) as caught:
            explain(engine, question)
        assert caught.value.field == field


def test_a_flip_that_does_not_flip_is_refused(engine: Engine) -> None:
    question = QUESTIONS[1]
    asked = Asked(question, H200)
    pick = asked.first()
    for flip in tightened(asked, pick):
        prove_flip(asked, pick, flip, engine.prover)
        wrong = dataclasses.replace(flip, after=flip.stands_at)
        with pytest.raises(ProofError, match="does not flip"):
            prove_flip(asked, pick, wrong, engine.prover)


def test_a_question_with_one_configuration_left_is_explained(engine: Engine) -> None:
    question = Question(Problem(64, 4096, 4096))
    config = engine.optimize(question).config.to_dict()
    only = {"config": {name: {"in": [v]} for name, v in config.items() if name != "family"}}
    held = dataclasses.replace(question, constraints=Constraints.from_dict(only))
    body = explain(engine, held)
    assert body["runner_up"] is None
    assert "nothing else is allowed" in " ".join(body["text"])
