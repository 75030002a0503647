"""norm_activation's picks: proved by Z3, found by brute force, and what an answer says of them."""

from __future__ import annotations

import dataclasses
import re
import time
from typing import Any

import numpy as np
import pytest

from solver import oracle
from solver.certificate import certificate
from solver.constraints import NONE
from solver.device import DeviceProfile
from solver.engine import Engine
from solver.errors import InvalidInput, InvalidProblem, ProofError, Unsupported
from solver.families.norm_activation import ELEMENT_BYTES, WORDS, NormConfig, NormProblem
from solver.families.norm_activation_advice import VETOES, advise_problem
from solver.families.norm_activation_cost import tabulate
from solver.families.norm_activation_forecast import fastest_by_kind
from solver.families.norm_activation_verdict import PAYS, verdict
from solver.objective import Pareto, objective_from_dict
from solver.pick import best_rows, find_row, pareto_front, row_values
from solver.problem import Problem
from solver.proof import Prover
from solver.question import NormQuestion
from solver.simulator import simulate
from solver.space import Pricing, Space, build_space
from solver.space import tabulate as tabulated
from solver.table import MAPPINGS
from tests.norm_profiles import INVENTED, invented

DEVICE = invented()
PROBLEMS = [
    NormProblem(65536, 1024, "fp32", "layer", "poly", 32),
    NormProblem(32768, 4096, "bf16", "rms", "gelu"),
    NormProblem(700, 12288, "fp16", "layer", "poly", 512),
    NormProblem(3, 1000, "bf16", "rms", "silu"),
    NormProblem(5000, 333, "fp32"),
]
TIED = NormProblem(63, 768, "fp32", "layer", "poly", 64)
"""Whose fastest specialised kernels take alike."""

FIRST_S = 0.25
"""Of a question whose width is new, proof included: eight times what it takes on an idle core."""

RANKED = (
    {"kind": "lexicographic", "order": ["time", "wait"]},
    {"kind": "lexicographic", "order": ["smem", "time"]},
    {"kind": "weighted", "weights": {"time": 1, "smem": 0.05, "registers": 0.01}},
)


@pytest.fixture(scope="module")
def prover() -> Prover:
    return Prover()


@pytest.fixture
def engine(prover: Prover, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine for which every device has the invented constants."""
    monkeypatch.setattr("solver.engine.load_profile", invented)
    return Engine(prover)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_a_pick_is_proved_and_claims_beside_it_are_not(
    problem: NormProblem, prover: Prover
) -> None:
    table = tabulate(problem, DEVICE)
    best = best_rows(table)[0]
    proof = prover.prove(Space.whole(table), [best])
    assert proof.configurations == table.size
    assert proof.refuted_by_group + proof.refuted_exactly + proof.finalists == table.size
    for field in ("time", "wait"):
        for step in (-1, 1):
            wrong = dataclasses.replace(best, **{field: getattr(best, field) + step})
            with pytest.raises(ProofError):
                prover.prove(Space.whole(table), [wrong])


def test_any_other_row_is_refused_as_the_pick(prover: Prover) -> None:
    table = tabulate(PROBLEMS[0], DEVICE)
    for row in best_rows(table, 20)[1:]:
        with pytest.raises(ProofError):
            prover.prove(Space.whole(table), [row])


@pytest.mark.parametrize("parameter", ["load", "math", "latency", "fixed", "store", "iterations"])
def test_a_row_made_better_behind_the_picks_back_is_found(parameter: str, prover: Prover) -> None:
    """Planted: some other configuration becomes the pick's twin, one tick or iteration better."""
    table = tabulate(PROBLEMS[1], DEVICE)
    best = best_rows(table)[0]
    others = np.flatnonzero(np.arange(table.size) != best.work)
    for victim in np.random.default_rng(1).choice(others, 3, replace=False).tolist():

        def twin(column: Any, less: int = 0, victim: int = victim) -> Any:
            changed = column.copy()
            changed[victim] = column[best.work] - less
            return changed

        works = {f.name for f in dataclasses.fields(table.works)} - set(MAPPINGS)
        kernels = {f.name for f in dataclasses.fields(table.kernels)} - {"config"}
        planted = dataclasses.replace(
            table,
            works=dataclasses.replace(
                table.works, **{c: twin(getattr(table.works, c), c == parameter) for c in works}
            ),
            kernels=dataclasses.replace(
                table.kernels, **{c: twin(getattr(table.kernels, c)) for c in kernels}
            ),
            slots_max=twin(table.slots_max),
        )
        assert best_rows(planted)[0].work == victim, "the plant must win"
        with pytest.raises(ProofError):
            prover.prove(Space.whole(planted), [best])


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("objective", RANKED, ids=str)
def test_brute_force_finds_the_same_first_rows(
    problem: NormProblem, objective: dict[str, Any]
) -> None:
    table = tabulate(problem, DEVICE)
    ranking = objective_from_dict(objective).ranking  # type: ignore[union-attr]
    found = [(row.config, row.values) for row in best_rows(table, 5, ranking)]
    played = oracle.first_rows(table, objective, 5)
    assert found == [(p.config, p.values) for p in played]


def test_brute_force_finds_the_same_front_and_z3_proves_it(prover: Prover) -> None:
    table = tabulate(PROBLEMS[2], DEVICE)
    pareto = Pareto(("time", "smem"))
    front = pareto_front(table, pareto)
    played = oracle.front(table, pareto.to_dict())
    assert [row.config for row in front.points] == [row.config for row in played]
    proof = prover.prove_front(Space.whole(table), front, pareto)
    assert proof.configurations == table.size


def test_the_closed_form_is_the_simulator_over_a_whole_space() -> None:
    table = tabulate(PROBLEMS[4], DEVICE)
    every = np.arange(table.size)
    values = oracle.values(table)
    assert np.array_equal(row_values(table, every, every)[:2], [values.time, values.wait])


def test_the_timeline_of_the_proof_is_the_simulators(prover: Prover) -> None:
    table = tabulate(PROBLEMS[0], DEVICE)
    best = best_rows(table)[0]
    proof = prover.prove(Space.whole(table), [best])
    pipeline = table.pipeline([best.work], table.kernels.slots[[best.kernel]])
    run = simulate(
        **{name: int(getattr(pipeline, name)[0]) for name in pipeline.__slots__},
        keep_events=len(proof.timeline),
    )
    assert proof.timeline == run.events


def test_a_configuration_is_found_by_its_fields() -> None:
    table = tabulate(PROBLEMS[0], DEVICE)
    for row in best_rows(table, 12):
        assert find_row(table, row.config) == row


STARVED = invented(memory_latency_us=6.0, block_start_us=30.0, refill_cycles=1e5)


def test_the_pick_is_specialised_only_where_that_beats_the_strong_kernel() -> None:
    kinds = set()
    for device in (DEVICE, STARVED):
        for problem in PROBLEMS:
            table = tabulate(problem, device)
            pick = best_rows(table)[0]
            found = verdict(problem, "cold", table, pick.work, device)
            kinds.add(found["kind"])
            assert found["kind"] == pick.config.kind
            specialised = found["specialised_time_us"]
            if found["kind"] == "specialised":
                assert pick.time / 1e4 == specialised <= found["strong_time_us"]
            else:
                assert specialised is None or specialised >= pick.time / 1e4
    assert {"strong", "specialised"} <= kinds


@pytest.mark.parametrize("cache", ["cold", "warm"])
@pytest.mark.parametrize("device", [DEVICE, STARVED], ids=["usual", "starved"])
@pytest.mark.parametrize("problem", [*PROBLEMS, NormProblem(64, 4096), NormProblem(4096, 1024)])
def test_whether_specialising_pays_is_said_by_the_rule_of_advice(
    problem: NormProblem, device: DeviceProfile, cache: str
) -> None:
    table = tabulate(problem, device, cold=cache == "cold")
    pick = best_rows(table)[0]
    found = verdict(problem, cache, table, pick.work, device)
    said = advise_problem(problem, device, cache)
    words = found["specialising"]
    assert found["advice"] == said.advice.verdict
    assert words.startswith(f"{PAYS[said.advice.verdict]}: ")
    other = (found["kind"] == "specialised") != (found["advice"] == "specialise")
    assert words.endswith("is first by the model") is (other and "no specialised" not in words)
    for reason in said.advice.reasons:
        if reason.reason in VETOES and "no specialised" not in words:
            assert reason.words[1:-1] in words


def test_every_verdict_is_said_of_some_problem() -> None:
    said = set()
    for rows, width, dtype, device in (
        (65536, 1024, "fp32", DEVICE),
        (65536, 12288, "fp16", STARVED),
        (16384, 4096, "bf16", DEVICE),
        (16384, 12288, "fp16", DEVICE),
        (700, 12288, "fp16", DEVICE),
    ):
        problem = NormProblem(rows, width, dtype, "layer", "poly", 32)
        table = tabulate(problem, device)
        said.add(verdict(problem, "cold", table, best_rows(table)[0].work, device)["advice"])
    assert said == set(PAYS)


@pytest.mark.parametrize("problem", [*PROBLEMS, TIED], ids=str)
def test_the_best_of_a_kind_is_what_would_be_answered_were_there_no_other(
    problem: NormProblem,
) -> None:
    """Of kernels that take alike the default ranking decides, beside the answer as in it."""
    table = tabulate(problem, DEVICE)
    ties = 0
    for kind, work in fastest_by_kind(table).items():
        mine = table.works.config["kind"] == WORDS["kind"].index(kind)
        first, *others = best_rows(table.restrict(mine, mine), 2)
        assert table.config(work, work) == first.config
        ties += any(first.time == other.time for other in others)
    assert ties or problem != TIED


def test_specialising_is_said_of_the_best_of_both_whatever_is_answered() -> None:
    """Every kernel of a space, as if an objective had put it first."""
    for problem in (PROBLEMS[2], NormProblem(1000, 1000)):
        table = tabulate(problem, DEVICE)
        every = np.arange(table.size)
        times = row_values(table, every, every)[0]
        for work in np.random.default_rng(2).choice(table.size, 40).tolist():
            found = verdict(problem, "cold", table, work, DEVICE)
            assert found["specialising"].startswith(f"{PAYS[found['advice']]}: ")
            if times[work] > times.min():
                assert "is first by the objective that was asked for" in found["specialising"]


def test_long_times_are_written_out() -> None:
    problem = NormProblem(2**31 - 1, 512)
    table = tabulate(problem, DEVICE)
    words = verdict(problem, "cold", table, best_rows(table)[0].work, DEVICE)["specialising"]
    assert re.search(r"takes \d,\d{3},\d{3} µs against \d,\d{3},\d{3} µs", words), words


def test_what_there_is_not_is_said() -> None:
    problem = NormProblem(5000, 333)
    table = tabulate(problem, DEVICE)
    found = verdict(problem, "cold", table, best_rows(table)[0].work, DEVICE)
    assert (found["kinds"]["ring"], found["specialised_time_us"]) == (None, None)
    assert found["advice"] == "no"
    assert found["specialising"].startswith("specialising does not pay: no specialised kernel is")


def test_an_answer_says_kind_strong_time_and_proof(engine: Engine) -> None:
    body = engine.optimize(NormQuestion(PROBLEMS[0], top_k=3)).body
    assert body["problem"] == PROBLEMS[0].to_dict()
    assert NormConfig.from_dict(body["config"]).kind == body["kind"]
    assert body["strong_time_us"] >= body["predicted"]["time_us"]
    assert body["proof"]["status"] == "optimal"
    assert body["proof"]["scope"]["configurations"] == body["proof"]["space"]["legal"]
    assert len(body["alternatives"]) == 2
    assert body["device"]["constants_by_provenance"] == {"derived": len(INVENTED)}
    parts = sum(body["predicted"]["breakdown"].values())
    assert parts == pytest.approx(body["predicted"]["time_us"])
    again = engine.optimize(NormQuestion(PROBLEMS[0], top_k=3)).body
    assert body == again


def test_a_time_limit_leaves_a_bound(engine: Engine) -> None:
    proof = engine.optimize(NormQuestion(PROBLEMS[0], time_limit_ms=1)).body["proof"]
    assert proof["status"] == "timeout"
    assert 0 <= proof["gap"] < 1


def test_a_device_without_constants_and_what_is_of_products_alone_are_refused(
    prover: Prover,
) -> None:
    with pytest.raises(Unsupported, match=r"python -m bench\.norm_fit"):
        Engine(prover).optimize(NormQuestion(PROBLEMS[0], device="a6000"))
    with pytest.raises(Unsupported, match="model"):
        tabulated(PROBLEMS[0], DEVICE, "paper")
    with pytest.raises(Unsupported, match=r"constraints\.sms"):
        tabulated(PROBLEMS[0], DEVICE, "calibrated", grids=np.array([8]))


def test_no_certificate_is_made_of_it(engine: Engine) -> None:
    solution = engine.optimize(NormQuestion(PROBLEMS[0])).solution
    with pytest.raises(Unsupported, match="sm90_gemm"):
        certificate(solution)


def test_times_beyond_the_ticks_are_refused_by_the_field_of_rows() -> None:
    slow = invented(hbm_bytes_per_us=1.6e-2)
    with pytest.raises(InvalidProblem, match=r"^rows: "):
        build_space(NormProblem(2**31 - 1, 512), slow, Pricing(), NONE)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("proof", {"proof": "some"}),
        ("cache", {"cache": "hot"}),
        ("top_k", {"top_k": 0}),
        ("top_k", {"top_k": 2, "objective": Pareto(("time",))}),
        ("time_limit_ms", {"time_limit_ms": 0}),
    ],
)
def test_a_wrong_question_names_its_field(field: str, change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        NormQuestion(PROBLEMS[0], **change)
    assert caught.value.field == field


def test_products_are_priced_as_ever() -> None:
    device: DeviceProfile = DEVICE
    table = tabulated(Problem(512, 512, 512), device, "calibrated")
    assert table.family == "sm90_gemm"
    assert table.decode is None


@pytest.mark.alone
def test_the_first_question_of_a_width_is_answered_as_fast_as_any(engine: Engine) -> None:
    engine.optimize(NormQuestion(NormProblem(4096, 24)))  # what a process builds once
    for dtype in ELEMENT_BYTES:
        for width in (1, 32, 504, 1001, 2040, 20000, 65528):
            question = NormQuestion(NormProblem(4096, width, dtype))
            begun = time.perf_counter()
            engine.optimize(question)
            took_s = time.perf_counter() - begun
            assert took_s < FIRST_S, (dtype, width)
