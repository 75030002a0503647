"""Verifications of norm_activation on the GPU: numerics, every kind timed in turn, the verdict."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kernels.norm.verdict import TOLERANCE, VERIFIED, Entrant
from kernels.norm.verify import NormVerification, NormVerificationRequest, verify_norm
from kernels.process import Worker
from kernels.protocol import NORM_VERIFY
from kernels.verify import Reason
from solver.device import load_profile
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_cost import tabulate
from solver.families.norm_activation_forecast import fastest_by_kind

pytestmark = pytest.mark.gpu
DEADLINE_S = 120.0
PROBLEMS = [
    NormProblem(65536, 1024, "fp32", activation="poly", degree=32),
    NormProblem(16384, 4096, "bf16", "rms", "silu"),
    NormProblem(8192, 4096, "fp16", "layer", "gelu_tanh"),
    NormProblem(1000, 333, "bf16"),
    NormProblem(17, 1001, "fp32", "rms", "gelu"),
    NormProblem(4097, 257, "fp16", activation="poly", degree=3),
    NormProblem(3, 65535, "fp32"),
    NormProblem(1, 1, "bf16"),
    NormProblem(64, 65536, "bf16", activation="poly", degree=512),
]


def entrants(problem: NormProblem, device: str) -> tuple[Entrant, ...]:
    """The best of every kind by the model, the pick first. Of no rows, those of one."""
    table = tabulate(replace(problem, rows=max(1, problem.rows)), load_profile(device))
    best = {kind: table.config(work, work) for kind, work in fastest_by_kind(table).items()}
    first = "strong" if "strong" in best else "plain"
    chosen = [Entrant((VERIFIED, first), best.pop(first), 1.0)]
    return (*chosen, *(Entrant((kind,), config, 1.0) for kind, config in best.items()))


def verified(worker: Worker, problem: NormProblem, *running: Entrant) -> NormVerification:
    request = NormVerificationRequest(problem, running)
    return verify_norm(request, DEADLINE_S, worker)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_every_kind_is_right_and_timed_in_turn(
    worker: Worker, device: str, problem: NormProblem
) -> None:
    running = entrants(problem, device)
    found = verified(worker, problem, *running)
    assert found.passed, found.details
    assert found.rel_error is not None
    assert found.rel_error < 5e-3
    assert len(found.entrants) == len(running)
    for each in found.entrants:
        assert each["elements"] == problem.rows * problem.width
        assert 0 < each["median_us"] <= each["p95_us"] <= each["p99_us"]
        assert each["tail_ratio_low"] <= each["tail_ratio"] <= each["tail_ratio_high"]
        assert each["ratio_low"] <= each["ratio_to_verified"] <= each["ratio_high"]
        assert math.isfinite(each["worst"])
        assert each["worst"] <= 1
    assert found.verdict is not None
    if running[0].roles[1] == "strong":
        assert found.verdict["to_strong"]["ratio"] == 1.0
    assert found.sets is not None
    assert found.sets >= 2


def test_no_rows_are_right_and_take_no_time(worker: Worker, device: str) -> None:
    empty = NormProblem(0, 1024, "fp16")
    found = verified(worker, empty, *entrants(empty, device))
    assert found.passed, found.details
    assert (found.median_us, found.verdict) == (None, None)


def test_a_plain_kernel_is_surely_slower_than_the_strong_one_and_fails(
    worker: Worker, device: str
) -> None:
    problem = PROBLEMS[0]
    strong, *others = entrants(problem, device)
    plain = next(each for each in others if each.roles == ("plain",))
    found = verified(
        worker,
        problem,
        replace(plain, roles=(VERIFIED, "plain")),
        replace(strong, roles=("strong",)),
    )
    assert found.reason is Reason.SLOWER_THAN_STRONG
    assert found.verdict is not None
    assert found.verdict["to_strong"]["low"] > 1 + TOLERANCE


def test_a_kernel_is_as_fast_as_itself(worker: Worker, device: str) -> None:
    strong = entrants(PROBLEMS[0], device)[0]
    found = verified(worker, PROBLEMS[0], strong, replace(strong, roles=("specialised",)))
    assert found.verdict is not None
    assert found.verdict["specialised_to_strong"]["ratio"] == pytest.approx(1.0, abs=0.01)


def test_an_illegal_configuration_is_a_reason_not_a_launch(worker: Worker) -> None:
    illegal = Entrant((VERIFIED,), NormConfig("strong", 99))
    assert verified(worker, PROBLEMS[0], illegal).reason is Reason.ILLEGAL


def test_a_warm_launch_is_not_slower_than_a_cold_one(worker: Worker, device: str) -> None:
    problem = NormProblem(2048, 1024, "bf16")
    strong = entrants(problem, device)[0]
    cold, warm = (
        verify_norm(
            NormVerificationRequest(problem, (strong,), protocol=NORM_VERIFY.with_cache(cache)),
            DEADLINE_S,
            worker,
        )
        for cache in ("cold", "warm")
    )
    assert cold.median_us is not None
    assert warm.median_us is not None
    assert warm.median_us <= 1.02 * cold.median_us
    assert (warm.sets, cold.sets is not None and cold.sets > 1) == (1, True)
