"""Advice for problems of norm_activation: by figures of a kernel, and by the family's model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from solver.advice import thresholds
from solver.advice.thresholds import Range
from solver.device import load_profile
from solver.errors import InvalidInput, InvalidProblem, Unsupported
from solver.families.norm_activation import ACTIVATIONS, NORMS, NormProblem
from solver.families.norm_activation_advice import advise_problem, verdict_of
from solver.families.norm_activation_columns import norm_rows
from solver.families.norm_activation_forecast import forecasts
from solver.families.norm_activation_raced import ranges
from solver.families.norm_activation_rivals import RIVALS
from tests.norm_profiles import bare, invented

BARE, MODELLED = bare(), invented()
H200 = BARE


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


def test_what_stages_take_is_not_called_the_launchs_time() -> None:
    reasons = advise_problem(NormProblem(5, 5), H200).advice.reasons
    (words,) = (each.words for each in reasons if each.reason == "short_kernel")
    assert "launch takes" not in words
    assert words.startswith("Its stages take at most 0.0")


def test_a_row_that_no_team_holds_is_a_plain_kernels_and_undecided() -> None:
    found = advise_problem(NormProblem(2048, 65535, "bf16"), H200)
    advice, config = found.advice, found.config
    assert config.kind == "plain"
    assert advice.verdict == "undecided"
    assert "bytes_in_flight_per_warp" in advice.missing
    assert advice.figures.read_bytes == 3 * 2049 * 65535 * 2


def test_a_plain_kernel_reads_its_rows_once_less_where_there_is_no_mean() -> None:
    advice = advise_problem(NormProblem(2048, 65535, "bf16", "rms"), H200).advice
    assert advice.figures.read_bytes == 2 * 2049 * 65535 * 2


def test_figures_count_the_registers_and_warps_that_the_model_counts() -> None:
    problem = NormProblem(65536, 4096)
    for warps in (None, 8):
        found = advise_problem(problem, H200, warps_per_sm=warps)
        rows = norm_rows(problem, [found.config], H200)
        assert found.advice.figures.registers_per_thread == rows.registers[0]
        resident = found.advice.figures.resident_warps
        assert resident == (None if warps is None else 8)


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
    with pytest.raises(InvalidProblem, match="rows: must be between 1 and"):
        advise_problem(NormProblem(0, 8), H200, "cold")
    with pytest.raises(Unsupported, match="device"):
        advise_problem(NormProblem(8, 8), load_profile("mi300x"), "cold")


POLY = NormProblem(65536, 1024, "fp32", "layer", "poly", 8)


BESIDE = replace(POLY, degree=24)
"""Not raced, between two that were."""
ALONE = replace(POLY, width=2048, rows=32768)
"""Of a width that was never raced."""


@pytest.mark.parametrize("rival", RIVALS)
@pytest.mark.parametrize("warps", [None, 4, 8, 16])
@pytest.mark.parametrize(
    ("problem", "source", "basis"), [(BESIDE, "races", "between"), (ALONE, "model", "model")]
)
def test_forecasts_decide_where_a_device_has_constants(
    rival: str, warps: int | None, problem: NormProblem, source: str, basis: str
) -> None:
    found = advise_problem(problem, MODELLED, warps_per_sm=warps, rival=rival)
    times = {each.config.kind: each.time_us for each in found.kernels}
    gain = min(times[kind] for kind in RIVALS[rival] if kind in times) / times["specialised"]
    off = ranges(basis)[rival]
    advice = found.advice
    assert advice.source == source
    assert advice.verdict == verdict_of(gain, off)
    assert advice.gain is not None
    assert advice.gain.low == pytest.approx(gain * off.low)
    assert advice.gain.expected == pytest.approx(gain * off.expected)
    assert advice.gain.high == pytest.approx(gain * off.high)
    assert found.config.kind in RIVALS[rival]
    said = {reason.reason for reason in advice.reasons}
    assert ("slower" in said) == (advice.verdict == "no")
    assert advice.missing == (("verification",) if advice.verdict == "undecided" else ())


@pytest.mark.parametrize(
    ("gain", "off", "verdict"),
    [
        (1.031, (0.95, 1.0, 1.05), "undecided"),
        (1.033, (0.95, 1.0, 1.05), "specialise"),
        (0.97, (0.95, 1.0, 1.05), "no"),
        (0.98, (0.95, 1.0, 1.05), "undecided"),
        (1.001, (0.99, 1.0, 1.01), "specialise"),
        (0.999, (0.99, 1.0, 1.01), "no"),
        (1.001, (0.99, 0.995, 1.01), "no"),
    ],
)
def test_a_verdict_is_given_where_the_opposite_is_seldom(
    gain: float, off: tuple[float, float, float], verdict: str
) -> None:
    """Here a tenth below ``low`` and a tenth above ``high``, and 2 % a tie."""
    assert verdict_of(gain, Range(*off)) == verdict


OTHERS: dict[str, Any] = {"norm": "rms", "rows": 4096, "dtype": "fp16"}


def test_races_are_beside_problems_of_their_shape_alone() -> None:
    cases = {
        "races": [POLY, BESIDE, replace(POLY, rows=POLY.rows // 2), replace(POLY, degree=300)],
        "model": [
            ALONE,
            replace(POLY, degree=1024),
            *(replace(POLY, **{name: value}) for name, value in OTHERS.items()),
        ],
    }
    for source, problems in cases.items():
        for problem in problems:
            assert advise_problem(problem, MODELLED).advice.source == source, problem
    assert advise_problem(POLY, MODELLED, "warm").advice.source == "races"  # outgrows the L2
    small = replace(POLY, rows=4096)
    assert advise_problem(small, MODELLED, "warm").advice.source == "model"
    assert advise_problem(POLY, MODELLED, warps_per_sm=12).advice.source == "model"
    assert advise_problem(POLY, invented("h100_sxm")).advice.source == "model"


def test_without_a_model_crowded_warps_are_figures_of_the_kernel() -> None:
    found = advise_problem(POLY, BARE, warps_per_sm=8)
    assert found.advice.source == "figures"
    assert found.kernels == ()
    assert found.advice.figures.resident_warps == 8
    assert found.advice.verdict != "specialise" or found.advice.reasons == ()
    free = advise_problem(POLY, BARE).advice
    assert free.figures.resident_warps is None
    plain = advise_problem(POLY, BARE, rival="plain")
    assert plain.config.kind == "plain"
    assert plain.advice.figures.read_bytes == 3 * 65537 * 4096


@pytest.mark.parametrize(
    ("problem", "cache", "rival", "reason"),
    [
        (NormProblem(64, 1024), "cold", "like_warps", "short_kernel"),
        (NormProblem(64, 1024), "cold", "plain", "too_little_data"),
        (NormProblem(4096, 1024), "warm", "plain", "served_by_l2"),
    ],
)
def test_the_model_does_not_overrule_what_holds_without_it(
    problem: NormProblem, cache: str, rival: str, reason: str
) -> None:
    advice = advise_problem(problem, MODELLED, cache, rival=rival, warps_per_sm=4).advice
    assert advice.verdict == "no"
    assert reason in {each.reason for each in advice.reasons}


def test_what_figures_have_against_a_verdict_by_times_is_told_beside_it() -> None:
    """Steps of the figures may say no where times say yes, or don't say: never without a word."""
    told = set()
    for problem in (POLY, BESIDE, ALONE, replace(POLY, degree=512), NormProblem(64, 1024)):
        for warps in (None, 4, 8):
            for rival in RIVALS:
                found = advise_problem(problem, MODELLED, warps_per_sm=warps, rival=rival)
                bare = advise_problem(problem, BARE, warps_per_sm=warps, rival=rival)
                against = [reason.reason for reason in bare.advice.reasons]
                overruled = found.advice.verdict != "no" and bool(against)
                assert len(found.notes) == overruled
                assert not overruled or all(reason in found.notes[0] for reason in against)
                assert bare.notes == ()
                told.add((found.advice.verdict, overruled))
    assert told >= {("specialise", True), ("specialise", False), ("no", False)}


@pytest.mark.parametrize("rows", [1, 7, 132, 1000])
@pytest.mark.parametrize("width", [8, 1024, 4096])
@pytest.mark.parametrize("warps", [None, 4])
def test_a_launch_of_a_few_microseconds_is_never_divided(
    rows: int, width: int, warps: int | None
) -> None:
    for rival in RIVALS:
        advice = advise_problem(
            NormProblem(rows, width), MODELLED, warps_per_sm=warps, rival=rival
        ).advice
        assert advice.present_us is not None
        assert advice.verdict == "no" or advice.present_us.expected > thresholds.SHORT.value


def test_one_long_row_is_not_called_a_short_kernel() -> None:
    """One SM does all of it: the device's rates are not its."""
    found = advise_problem(NormProblem(1, 65536), MODELLED).advice
    assert "short_kernel" not in {reason.reason for reason in found.reasons}
    assert found.present_us is not None
    assert found.present_us.expected > thresholds.SHORT.value


def test_rows_that_only_a_plain_kernel_takes_are_held_against_it() -> None:
    odd = NormProblem(2048, 65535, "bf16")
    found = advise_problem(odd, MODELLED)
    assert found.config.kind == "plain"
    assert found.advice.verdict == "no"
    assert "No kernel of divided warps" in found.advice.reasons[0].words
    assert found.advice.gain is None


def test_forecasts_are_the_fastest_legal_kernels_of_each_kind() -> None:
    free, four = forecasts(POLY, MODELLED, "cold", None), forecasts(POLY, MODELLED, "cold", 4)
    assert list(free) == ["plain", "strong", "ring", "specialised"]
    assert all(kind == each.config.kind for kind, each in free.items())
    assert all(four[kind].time_us >= free[kind].time_us for kind in free)
    assert four["strong"].config.consumers == 4


@pytest.mark.parametrize(
    ("field", "given"),
    [("warps_per_sm", {"warps_per_sm": 3}), ("rival", {"rival": "cublas"})],
)
def test_what_no_kernel_can_be_held_against_is_refused(field: str, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        advise_problem(POLY, MODELLED, **given)
    assert caught.value.field == field
