"""The norm_activation kernels on the GPU: numerics, every way of handing chunks over, limits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
from rich.progress import Progress

from kernels.bench import precompile
from kernels.norm.bench import compile_into_cache
from kernels.norm.compile import compile_key
from kernels.norm.run_case import Case
from kernels.process import OutcomeKind, Worker, run_in_process
from solver.device import DeviceProfile, load_profile
from solver.families import norm_activation_block as block
from solver.families.norm_activation import NormConfig, NormProblem
from tests.gpu import norm_cases, norm_functions

pytestmark = pytest.mark.gpu
START_S = 60.0
BATCH = 64  # cases in a call: one that hangs is told by what was reported last
BATCH_S = 60.0


@pytest.fixture(scope="module")
def profile(device: str) -> DeviceProfile:
    return load_profile(device)


def compile_all(cases: Sequence[Case], profile: DeviceProfile) -> None:
    """Fill the cache beside one another: kernels of some hundred keys in a few seconds."""
    keys = list({compile_key(case.problem, case.config): None for case in cases})
    build = partial(compile_into_cache, arch=profile.arch)
    with Progress(disable=True) as progress:
        assert precompile(keys, progress, (build,)) == {}


def check(worker: Worker, cases: Sequence[Case], profile: DeviceProfile) -> None:
    assert cases
    compile_all(cases, profile)
    reached: list[str] = []

    def on_report(facts: dict[str, str]) -> None:
        reached.append(facts["case"])

    for first in range(0, len(cases), BATCH):
        outcome = worker.call(
            norm_functions.wrong_cases,
            (list(cases[first : first + BATCH]),),
            START_S + BATCH_S,
            on_report,
        )
        assert outcome.kind is OutcomeKind.OK, (outcome, reached[-1:])
        assert outcome.value == []


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_every_width_is_right_with_every_kind(
    worker: Worker, profile: DeviceProfile, dtype: str
) -> None:
    check(worker, list(norm_cases.numeric_cases(dtype, profile)), profile)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_every_transformation_is_right_whatever_the_rows_hold(
    worker: Worker, profile: DeviceProfile, dtype: str
) -> None:
    check(worker, list(norm_cases.every_activation(dtype, profile)), profile)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(4))
def test_no_way_of_handing_chunks_over_hangs_or_gives_other_bits(
    worker: Worker, profile: DeviceProfile, part: int
) -> None:
    check(worker, norm_cases.protocol_cases(profile)[part::4], profile)


def test_draws_from_the_whole_space_are_right(worker: Worker, profile: DeviceProfile) -> None:
    check(worker, norm_cases.space_cases(profile, 400), profile)


def test_large_rows_by_the_billion_bytes_are_right(worker: Worker, profile: DeviceProfile) -> None:
    streamed = NormConfig(
        "specialised", 8, 1, team=8, depth=4, chunk_bytes=16384, hold="reload", rounds=0
    )
    cases = [
        Case(NormProblem(2**16 + 1, 65536, "bf16", "rms", "silu"), streamed),
        Case(
            NormProblem(2**16 + 1, 49152, "bf16", "rms", "silu"), NormConfig("strong", 16, team=16)
        ),
    ]
    check(worker, cases, profile)


def test_blocks_on_an_sm_are_what_the_driver_counts(worker: Worker, profile: DeviceProfile) -> None:
    cases = norm_cases.space_cases(profile, 120)
    reserved = []
    for case in cases:
        own = block.smem_bytes(case.problem, case.config)
        for blocks in (1, 2, 4):
            smem = block.reserved_for(blocks, own, profile.limit("smem_per_sm_bytes"))
            if smem >= 0:
                options = {"reserved_smem_bytes": smem}
                reserved.append(Case(case.problem, case.config, options))
    compile_all(cases, profile)
    outcome = worker.call(norm_functions.blocks_on_an_sm, (cases + reserved,), 120.0)
    assert outcome.kind is OutcomeKind.OK, outcome
    assert [a for a, b in outcome.value] == [b for a, b in outcome.value]
    assert {a for a, b in outcome.value} >= {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("field", "value"),
    [("threads", 256), ("width", 2048), ("depth", 3), ("chunks_per_unit", 2), ("depth", 0)],
)
def test_a_launch_that_contradicts_its_kernel_traps(
    profile: DeviceProfile, field: str, value: int
) -> None:
    config = NormConfig("specialised", 4, 1, groups=4, depth=2, chunk_bytes=4096, rounds=0)
    case = Case(NormProblem(64, 1024, "fp32"), config)
    outcome = run_in_process(norm_functions.launch_contradicting, (case, field, value), START_S)
    assert outcome.kind is OutcomeKind.OK, outcome
    assert "CUDA_ERROR" in outcome.value
