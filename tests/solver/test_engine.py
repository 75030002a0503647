"""Questions in, answers out."""

from __future__ import annotations

import pickle
import time

import pytest

from solver.config import Config
from solver.engine import Engine
from solver.errors import IllegalConfig, InvalidInput, InvalidProblem, UnknownDevice
from solver.families.sm90_gemm_cost import kernel_space
from solver.problem import ELEMENT_BYTES, LAYOUTS, MAX_EXTENT, Problem
from solver.question import Question


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine()


def test_an_answer_is_a_pure_function_of_the_question(engine: Engine) -> None:
    question = Question(Problem(512, 1024, 2048), top_k=5)
    first = engine.optimize(question).to_dict()
    engine.optimize(Question(Problem(64, 64, 64)))
    assert engine.optimize(question).to_dict() == first
    assert Engine().optimize(question).to_dict() == first


def test_the_breakdown_adds_up_to_the_time(engine: Engine) -> None:
    for problem in (Problem(1, 4096, 4096), Problem(4096, 4096, 4096), Problem(77, 1000, 72)):
        predicted = engine.optimize(Question(problem)).to_dict()["predicted"]
        assert sum(predicted["breakdown"].values()) == pytest.approx(predicted["time_us"])


def test_alternatives_come_with_their_gap(engine: Engine) -> None:
    body = engine.optimize(Question(Problem(512, 512, 512), top_k=4)).to_dict()
    gaps = [row["gap"] for row in body["alternatives"]]
    assert len(gaps) == 3
    assert gaps == sorted(gaps)
    assert gaps[0] >= 0


def test_an_answer_says_where_a_problem_does_not_fit_the_devices_memory(engine: Engine) -> None:
    for problem, fits in ((Problem(4096, 4096, 4096), True), (Problem(2**20, 2**20, 64), False)):
        body = engine.optimize(Question(problem, proof="none")).to_dict()
        assert body["fits_device_memory"] is fits
        assert (body["operand_bytes"] <= body["device"]["memory_bytes"]) is fits


def test_without_a_proof_the_answer_says_so(engine: Engine) -> None:
    body = engine.optimize(Question(Problem(512, 512, 512), proof="none")).to_dict()
    assert body["proof"]["status"] == "not_requested"


def test_divergence_is_the_published_models_alone(engine: Engine) -> None:
    problem = Problem(512, 512, 512)
    plain = engine.optimize(Question(problem, device="a6000", model="paper")).to_dict()
    diverged = engine.optimize(
        Question(problem, device="a6000", model="paper", divergence=2.0)
    ).to_dict()
    assert diverged["predicted"]["time_us"] > 1.5 * plain["predicted"]["time_us"]
    for value, model in ((2.0, "calibrated"), (0.5, "paper"), (float("nan"), "paper")):
        with pytest.raises(InvalidInput, match="divergence"):
            Question(problem, model=model, divergence=value)


def test_simulating_the_pick_has_no_gap(engine: Engine) -> None:
    problem = Problem(1024, 2048, 1024)
    answer = engine.optimize(Question(problem))
    simulation = engine.simulate(problem, answer.config).to_dict()
    assert simulation["gap_to_optimum"] == 0
    assert simulation["predicted"] == answer.to_dict()["predicted"]
    assert simulation["played_whole"] is True


@pytest.mark.alone
def test_the_largest_problem_is_simulated_at_once_and_says_it_was_not_played_whole(
    engine: Engine,
) -> None:
    problem = Problem(2**20, 2**20, 2**20)
    config = engine.optimize(Question(problem)).config
    started = time.perf_counter()
    simulation = engine.simulate(problem, config).to_dict()
    assert time.perf_counter() - started < 2
    assert simulation["played_whole"] is False
    assert len(simulation["timeline"]) == 64


def test_extreme_extents_answer_with_proof(engine: Engine) -> None:
    for problem in (
        Problem(MAX_EXTENT, 1, 8),
        Problem(1, MAX_EXTENT, 8),
        Problem(1, 1, MAX_EXTENT // 8 * 8),
        Problem(2**20, 2**20, 2**20),
    ):
        assert engine.optimize(Question(problem)).to_dict()["proof"]["status"] == "optimal"


def test_errors_cross_process_pools_with_their_fields() -> None:
    for error in (
        InvalidInput("m", "must be positive"),
        InvalidProblem("k", "must be a multiple of 8"),
        IllegalConfig("stages", "too many"),
        UnknownDevice("device", "no such"),
    ):
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is type(error)
        assert (back.field, back.message, str(back)) == (error.field, error.message, str(error))


def test_a_configuration_of_the_wrong_form_names_the_field() -> None:
    good = Config("sm90_gemm", 64, 64, 64, 4).to_dict()
    for change, field in (
        ({"stages": "4"}, "stages"),
        ({"stages": True}, "stages"),
        ({"speed": 1}, "speed"),
        ({"tile_m": 64.0}, "tile_m"),
    ):
        with pytest.raises(IllegalConfig) as caught:
            Config.from_dict(good | change)
        assert caught.value.field == field
    del good["tile_n"]
    with pytest.raises(IllegalConfig, match="tile_n: is required"):
        Config.from_dict(good)


def test_a_problem_of_more_tiles_than_a_launch_counts_is_refused_with_the_reason() -> None:
    question = Question(Problem(2**24, 2**24, 1), proof="none")
    with pytest.raises(InvalidProblem, match="more units of work of C than 2147483647"):
        Engine().optimize(question)
    within = Question(Problem(2**22, 2**23, 1, layout="nt", out_dtype="fp32"), proof="none")
    assert Engine().optimize(within).config.tile_m >= 64


def test_a_warm_engine_has_the_kernels_of_every_layout_and_type() -> None:
    """A first question in another layout must not pay for what warming can."""
    Engine().warm(("h200",))
    before = kernel_space.cache_info().misses
    for layout in LAYOUTS:
        for dtype in ELEMENT_BYTES:
            Engine().optimize(Question(Problem(300, 200, 100, dtype, layout), proof="none"))
    assert kernel_space.cache_info().misses == before
