"""Whatever a body holds, it is answered in its documented shape or refused in a document."""

from __future__ import annotations

import json
import math
from typing import Any

from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.problem_documents import ProblemDocument
from app.schemas.advice import AdviseAnswer, FiguresRequest
from app.schemas.answers import OptimizeAnswer, SimulateAnswer
from app.schemas.explanations import ExplainAnswer
from solver.advice.figures import INTEGERS, NUMBERS, SOURCES
from solver.constraints import CONFIG_FIELDS, RESOURCES, Constraints
from solver.device import device_names
from solver.families import norm_activation as norm
from solver.objective import AXES
from solver.problem import LAYOUTS, OUT_BYTES

SHAPES = {
    "/v1/optimize": OptimizeAnswer,
    "/v1/simulate": SimulateAnswer,
    "/v1/explain": ExplainAnswer,
    "/v1/advise": AdviseAnswer,
}
REFUSALS = {400, 413, 422}
BUSY = 503

scalars = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


def mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values that are nearly always right."""
    return st.integers(0, 39).flatmap(lambda draw: good if draw else values)


def members(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with any of these members."""
    return st.fixed_dictionaries({}, optional={n: mostly(s) for n, s in strategies.items()})


extents = st.sampled_from([1, 8, 64, 77, 136, 512, 4096, 2**20]) | st.integers(0, 2**31)
pitches = st.none() | st.integers(2**20, 2**31)  # most are wide enough
offsets = st.just(0) | st.integers(0, 3) | st.integers(0, 8)
names = st.lists(st.sampled_from(AXES), min_size=1, max_size=4, unique=True)
weights = st.floats(0, 1e9) | st.integers(0, 10**9)
objectives = st.one_of(
    members(kind=st.just("lexicographic"), order=names),
    members(kind=st.just("weighted"), weights=members(**dict.fromkeys(AXES, weights))),
    members(kind=st.just("pareto"), axes=names, within=st.floats(1, 3), cap=st.integers(1, 256)),
)
values_in = st.sampled_from([0, 1, 2, 4, 64, 128, 256, 2**16]) | st.integers(0, 2**31)
relations = {
    "min": st.sampled_from([0, 1, 2]) | values_in,
    "max": st.sampled_from([128, 256, 2**17]) | values_in,
    "in": st.lists(values_in, min_size=1, max_size=5).map(lambda some: [1, 64, 128, *some]),
}
bounds = st.one_of(
    members(**relations), *(st.fixed_dictionaries({n: s}) for n, s in relations.items())
)


def few(
    names: tuple[str, ...], **more: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    """Bounds of one or two variables, and what else there may be."""
    some = st.dictionaries(st.sampled_from(names), mostly(bounds), min_size=1, max_size=2)
    return st.tuples(some, members(**more)).map(lambda both: both[0] | both[1])


constraints = few(RESOURCES, config=few(CONFIG_FIELDS))
configs = st.fixed_dictionaries(
    {
        "family": st.sampled_from(["sm90_gemm", "paper"]),
        "tile_m": st.sampled_from([64, 128, 256]),
        "tile_n": st.sampled_from([64, 128, 256]),
        "tile_k": st.just(64),
        "stages": st.integers(1, 6),
    },
    optional={name: mostly(st.just(1) | st.integers(0, 4)) for name in CONFIG_FIELDS[4:]},
)
problems = {
    "dtype": st.sampled_from(["bf16", "fp16"]),
    "layout": st.sampled_from(LAYOUTS),
    "out_dtype": st.none() | st.sampled_from(list(OUT_BYTES)),
    **dict.fromkeys(("lda", "ldb", "ldc"), pitches),
    **dict.fromkeys(("a_offset", "b_offset", "c_offset"), offsets),
    "device": st.sampled_from(device_names()),
    "model": st.sampled_from(["calibrated", "paper"]),
    "cache": st.sampled_from(["cold", "warm"]),
    "divergence": st.just(1) | st.floats(1, 32),
}
questions = {
    "objective": objectives,
    "constraints": constraints,
}


def bodies(
    sizes: st.SearchStrategy[Any], needed: dict[str, Any], optional: dict[str, Any]
) -> st.SearchStrategy[Any]:
    """Bodies with a problem, the members needed and some of the optional ones."""
    required = {**dict.fromkeys("mnk", mostly(sizes)), **needed}
    return st.fixed_dictionaries(
        required, optional={name: mostly(strategy) for name, strategy in optional.items()}
    )


def ask(client: TestClient, route: str, content: str | bytes) -> dict[str, Any] | None:
    """The answer, held against its shape; None where it was refused in a document."""
    response = client.post(route, content=content, headers={"content-type": "application/json"})
    if response.status_code == 200:
        SHAPES[route].model_validate_json(response.content)
        body: dict[str, Any] = response.json()
        return body
    assert response.status_code in {*REFUSALS, BUSY}, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document = ProblemDocument.model_validate_json(response.content)
    assert document.status == response.status_code
    assert len(document.detail) < 10_000
    if response.status_code == BUSY:
        assert document.type == "urn:warpwright:problem:unavailable"
    return None


def fuzzed(examples: int) -> Any:
    """Settings for a test that asks the service ``examples`` times."""
    return settings(
        max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


@fuzzed(150)
@given(route=st.sampled_from(list(SHAPES)), content=st.binary(max_size=200) | st.text(max_size=200))
def test_any_bytes_are_refused_in_a_document(
    client: TestClient, route: str, content: str | bytes
) -> None:
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    assert ask(client, route, content) is None


@fuzzed(150)
@given(route=st.sampled_from(list(SHAPES)), body=values)
def test_any_json_is_refused_in_a_document(client: TestClient, route: str, body: Any) -> None:
    assert ask(client, route, json.dumps(body)) is None


@fuzzed(500)
@given(
    body=bodies(
        extents,
        {"time_limit_ms": mostly(st.sampled_from([1, 10, 40]))},
        {**problems, **questions, "proof": st.just("none"), "top_k": st.integers(1, 64)},
    )
)
def test_any_question_is_answered_within_its_constraints_or_refused(
    client: TestClient, body: dict[str, Any]
) -> None:
    answer = ask(client, "/v1/optimize", json.dumps(body))
    if answer is None:
        return
    of_launch = {**answer["kernel"], "sms": answer["kernel"]["grid"]}
    if held := answer["predicted"].get("sustained"):
        of_launch["power_w"] = math.ceil(held["power_w"])  # as rows have it
    for bound in Constraints.from_dict(answer["constraints"]).bounds:
        place, _, name = bound.variable.rpartition(".")
        value = (answer[place] if place else of_launch)[name]
        assert bound.holds(value), bound


@fuzzed(300)
@given(body=bodies(extents, {"config": mostly(configs)}, problems))
def test_any_configuration_is_simulated_or_refused(
    client: TestClient, body: dict[str, Any]
) -> None:
    ask(client, "/v1/simulate", json.dumps(body))


@fuzzed(30)
@given(
    body=bodies(
        st.sampled_from([8, 64, 77, 520]), {"proof": st.just("none")}, {**problems, **questions}
    )
)
def test_any_question_is_explained_or_refused(client: TestClient, body: dict[str, Any]) -> None:
    ask(client, "/v1/explain", json.dumps(body))


figures = {
    "data_in": st.sampled_from(SOURCES),
    **{name: st.integers(*ends) for name, ends in INTEGERS.items()},
    **{name: st.none() | st.floats(*ends) for name, ends in NUMBERS.items()},
}
figures |= {
    "threads_per_block": st.sampled_from([32, 100, 128, 1024]),
    "registers_per_thread": st.integers(1, 64),
    "smem_per_block_bytes": st.integers(0, 2**17),
}
required = [name for name, field in FiguresRequest.model_fields.items() if field.is_required()]
kernels = st.fixed_dictionaries(
    {name: mostly(figures[name]) for name in required},
    optional={name: mostly(figures[name]) for name in figures if name not in required},
)
norms = st.fixed_dictionaries(
    {
        "op": mostly(st.just(norm.NAME)),
        "rows": st.integers(0, 2**31),
        "width": st.sampled_from([1, 77, 1024, 65536]) | st.integers(0, 2**17),
    },
    optional={
        "dtype": mostly(st.sampled_from(list(norm.ELEMENT_BYTES))),
        "norm": mostly(st.sampled_from(norm.NORMS)),
        "activation": mostly(st.sampled_from(norm.ACTIVATIONS)),
        "degree": mostly(st.just(0) | st.integers(0, 2000)),
        "cache": mostly(st.sampled_from(["cold", "warm"])),
        "device": mostly(st.sampled_from(device_names())),
    },
)


@fuzzed(300)
@given(body=norms | st.fixed_dictionaries({"figures": kernels}))
def test_any_kernel_is_advised_on_or_refused(client: TestClient, body: dict[str, Any]) -> None:
    ask(client, "/v1/advise", json.dumps(body))


def test_the_service_goes_on(client: TestClient) -> None:
    assert ask(client, "/v1/optimize", '{"m":512,"n":512,"k":512}') is not None
