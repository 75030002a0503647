"""Advice on dividing warps: each reason against it at its threshold, what leaves it undecided, and
which way it must lean."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.advice import thresholds
from solver.advice.advise import Advice, advise
from solver.advice.conflicts import least_times
from solver.advice.figures import INTEGERS, NUMBERS, KernelFigures
from solver.advice.rates import FP32_TFLOPS, rates_of
from solver.device import device_names, load_profile
from solver.errors import InvalidInput, Unsupported
from solver.occupancy import resident_blocks

H200 = load_profile("h200")
RANK = {"no": 0, "undecided": 1, "specialise": 2}
WAITING = KernelFigures(
    threads_per_block=128,
    registers_per_thread=255,
    grid_blocks=4096,
    read_bytes=2**29,
    written_bytes=2**29,
    time_us=700.0,
    flops=1.7e10,
)
"""Eight warps of an SM, two stages alike, and more than twice the time of either."""


def advised(**changed: Any) -> Advice:
    return advise(dataclasses.replace(WAITING, **changed), H200)


def reasons(advice: Advice) -> set[str]:
    return {reason.reason for reason in advice.reasons}


def test_a_kernel_that_waits_has_two_stages_and_room_is_divided() -> None:
    advice = advised()
    assert advice.verdict == "specialise"
    assert [step.outcome for step in advice.steps] == ["yes"] * 3
    assert advice.gain is not None
    assert advice.gain.expected == pytest.approx(700 / (1.06 * 257.1 + 0.35 * 253.7), rel=1e-3)
    assert advice.alternative_gain is not None
    assert advice.alternative_gain.expected > advice.gain.expected


ROOF_US = 2**30 / (4.8e6 * 0.87)
DIVIDED_US = 1.06 * ROOF_US + 0.35 * 1.7e10 / 67e6
NEEDED_BYTES = 2**29 / ROOF_US * rates_of(H200).latency_us / 132
"""Little's law, an SM: of half the bytes, which are read while all are moved."""
ENOUGH_A_WARP = math.ceil(NEEDED_BYTES / 8)
CHUNKS_BYTES = 4 * 16384 * 132
HALVED: dict[str, Any] = {"read_bytes": 2**26, "written_bytes": 2**26}
SMALL: dict[str, Any] = {"read_bytes": 2**23, "written_bytes": 0, "flops": 1e8}
SMEM_BYTES = 233472 // 2 - 8192 - 1024


@pytest.mark.parametrize(
    ("reason", "against", "allowed"),
    [
        ("short_kernel", SMALL | {"time_us": 5.0}, SMALL | {"time_us": 5.01}),
        ("served_by_l2", {"l2_hit_fraction": 0.9}, {"l2_hit_fraction": 0.899}),
        ("served_by_l2", {"data_in": "l2"}, {"data_in": "memory"}),
        ("used_up", {"memory_fraction": 0.8}, {"memory_fraction": 0.799}),
        ("used_up", {"compute_fraction": 0.8}, {"compute_fraction": 0.799}),
        ("used_up", {"issue_fraction": 0.8}, {"issue_fraction": 0.799}),
        ("used_up", {"time_us": ROOF_US / 0.801}, {"time_us": ROOF_US / 0.799}),
        (
            "does_not_wait",
            {"long_scoreboard_fraction": 0.299},
            {"long_scoreboard_fraction": 0.3},
        ),
        (
            "latency_hidden",
            {"bytes_in_flight_per_warp": ENOUGH_A_WARP, "time_us": None},
            {"bytes_in_flight_per_warp": ENOUGH_A_WARP - 1, "time_us": None},
        ),
        (
            "unequal_stages",
            {"load_us": 300.0, "compute_us": 30.0},
            {"load_us": 300.0, "compute_us": 30.1},
        ),
        (
            "unequal_stages",
            HALVED | {"load_us": 30.0, "compute_us": 300.0},
            HALVED | {"load_us": 30.1, "compute_us": 300.0},
        ),
        (
            "too_little_data",
            {"read_bytes": CHUNKS_BYTES - 1},
            {"read_bytes": CHUNKS_BYTES},
        ),
        (
            "too_little_data",
            {"read_bytes": 2**24, "chunk_bytes": 65536},
            {"read_bytes": 2**24, "chunk_bytes": 16384},
        ),
        (
            "scarce_shared_memory",
            {"smem_per_block_bytes": SMEM_BYTES + 1},
            {"smem_per_block_bytes": SMEM_BYTES},
        ),
        ("small_gain", {"time_us": 1.099 * DIVIDED_US}, {"time_us": 1.101 * DIVIDED_US}),
    ],
)
def test_each_reason_against_begins_at_its_threshold(
    reason: str, against: dict[str, Any], allowed: dict[str, Any]
) -> None:
    refused = advised(**against)
    assert reason in reasons(refused)
    assert refused.verdict == "no"
    assert refused.missing == ()
    assert reason not in reasons(advised(**allowed))


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({"flops": None}, "flops"),
        ({"registers_per_thread": 168, "time_us": None}, "bytes_in_flight_per_warp"),
        ({"bytes_in_flight_per_warp": 4096}, "long_scoreboard_fraction"),
        (
            {
                "read_bytes": 7_000_000,
                "written_bytes": 0,
                "flops": 5e7,
                "time_us": None,
                "chunk_bytes": 1024,
            },
            "time_us",
        ),
    ],
)
def test_where_the_figures_do_not_decide_the_one_that_would_is_named(
    changed: dict[str, Any], missing: str
) -> None:
    advice = advised(**changed)
    assert advice.verdict == "undecided", advice.reasons
    assert missing in advice.missing
    assert advice.reasons == ()


def test_warps_at_a_barrier_may_wait_for_others_loads() -> None:
    stalls = {"long_scoreboard_fraction": 0.2, "barrier_fraction": 0.2}
    assert advised(**stalls).steps[0].outcome == "yes"  # by what eight warps have in flight
    assert advised(**stalls, bytes_in_flight_per_warp=4096).steps[0].outcome == "no"


def test_measured_stalls_go_before_what_warps_have_in_flight() -> None:
    advice = advised(bytes_in_flight_per_warp=10**6, long_scoreboard_fraction=0.6)
    assert advice.verdict == "specialise"


def test_every_reason_is_listed() -> None:
    advice = advised(memory_fraction=0.9, smem_per_block_bytes=226_000, l2_hit_fraction=0.95)
    assert reasons(advice) == {"used_up", "scarce_shared_memory", "served_by_l2"}


def test_a_short_launch_has_no_gain_said_of_it() -> None:
    assert advised(read_bytes=2**20, written_bytes=0).gain is None
    assert advised(**SMALL, time_us=3.0).gain is None
    body = advised(**SMALL, time_us=3.0).to_dict()
    assert body["present_us"] == {"expected": 3.0, "low": 3.0, "high": 3.0, "measured": True}


def test_a_shallower_chunk_is_tried_before_shared_memory_is_called_scarce() -> None:
    roomy, tight = advised(), advised(smem_per_block_bytes=SMEM_BYTES)
    rings = [advice.steps[2].figures["ring_bytes"] for advice in (roomy, tight)]
    assert rings == [2 * 16384, 2 * 4096]


def test_a_ring_is_at_least_what_must_be_in_flight() -> None:
    advice = advised(chunk_bytes=1024, resident_warps=1.0, registers_per_thread=255)
    assert advice.steps[2].figures["ring_bytes"] == math.ceil(NEEDED_BYTES / 2)  # two blocks


# 512 MiB in and as much out, cold, on one H200: microseconds of a plain, a strong and the best
# divided kernel, for degrees 0, 8, 32, 64, 128 and 512 of the polynomial.
DEGREES = (0, 8, 32, 64, 128, 512)
MEASURED = {
    ("fp32", 1024): "362/255/271 360/255/275 425/258/286 580/328/415 856/588/677 2709/2165/2226",
    ("fp32", 4096): "431/258/278 415/261/279 546/279/309 643/332/424 945/608/663 2803/2168/2237",
    ("fp32", 16384): "430/263/280 413/263/282 561/265/317 748/343/444 1049/608/674 2986/2208/2267",
    ("bf16", 1024): "318/253/273 365/257/301 744/409/466 1050/673/737 1671/1209/1255 "
    "5367/4364/4426",
    ("bf16", 4096): "462/263/278 469/261/312 880/422/477 1130/667/750 1889/1191/1269 "
    "5537/4344/4439",
    ("bf16", 16384): "474/257/276 482/269/314 948/420/488 1236/683/757 1859/1220/1275 "
    "5702/4391/4466",
}
CELLS: list[tuple[str, int, list[float]]] = [
    (dtype, degree, [float(time) for time in times.split("/")])
    for (dtype, _), row in MEASURED.items()
    for degree, times in zip(DEGREES, row.split(), strict=True)
]


def measured(dtype: str, degree: int, time_us: float, warps: float) -> Advice:
    elements = 2**29 // (4 if dtype == "fp32" else 2)
    return advised(
        time_us=time_us,
        flops=2.0 * elements * (degree + 8),
        resident_warps=warps,
        registers_per_thread=40,
        bytes_in_flight_per_warp=512,
    )


def test_stages_explain_what_was_measured_by_far_enough() -> None:
    most = 0.0
    for dtype, degree, (plain, *_) in CELLS:
        elements = 2**29 // (4 if dtype == "fp32" else 2)
        stages = ROOF_US, 2.0 * elements * (degree + 8) / 67e6
        most = max(most, plain / (max(stages) + thresholds.WAITING.lesser.high * min(stages)))
    assert f"at most {most:.2f} times" in thresholds.EXPLAINED.source
    assert most < thresholds.EXPLAINED.value


def test_a_strong_kernel_at_natural_occupancy_is_left_as_it_is() -> None:
    assert len(CELLS) == 36
    for dtype, degree, (_, strong, _) in CELLS:
        assert measured(dtype, degree, strong, 40).verdict == "no", (dtype, degree)


def test_measured_gains_lie_in_the_range_that_is_said() -> None:
    found = []
    for dtype, degree, (plain, strong, divided) in CELLS:
        for now in (plain, strong):
            gain = measured(dtype, degree, now, 40).gain
            assert gain is not None
            found.append(gain.low <= now / divided <= gain.high)
    assert sum(found) >= 0.9 * len(found)


@pytest.mark.parametrize(
    ("dtype", "now", "divided", "ring"), [("fp32", 411, 323, 322), ("bf16", 641, 351, 384)]
)
def test_four_warps_of_an_sm_are_better_divided_and_a_ring_of_their_own_does_as_well(
    dtype: str, now: float, divided: float, ring: float
) -> None:
    advice = measured(dtype, 0, now, 4)
    assert advice.verdict == "specialise"
    assert advice.gain is not None
    assert advice.alternative_gain is not None
    assert advice.gain.low <= now / divided <= advice.gain.high
    assert advice.alternative_gain.low <= now / ring <= advice.alternative_gain.high


drawn = st.builds(
    KernelFigures,
    threads_per_block=st.sampled_from([32, 64, 128, 256, 512]),
    registers_per_thread=st.sampled_from([32, 64, 96, 128]),
    grid_blocks=st.sampled_from([1, 100, 132, 1000, 10**6]),
    read_bytes=st.sampled_from([0, 2**20, 2**24, 2**29, 2**33]),
    written_bytes=st.sampled_from([0, 2**24, 2**29]),
    smem_per_block_bytes=st.sampled_from([0, 10_000, 60_000, 110_000, 200_000]),
    data_in=st.sampled_from(["memory", "memory", "l2"]),
    time_us=st.none() | st.floats(1, 3000),
    flops=st.none() | st.floats(0, 1e11),
    bytes_in_flight_per_warp=st.none() | st.integers(32, 4096),
    chunk_bytes=st.none() | st.sampled_from([1024, 16384, 65536]),
    long_scoreboard_fraction=st.none() | st.floats(0, 0.5),
    barrier_fraction=st.none() | st.floats(0, 0.5),
    memory_fraction=st.none() | st.floats(0, 1),
    l2_hit_fraction=st.none() | st.floats(0, 1),
)


def with_warps(kernel: KernelFigures, share: float) -> KernelFigures:
    """The kernel with so much of the warps that an SM holds resident."""
    most = kernel.block_warps * resident_blocks(
        kernel.threads_per_block,
        kernel.registers_per_thread,
        kernel.smem_per_block_bytes,
        rates_of(H200).sm,
    )
    return dataclasses.replace(kernel, resident_warps=max(0.1, share * most))


def consistent(kernel: KernelFigures, share: float | None) -> KernelFigures:
    """The kernel with no less time than its other figures need, and no more warps than fit."""
    if kernel.time_us is not None:
        least_us = max(least_times(kernel, rates_of(H200)).values())
        kernel = dataclasses.replace(kernel, time_us=max(kernel.time_us, least_us))
    return kernel if share is None else with_warps(kernel, share)


shares = st.floats(0.01, 1)
figures = st.builds(consistent, drawn, st.none() | shares)
often = settings(max_examples=400, deadline=None)


@often
@given(figures, shares, shares)
def test_more_resident_warps_never_speak_for_dividing_them(
    kernel: KernelFigures, a: float, b: float
) -> None:
    few, many = (advise(with_warps(kernel, share), H200) for share in sorted((a, b)))
    assert RANK[many.verdict] <= RANK[few.verdict]


@often
@given(figures, st.integers(1, 2**20), st.integers(1, 2**20))
def test_more_bytes_in_flight_never_speak_for_it(kernel: KernelFigures, a: int, b: int) -> None:
    little, much = (
        advise(dataclasses.replace(kernel, bytes_in_flight_per_warp=each), H200)
        for each in sorted((a, b))
    )
    assert RANK[much.verdict] <= RANK[little.verdict]


@often
@given(st.floats(400, 5000), st.floats(0.01, 0.5), st.floats(0.01, 0.5), st.booleans())
def test_of_stages_with_one_sum_the_more_equal_ones_are_better(
    both_us: float, a: float, b: float, loads_lead: bool
) -> None:
    found = []
    for share in sorted((a, b)):
        stages = [both_us * share, both_us * (1 - share)]
        load_us, compute_us = stages if loads_lead else stages[::-1]
        found.append(
            advised(
                load_us=load_us,
                compute_us=compute_us,
                time_us=None,
                read_bytes=2**24,
                written_bytes=0,
                bytes_in_flight_per_warp=2**18,
                long_scoreboard_fraction=0.5,
            )
        )
    unequal, equal = found
    assert RANK[equal.verdict] >= RANK[unequal.verdict]
    assert unequal.gain is not None
    assert equal.gain is not None
    assert equal.gain.expected >= unequal.gain.expected * (1 - 1e-12)


@often
@given(figures, st.integers(0, 100_000), st.integers(0, 100_000))
def test_more_shared_memory_of_its_own_never_finds_room_for_buffers(
    kernel: KernelFigures, a: int, b: int
) -> None:
    kernel = dataclasses.replace(kernel, resident_warps=1.0)
    less, more = (
        advise(dataclasses.replace(kernel, smem_per_block_bytes=own), H200).steps[2].outcome
        for own in sorted((a, b))
    )
    assert (less, more) != ("no", "yes")


@often
@given(figures)
def test_advice_hangs_together(kernel: KernelFigures) -> None:
    advice = advise(kernel, H200)
    assert (advice.verdict == "no") == bool(advice.reasons)
    if advice.verdict == "specialise":
        assert all(step.outcome == "yes" for step in advice.steps)
        assert not advice.missing
    for gain in (advice.gain, advice.alternative_gain, advice.present_us):
        assert gain is None or 0 <= gain.low <= gain.expected <= gain.high
    if advice.verdict == "undecided":
        assert advice.missing
        assert set(advice.missing) <= INTEGERS.keys() | NUMBERS.keys()


@pytest.mark.parametrize("blocks", [1, 7, 66])
def test_sms_without_a_block_neither_load_nor_compute(blocks: int) -> None:
    """A small grid's SMs do what as many of a whole grid's do, which are ``132 / blocks`` times as
    many: each stage takes at least as long, computing just so much longer, and in flight an SM has
    what it had."""
    data = {"read_bytes": 2**26, "written_bytes": 0, "flops": 1e9, "time_us": None}
    some = {step.step: step for step in advised(**data, grid_blocks=blocks).steps}["stages"]
    whole = {step.step: step for step in advised(**data, grid_blocks=132).steps}["stages"]
    took, took_whole = (float(step.figures["compute_us"] or 0) for step in (some, whole))
    assert took == pytest.approx(took_whole * 132 / blocks)
    loads, loads_whole = (float(step.figures["load_us"] or 0) for step in (some, whole))
    most = 64 * 67e6 / (2 * 128 * 132) * blocks
    assert loads == pytest.approx(max(loads_whole, 2**26 / most))


def test_a_long_launch_of_one_block_is_not_called_short() -> None:
    """Its SM takes over a hundred times what the whole device would."""
    alone = {"grid_blocks": 1, "read_bytes": 2**21, "written_bytes": 0, "flops": 1e8}
    assert "short_kernel" not in reasons(advised(**alone, time_us=None))
    present = advised(**alone, time_us=None).present_us
    assert present is not None
    assert present.low >= 1e8 / (67e6 / 132)
    spread = alone | {"grid_blocks": 1320, "flops": 1e6}
    assert "short_kernel" in reasons(advised(**spread, time_us=None))


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        ({"time_us": 200.0}, "time_us", "at least 223.7, by read_bytes and written_bytes on this"),
        ({"time_us": 200.0}, "time_us", "what the L2 serves has data_in l2; got 200"),
        ({"load_us": 200.0}, "load_us", "at least 223.7, by read_bytes and written_bytes on this"),
        ({"grid_blocks": 13}, "time_us", "at least 1288, by flops"),
        ({"grid_blocks": 13, "flops": 1e9, "time_us": 500.0}, "time_us", "at least 650.9"),
        ({"load_us": 800.0}, "time_us", "must be at least 800, by load_us"),
        ({"compute_us": 800.0}, "time_us", "must be at least 800, by compute_us"),
        ({"flops": 1.1e11}, "time_us", "must be at least 820.9, by flops"),
        ({"tensor_flops": 3.2e12}, "time_us", "must be at least 808.5, by tensor_flops"),
        ({"resident_warps": 8.5}, "resident_warps", "at most 8: an SM holds 2 blocks of 4 warps"),
    ],
)
def test_figures_that_contradict_one_another_are_refused(
    changed: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        advised(**changed)
    assert refusal.value.field == field
    assert words in refusal.value.message


def test_a_launch_that_its_stages_dont_explain_is_undecided_until_stalls_are_known() -> None:
    """Something takes most of 100 ms in which 1 GiB is moved: whether loads do, stalls say."""
    advice = advised(time_us=1e5)
    assert (advice.verdict, advice.missing) == ("undecided", ("long_scoreboard_fraction",))
    assert "more than its stages would" in advice.steps[0].words
    assert advice.gain is advice.alternative_gain is None
    loads = advised(time_us=1e5, long_scoreboard_fraction=0.5, barrier_fraction=0.1)
    assert loads.verdict == "specialise"
    assert loads.gain is not None
    assert loads.gain.low == loads.gain.high == pytest.approx(1 / 0.4)
    assert advised(time_us=1e5, long_scoreboard_fraction=0.2).verdict == "no"
    assert advised(time_us=900.0).gain is not None


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 1.0])
def test_no_gain_is_more_than_leaving_out_what_waits_for_loads(share: float) -> None:
    for time_us in (500.0, 700.0, 5000.0):
        advice = advised(time_us=time_us, long_scoreboard_fraction=share)
        for gain in (advice.gain, advice.alternative_gain):
            assert gain is not None
            assert share == 1 or gain.high <= 1 / (1 - share) + 1e-12


def test_figures_may_be_off_by_what_measurements_are() -> None:
    advised(time_us=223.7 / 1.09)
    advised(time_us=200.0, data_in="l2")
    advised(load_us=760.0)
    advised(flops=1e11)
    advised(resident_warps=8)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"threads_per_block": 1025}, "threads_per_block"),
        ({"threads_per_block": 128.0}, "threads_per_block"),
        ({"threads_per_block": None}, "threads_per_block"),
        ({"registers_per_thread": 0}, "registers_per_thread"),
        ({"threads_per_block": 1024, "registers_per_thread": 255}, "registers_per_thread"),
        ({"smem_per_block_bytes": 240_000}, "smem_per_block_bytes"),
        ({"read_bytes": -1}, "read_bytes"),
        ({"data_in": "disk"}, "data_in"),
        ({"time_us": 0}, "time_us"),
        ({"time_us": float("nan")}, "time_us"),
        ({"l2_hit_fraction": 1.1}, "l2_hit_fraction"),
        ({"long_scoreboard_fraction": 0.7, "barrier_fraction": 0.5}, "barrier_fraction"),
    ],
)
def test_a_figure_outside_its_limits_is_named(changed: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        advised(**changed)
    assert refusal.value.field == field


def test_every_device_of_nvidias_has_rates_and_others_are_refused() -> None:
    for name in device_names():
        device = load_profile(name)
        if device.vendor == "nvidia":
            assert rates_of(device).flops_per_us > 0
        else:
            with pytest.raises(Unsupported, match="advice is for a100"):
                rates_of(device)
    assert set(FP32_TFLOPS) <= set(device_names())


def test_every_threshold_says_where_it_comes_from() -> None:
    found = [each for each in vars(thresholds).values() if isinstance(each, thresholds.Threshold)]
    assert len(found) == 11
    assert all(len(each.source) > 40 for each in found)


def test_stages_of_next_to_no_time_need_no_more_than_memory_gives() -> None:
    stages = {"load_us": 1e-3, "compute_us": 1e-3, "flops": None, "time_us": None}
    advice = advised(**stages, read_bytes=2**60, written_bytes=0, data_in="l2")
    of_l2 = rates_of(H200).l2_bytes_per_us / rates_of(H200).memory_bytes_per_us
    needed = advice.steps[0].figures["needed_bytes"]
    assert needed == pytest.approx(2 * NEEDED_BYTES * of_l2, rel=1e-3)
    nothing = advised(read_bytes=0, written_bytes=0, flops=5e-324)
    assert nothing.verdict == "no"
    assert nothing.gain is None
