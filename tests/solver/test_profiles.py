"""Every profile that ships: complete, sourced, and able to answer."""

from __future__ import annotations

import pytest

from bench.derive_profiles import derive, read
from bench.profiles_page import PAGE, page
from solver.device import PROVENANCES, device_names, load_profile
from solver.engine import Engine
from solver.errors import InvalidInput, UnknownDevice, Unsupported
from solver.families import paper, sm90_gemm
from solver.problem import Problem
from solver.question import Question

REQUIRED = {
    "h200",
    "h200_datasheet",
    "h100_sxm",
    "h20",
    "a100",
    "l40s",
    "rtx4090",
    "a6000",
    "mi300x",
}

HARDWARE = {  # SMs, shared memory per block, dense bf16 TFLOP/s, memory TB/s
    "h200": (132, 232448, 989.5, 4.8),
    "h200_datasheet": (132, 232448, 989.5, 4.8),
    "h100_sxm": (132, 232448, 989.5, 3.35),
    "h20": (78, 232448, 148, 4.0),
    "a100": (108, 166912, 312, 2.039),
    "l40s": (142, 101376, 362.05, 0.864),
    "rtx4090": (128, 101376, 165.2, 1.008),
    "a6000": (84, 101376, 154.8, 0.768),
    "mi300x": (304, 65536, 1307.4, 5.3),
}


def test_the_promised_profiles_ship() -> None:
    assert set(device_names()) >= REQUIRED


@pytest.mark.parametrize("name", device_names())
def test_every_constant_has_a_unit_a_provenance_and_a_source(name: str) -> None:
    profile = load_profile(name)
    tables = [profile.limits, *profile.models.values()]
    for constant in (c for table in tables for c in table.values()):
        assert constant.unit
        assert constant.source
        assert constant.provenance in PROVENANCES
        assert constant.value >= 0
    for path in profile.must_measure:
        model, constant_name = path.split(".")
        assert constant_name in profile.models[model]


@pytest.mark.parametrize("name", sorted(HARDWARE))
def test_hardware_figures_are_the_vendors(name: str) -> None:
    limits = load_profile(name).limits
    sms, smem_bytes, tflops, terabytes = HARDWARE[name]
    assert limits["sms"].value == sms
    assert limits["smem_per_block_bytes"].value == smem_bytes
    assert limits["tensor_tflops"].value == tflops
    assert limits["memory_bytes_per_us"].value == pytest.approx(terabytes * 1e6)
    # The GPU keeps 1 KiB of each block's shared memory for itself; AMD's keep none.
    reserved = 1024 if load_profile(name).vendor == "nvidia" else 0
    assert limits["smem_per_sm_bytes"].value == smem_bytes + reserved


def test_every_profile_has_the_same_limits_and_every_family_profile_the_same_constants() -> None:
    profiles = [load_profile(name) for name in device_names()]
    assert len({frozenset(p.limits) for p in profiles}) == 1
    hopper = [p for p in profiles if sm90_gemm.NAME in p.families]
    assert len({frozenset(p.model(sm90_gemm.NAME)) for p in hopper}) == 1
    for unit in ({n: c.unit for n, c in p.model(sm90_gemm.NAME).items()} for p in hopper):
        assert unit == {n: c.unit for n, c in hopper[0].model(sm90_gemm.NAME).items()}


@pytest.mark.parametrize("name", device_names())
def test_no_profile_multiplies_faster_than_its_datasheet(name: str) -> None:
    profile = load_profile(name)
    sms, peak = profile.limit("sms"), profile.limits["tensor_tflops"].value
    if "math_macs_per_us" in (model := profile.model(paper.NAME)):
        assert 2 * sms * model["math_macs_per_us"].value / 1e6 <= peak * 1.001
    else:  # operand bytes a us: 128x128 is the space's tile with most work per byte
        work_us = (128 + 128) * 64 * 2 / model["math_bytes_per_us"].value
        assert peak / 4 < 2 * 128 * 128 * 64 * sms / work_us / 1e6 < peak


def test_what_profiles_derive_from_the_h200_follows_it() -> None:
    reference = read("h200")
    for name in device_names():
        if sm90_gemm.NAME in load_profile(name).families:
            assert derive(read(name), reference) == read(name), "python -m bench.derive_profiles"


def test_a_derived_profile_follows_a_change_of_the_h200() -> None:
    reference, h20 = read("h200"), read("h20")
    family = reference["models"][sm90_gemm.NAME]
    family["l2_bytes_per_us"]["value"] *= 2
    family["epilogue_cycles"]["value"] = 700
    changed = derive(h20, reference)["models"][sm90_gemm.NAME]
    before = h20["models"][sm90_gemm.NAME]
    assert changed["l2_bytes_per_us"]["value"] == pytest.approx(
        family["l2_bytes_per_us"]["value"] * 78 / 132, rel=1e-4
    )
    assert changed["epilogue_cycles"]["value"] == 700
    assert changed["epilogue_cycles"]["provenance"] == "derived"
    assert changed["clock_ghz"] == before["clock_ghz"]


def test_the_page_of_profiles_shows_what_ships() -> None:
    assert PAGE.read_text("utf-8") == page(), "python -m bench.derive_profiles"


def test_every_profile_that_nobody_measured_names_what_must_be() -> None:
    for name in device_names():
        profile = load_profile(name)
        named = {path for path in profile.must_measure if path.startswith("paper.")}
        measured_or_published = name in ("h200", "a6000")
        assert measured_or_published != bool(named)


@pytest.mark.parametrize("name", device_names())
def test_every_profile_answers_in_the_published_model_with_proof(name: str) -> None:
    answer = Engine().optimize(Question(Problem(1024, 512, 768), device=name, model="paper"))
    body = answer.to_dict()
    assert body["proof"]["status"] == "optimal"
    assert body["predicted"]["time_us"] > 0
    assert body["kernel"]["smem_bytes"] <= load_profile(name).limit("smem_per_block_bytes")


def test_hopper_profiles_run_the_hopper_family_and_no_other_does() -> None:
    for name in device_names():
        profile = load_profile(name)
        assert (sm90_gemm.NAME in profile.families) == (profile.arch == "sm_90a")
        assert (sm90_gemm.NAME in profile.models) == (profile.arch == "sm_90a")


def test_the_h200_is_measured_and_the_mi300x_says_what_must_be() -> None:
    h200 = load_profile("h200").model(sm90_gemm.NAME)
    assert sum(c.provenance == "measured" for c in h200.values()) > len(h200) / 2
    mi300x = load_profile("mi300x")
    assert mi300x.wavefront == 64
    assert set(mi300x.must_measure) == {f"paper.{n}" for n in mi300x.model("paper")}


def test_a_device_without_a_family_is_refused_in_the_calibrated_model() -> None:
    with pytest.raises(Unsupported, match="model paper"):
        Engine().optimize(Question(Problem(64, 64, 64), device="mi300x"))


def test_an_unknown_device_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UnknownDevice, match="h200"):
        load_profile("h9000")


@pytest.mark.parametrize(
    ("field", "value"),
    [("model", "guess"), ("proof", "half"), ("top_k", 0), ("top_k", 65), ("top_k", True)],
)
def test_a_question_with_a_bad_field_names_it(field: str, value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        Question(Problem(64, 64, 64), **{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field
