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
from solver.families.norm_activation_cost import tabulate
from solver.families.norm_activation_verdict import fastest_by_kind, verdict
from solver.objective import Pareto, objective_from_dict
from solver.pick import best_rows, find_row, pareto_front, row_values
from solver.problem import Problem
from solver.proof import Prover
from solver.question import NormQuestion
from solver.simulator import simulate
from solver.space import Pricing, Space, build_space
from solver.space import tabulate as tabulated
from solver.table import MAPPINGS, Table
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


def only(table: Table, *kinds: str) -> Table:
    """A table with rows of some kinds alone."""
    kept = [row for kind, row in fastest_by_kind(table).items() if kind in kinds]
    mask = np.isin(np.arange(table.size), kept)
    return table.restrict(mask, mask)


def test_the_pick_is_specialised_only_where_that_beats_the_strong_kernel() -> None:
    kinds = set()
    starved = invented(memory_latency_us=6.0, block_start_us=30.0, refill_cycles=1e5)
    for device in (DEVICE, starved):
        for problem in PROBLEMS:
            table = tabulate(problem, device)
            pick = best_rows(table)[0]
            found = verdict(table, pick.work, device)
            kinds.add(found["kind"])
            assert found["kind"] == pick.config.kind
            if found["kind"] == "specialised":
                assert pick.time / 1e4 == found["specialised_time_us"] <= found["strong_time_us"]
                ring = found["kinds"]["ring"]
                ties = ring is not None and ring["over_answer"] == 1
                said = "specialising does not pay: " if ties else "specialising pays: "
                assert found["specialising"].startswith(said)
            else:
                assert found["specialising"].startswith("specialising does not pay: ")
                specialised = found["specialised_time_us"]
                assert specialised is None or specialised >= pick.time / 1e4
    assert {"strong", "specialised"} <= kinds


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
        divided = table.works.config["kind"] == WORDS["kind"].index("specialised")
        pays = times[divided].min() < times[~divided].min()
        for work in np.random.default_rng(2).choice(table.size, 40).tolist():
            words = verdict(table, work, DEVICE)["specialising"]
            assert words.startswith(f"specialising {'pays' if pays else 'does not pay'}: ")
            if times[work] > times.min():
                assert "is first by the objective that was asked for" in words


def test_long_times_are_written_out() -> None:
    table = tabulate(NormProblem(2**31 - 1, 512), DEVICE)
    words = verdict(table, best_rows(table)[0].work, DEVICE)["specialising"]
    assert re.search(r"takes \d,\d{3},\d{3} µs against \d,\d{3},\d{3} µs", words), words


def test_what_there_is_not_is_said() -> None:
    table = tabulate(PROBLEMS[0], DEVICE)
    roles = only(table, "specialised")
    assert verdict(roles, 0, DEVICE)["strong_time_us"] is None
    assert "no kernel of like warps is legal" in verdict(roles, 0, DEVICE)["specialising"]
    beside_rings = only(table, "specialised", "ring")
    words = verdict(beside_rings, 0, DEVICE)["specialising"]
    assert "what is left" not in words
    assert "of the best ring one" in words
    alike = only(table, "strong", "plain")
    assert "no specialised kernel is legal" in verdict(alike, 0, DEVICE)["specialising"]


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
