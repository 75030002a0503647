"""The debug build on the GPU: a kernel that hangs is told where."""

from __future__ import annotations

import pytest

from bench.gpu_hangs import watched
from bench.hang_plants import CONFIG, PLANTS, fields_of
from kernels.hang import Verdict
from kernels.process import OutcomeKind, Worker, run_in_process
from kernels.verify import Reason, VerificationRequest, verify
from kernels.watch import watch
from solver.config import Config
from solver.problem import Problem

START_S = 120.0


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_hang_is_told_by_barrier_stage_and_warps(name: str) -> None:
    outcome = watched(name)
    assert outcome.kind is OutcomeKind.OK, outcome
    expected = PLANTS[name].expected()
    assert fields_of(outcome.value.to_dict()) == expected, outcome.value.text


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        Config("sm90_gemm", 128, 128, 64, 4, math_warpgroups=2, register_split=1, cluster_m=2),
        Config("sm90_gemm", 64, 64, 64, 4, mma_in_flight=1, dma_warps=2, split_k=3),
    ],
)
def test_a_kernel_that_does_not_hang_is_said_to_end(config: Config) -> None:
    outcome = run_in_process(watch, (Problem(512, 512, 1024), config), START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    assert outcome.value.verdict is Verdict.ENDED, outcome.value.text


def test_a_verification_killed_early_says_that_the_kernel_ends() -> None:
    with Worker() as worker:
        request = VerificationRequest(Problem(512, 512, 512), CONFIG)
        verification = verify(request, 0.2, worker)
        assert verification.reason is Reason.TIMEOUT
        assert verification.hang is not None
        assert verification.hang["verdict"] == Verdict.ENDED
        assert verify(request, START_S, worker).passed
