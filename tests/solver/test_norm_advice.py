"""Advice for problems of norm_activation, by figures of its kernel of like warps."""

from __future__ import annotations

import pytest

from solver.device import load_profile
from solver.errors import InvalidProblem, Unsupported
from solver.families.norm_activation import ACTIVATIONS, NORMS, NormProblem
from solver.families.norm_activation_advice import advise_problem

H200 = load_profile("h200")


def why(problem: NormProblem, cache: str = "cold") -> set[str]:
    return {reason.reason for reason in advise_problem(problem, H200, cache).advice.reasons}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("width", [1024, 4096, 16384])
@pytest.mark.parametrize("degree", [0, 8, 32, 64, 128, 512])
def test_where_a_strong_kernel_was_measured_to_win_it_is_kept(
    dtype: str, width: int, degree: int
) -> None:
    element = 4 if dtype == "fp32" else 2
    problem = NormProblem(2**29 // width // element, width, dtype, activation="poly", degree=degree)
    found = advise_problem(problem, H200)
    advice, config = found.advice, found.config
    assert config.kind == "strong"
    assert advice.verdict == "no"
    assert "latency_hidden" in {reason.reason for reason in advice.reasons}
    assert advice.figures.written_bytes == 2**29
    assert advice.source == "figures"


def test_a_warm_problem_that_fits_is_served_by_the_l2() -> None:
    assert "served_by_l2" in why(NormProblem(4096, 1024), "warm")
    assert "served_by_l2" not in why(NormProblem(4096, 1024))
    assert "served_by_l2" not in why(NormProblem(131072, 1024), "warm")


def test_a_few_rows_are_too_short() -> None:
    assert why(NormProblem(64, 1024)) >= {"short_kernel", "too_little_data"}


def test_a_row_that_no_team_holds_is_a_plain_kernels_and_undecided() -> None:
    found = advise_problem(NormProblem(2048, 65535, "bf16"), H200)
    advice, config = found.advice, found.config
    assert config.kind == "plain"
    assert advice.verdict == "undecided"
    assert "bytes_in_flight_per_warp" in advice.missing
    assert advice.figures.read_bytes == 3 * 2049 * 65535 * 2


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_transformation_has_its_arithmetic(norm: str, activation: str) -> None:
    problem = NormProblem(100, 1000, norm=norm, activation=activation)
    assert problem.fmas == 100_000 * (
        {"layer": 6, "rms": 4}[norm]
        + {"gelu": 25, "gelu_tanh": 9, "silu": 5, "poly": 2}[activation]
    )
    assert NormProblem(2, 3, activation="poly", degree=7).fmas == 2 * 3 * (6 + 2 + 7)


def test_no_rows_and_other_vendors_are_refused() -> None:
    with pytest.raises(InvalidProblem, match="rows: must be at least 1"):
        advise_problem(NormProblem(0, 8), H200, "cold")
    with pytest.raises(Unsupported, match="device"):
        advise_problem(NormProblem(8, 8), load_profile("mi300x"), "cold")
