"""Every profile that ships: complete, sourced, and able to answer."""

from __future__ import annotations

import pytest

from solver.device import PROVENANCES, device_names, load_profile
from solver.engine import Engine, Question
from solver.errors import InvalidInput, UnknownDevice, Unsupported
from solver.families import sm90_gemm
from solver.problem import Problem

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
