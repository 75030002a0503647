"""The independent checker: it shares nothing, agrees with the solver, and refuses every change."""

from __future__ import annotations

import ast
import copy
import dataclasses
import itertools
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from solver import pick as solver_pick
from solver.certificate import certificate, digest
from solver.constraints import Constraints
from solver.device import load_profile
from solver.engine import Engine, pick
from solver.errors import InvalidInput
from solver.families import sm90_gemm_legality
from solver.families.sm90_gemm_cost import work_rows
from solver.objective import Lexicographic, Pareto, Weighted, objective_from_dict
from solver.pick import price
from solver.problem import CACHES, LAYOUTS, OUT_BYTES, Problem
from solver.question import Question
from solver.recheck import Verdict, recheck, verdict
from solver.recheck.answer import allowed_space, legal_space
from solver.recheck.events import Pipeline, last_math_end, path_bound
from solver.recheck.question import read_question
from solver.recheck.ranking import true_row
from solver.recheck.space import Space, table_sha256
from solver.simulator import simulate
from solver.space import build_space
from solver.table import MAPPINGS, Table

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "solver" / "recheck"
Document = dict[str, Any]


def certified(question: Question) -> Document:
    """The certificate of the solver's answer, with the proof left out."""
    device = load_profile(question.device)
    space = build_space(question.problem, device, question.pricing, question.constraints)
    proof: Any = SimpleNamespace(undecided=0, table_sha256=space.allowed.sha256())
    return certificate(pick(question, device, space).proved(proof))


def signed(document: Document) -> Document:
    """The document with the digest that its members have."""
    return document | {"sha256": digest(document)}


def constraints(**bounds: Any) -> Constraints:
    return Constraints.from_dict(bounds)


# What it may know.


def test_it_imports_the_standard_library_and_itself_alone() -> None:
    files = list(PACKAGE.rglob("*.py"))
    assert len(files) > 5
    for path in files:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, path.name
                names = [node.module or ""]
            for name in names:
                own = name == "solver.recheck" or name.startswith("solver.recheck.")
                assert own or name.partition(".")[0] in sys.stdlib_module_names, (path.name, name)


def test_a_certificate_is_rechecked_where_no_other_part_can_be_imported(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(certified(Question(Problem(1, 512, 512)))), "utf-8")
    program = f"""
import json, sys
for name in ("numpy", "z3", "pydantic"):
    sys.modules[name] = None
from solver.recheck import recheck
print(recheck(json.load(open({str(path)!r}, encoding="utf-8"))).holds)
print([n for n in sys.modules if n.startswith("solver.") and "solver.recheck" not in n])
"""
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert run.stdout.split("\n")[:2] == ["True", "[]"], run.stderr


# It finds what the solver finds.

SPACES = [
    Question(Problem(4096, 4096, 4096)),
    Question(Problem(16, 14336, 4096)),
    Question(Problem(1, 1, 8)),
    Question(Problem(2**20, 2**20, 2**20)),
    Question(Problem(1, 1, 2**31 - 8)),
    Question(Problem(2**31 - 1, 1, 8)),
    Question(Problem(77, 1003, 4104), cache="warm"),
    Question(Problem(65536, 65536, 8, dtype="fp16"), device="h20"),
    Question(Problem(300, 2112, 7168, dtype="fp16"), device="h100_sxm", cache="warm"),
    Question(Problem(512, 512, 512), device="h200_datasheet"),
    Question(Problem(128, 8192, 28672), constraints=constraints(sms={"max": 100, "min": 7})),
    Question(
        Problem(640, 1024, 768),
        constraints=constraints(
            smem_bytes={"max": 120_000},
            registers_per_thread={"min": 90},
            sms={"in": [3, 64, 65, 131]},
            config={"tile_m": {"in": [64, 128]}, "stages": {"min": 3, "max": 6}},
        ),
    ),
    *(
        Question(Problem(333, 1100, 777, layout=layout, out_dtype=out_dtype))
        for layout in LAYOUTS
        for out_dtype in OUT_BYTES
    ),
    Question(Problem(1, 9, 4096, layout="tt", lda=4099, ldb=16, a_offset=1, c_offset=3)),
    Question(Problem(1, 512, 640, layout="nt")),  # A runs along k all the same
    Question(Problem(1, 512, 640, layout="nn", lda=3, a_offset=4)),
    Question(Problem(512, 1, 640, layout="tt", out_dtype="fp32")),
    Question(Problem(512, 1, 640, layout="tt", ldb=8, ldc=8)),
    Question(
        Problem(4096, 4104, 64, dtype="fp16", layout="nt", lda=4100, b_offset=7), device="h20"
    ),
    Question(Problem(200, 8, 520, layout="nn", out_dtype="fp32", ldc=11, c_offset=2), cache="warm"),
    Question(
        Problem(2048, 2050, 2048, layout="tt"),
        constraints=constraints(sms={"in": [77, 102]}, config={"cluster_m": {"in": [2]}}),
    ),
    Question(Problem(1024, 960, 704), device="a6000", model="paper"),
    Question(
        Problem(8192, 8192, 100),
        device="mi300x",
        model="paper",
        divergence=1.3,
        constraints=constraints(sms={"max": 300}, config={"dma_warps": {"in": [2]}}),
    ),
]


def label(question: Question) -> str:
    p = question.problem
    return f"{question.device}-{p.m}-{p.layout}-{p.out}"


def both_spaces(question: Question) -> tuple[Table, Space]:
    """(the solver's allowed space, the checker's)."""
    space = build_space(
        question.problem, load_profile(question.device), question.pricing, question.constraints
    )
    asked = {
        "problem": question.problem.to_dict(),
        **question.to_dict(),
        "top_k": question.top_k,
        "device": {"name": question.device},
    }
    read = read_question(asked)
    legal = legal_space(read)
    assert legal.size == space.legal.size
    return space.allowed, allowed_space(read, legal)


@pytest.mark.parametrize("question", SPACES, ids=label)
def test_every_column_of_the_table_is_the_solvers(question: Question) -> None:
    table, space = both_spaces(question)
    for part, items in ((table.works, space.works), (table.kernels, space.kernels)):
        for field in dataclasses.fields(part):
            if field.name not in MAPPINGS:
                column = [getattr(item, field.name) for item in items]
                assert getattr(part, field.name).tolist() == column, field.name
                continue
            for name, values in getattr(part, field.name).items():
                assert values.tolist() == [getattr(i, field.name)[name] for i in items], name
    assert table.first.tolist() == [kernels.start for kernels in space.slices]
    assert table.count.tolist() == [len(kernels) for kernels in space.slices]
    assert table.sha256() == table_sha256(space)


@pytest.mark.parametrize("question", SPACES, ids=label)
def test_the_events_give_the_times_of_the_closed_form(question: Question) -> None:
    table, space = both_spaces(question)
    works, kernels = table.rows(np.arange(len(table.first)))
    times, waits = price(table, works, kernels)
    rng = random.Random(11)
    for at in rng.sample(range(len(works)), min(60, len(works))):
        row = true_row(space.works[works[at]], space.kernels[kernels[at]])
        assert (row.time, row.wait) == (times[at], waits[at])


def test_random_problems_have_the_solvers_table() -> None:
    rng = random.Random(14)
    for _ in range(12):
        m, n, k = (rng.choice([1, 8, rng.randint(2, 700)]) for _ in range(3))
        layout, out_dtype = rng.choice(LAYOUTS), rng.choice(list(OUT_BYTES))
        packed = Problem(m, n, k, layout=layout, out_dtype=out_dtype)
        pitches = {
            name: rng.choice([None, getattr(packed, name) + rng.randint(0, 64)])
            for name in ("lda", "ldb", "ldc")
        }
        offsets = {f"{name}_offset": rng.choice([0, rng.randint(0, 3)]) for name in "abc"}
        problem = dataclasses.replace(packed, **pitches, **offsets)
        table, space = both_spaces(Question(problem, cache=rng.choice(CACHES)))
        assert table.sha256() == table_sha256(space), problem


def random_pipeline(rng: random.Random, iterations: int, units: int) -> Pipeline:
    math = rng.choice([0, 1, rng.randint(0, 300)])
    return Pipeline(
        load=rng.choice([0, 1, math, math + 1, rng.randint(0, 300)]),
        latency=rng.choice([0, rng.randint(0, 2000)]),
        math=math,
        early=rng.choice([0, math, rng.randint(0, math)]),
        epilogue=rng.choice([0, rng.randint(0, 500)]),
        slots=rng.randint(1, 12),
        iterations=rng.randint(1, iterations),
        units=rng.randint(1, units),
    )


def test_powers_of_an_iteration_and_of_a_unit_are_the_events_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(12)
    for _ in range(600):
        p = random_pipeline(rng, 40, 12)
        played = simulate(**{f.name: getattr(p, f.name) for f in dataclasses.fields(p)}).end
        assert last_math_end(p) == played, p
        with monkeypatch.context() as patch:
            patch.setattr("solver.recheck.events.PLAYED_MAX", 0)
            assert last_math_end(p) == played, p


def test_no_run_ends_before_the_bound_that_rules_it_out() -> None:
    rng = random.Random(13)
    tight = 0
    for _ in range(3000):
        p = random_pipeline(rng, 60, 8)
        bound, end = path_bound(p), last_math_end(p)
        assert bound <= end, p
        tight += bound == end
    assert tight > 2000


# True certificates hold.

SMALL = Problem(16, 28672, 4096)
QUESTIONS = {
    "default": Question(SMALL, top_k=3),
    "tiny": Question(Problem(1, 1, 8), top_k=64),
    "wait_first": Question(
        Problem(64, 4096, 512), objective=Lexicographic(("wait", "smem")), top_k=2, cache="warm"
    ),
    "weighted": Question(
        Problem(33, 9000, 1024, dtype="fp16"),
        device="h20",
        objective=Weighted((("time", 1), ("wait", 0.1), ("smem", 0.25), ("registers", 0))),
        constraints=constraints(
            smem_bytes={"max": 150_000}, config={"stages": {"in": [3, 4, 5], "min": 3}}
        ),
        top_k=3,
    ),
    "grids": Question(
        SMALL,
        constraints=constraints(
            registers_per_thread={"max": 168}, sms={"min": 9, "in": [40, 96, 121]}
        ),
    ),
    "front": Question(SMALL, objective=Pareto(("time", "smem"), within=1.05)),
    "front_cut": Question(
        Problem(8, 30000, 512),
        objective=Pareto(("registers", "time"), within=2, cap=3),
        constraints=constraints(config={"tile_k": {"in": [64]}}),
    ),
    "unaligned": Question(
        Problem(64, 77, 1001, dtype="fp16", layout="nt", lda=65, ldc=99, b_offset=5, c_offset=1)
    ),
    "paper": Question(
        Problem(1000, 1000, 1000), device="a6000", model="paper", divergence=2.5, top_k=2
    ),
    "paper_front": Question(
        Problem(512, 512, 128),
        device="mi300x",
        model="paper",
        objective=Pareto(("smem", "wait"), within=10.0),
        constraints=constraints(sms={"max": 50}),
    ),
}


LAID_OUT = {
    f"{layout}_{out_dtype}": Question(
        Problem(130, 520, 1000, layout=layout, out_dtype=out_dtype), top_k=2
    )
    for layout in LAYOUTS
    for out_dtype in OUT_BYTES
} | {
    "wide": Question(
        Problem(700, 300, 512, layout="tt", out_dtype="fp32", ldb=312, c_offset=3),
        objective=Pareto(("time", "smem"), within=1.5),
    ),
    "clustered": Question(
        Problem(512, 1024, 2048, layout="tt"),
        constraints=constraints(config={"cluster_n": {"in": [2]}}, sms={"max": 77}),
    ),
}


@pytest.mark.parametrize("name", [*QUESTIONS, *LAID_OUT])
def test_a_true_certificate_holds(name: str) -> None:
    document = certified((QUESTIONS | LAID_OUT)[name])
    found = recheck(document)
    assert found == Verdict(True, (), found.checked)
    assert found.checked["legal"] == document["space"]["legal"]
    assert found.checked["configurations"] == document["space"]["configurations"]
    assert recheck(json.loads(json.dumps(document))).holds


def test_what_the_engine_proves_holds() -> None:
    engine = Engine()
    for question in (
        Question(Problem(512, 4096, 4096), top_k=2),
        Question(Problem(128, 2112, 7168), objective=Pareto(("time", "smem"))),
        Question(
            Problem(4096, 4096, 4096),
            objective=Weighted((("time", 1), ("registers", 0.5))),
            constraints=constraints(sms={"max": 120}),
        ),
    ):
        found = recheck(certificate(engine.optimize(question).solution))
        assert found.holds, found.reasons


def test_the_largest_problems_are_rechecked() -> None:
    for question in (
        Question(Problem(2**20, 2**20, 2**20)),
        Question(Problem(1, 1, 2**31 - 8), objective=Lexicographic(("wait",))),
        Question(Problem(2**31 - 1, 1, 8), objective=Pareto(("time", "wait", "smem"))),
    ):
        found = recheck(certified(question))
        assert found.holds, found.reasons


# Nothing in a certificate can be changed.

WRONG: dict[type, tuple[Callable[[Any], Any], ...]] = {
    int: (
        lambda v: v + 1,
        lambda v: v - 1,
        lambda v: -v - 1,
        lambda v: 2 * v + 8,
        lambda v: 10**5000,
        float,
        str,
        bool,
        lambda v: None,
        lambda v: [v],
    ),
    float: (
        lambda v: math.nextafter(v, math.inf),
        lambda v: v * 2 + 0.5,
        lambda v: -v - 0.0,
        lambda v: math.nan,
        lambda v: math.inf,
        int,
        repr,
        lambda v: None,
        lambda v: True,
    ),
    str: (
        lambda v: v + " ",
        lambda v: v[:-1],
        lambda v: v[::-1],
        lambda v: v.upper(),
        lambda v: "\ud800",
        lambda v: 0,
        lambda v: None,
        lambda v: [v],
        lambda v: {v: v},
    ),
    bool: (lambda v: not v, int, str, lambda v: None),
    type(None): (
        lambda v: 0,
        lambda v: 0.0,
        lambda v: False,
        lambda v: "",
        lambda v: [],
        lambda v: {},
    ),
}
SWAPPED_WORDS = {
    "bf16": "fp16",
    "fp16": "bf16",
    "tn": "nt",
    "nt": "nn",
    "cold": "warm",
    "warm": "cold",
    "h200": "h200_datasheet",
    "a6000": "mi300x",
    "calibrated": "paper",
    "paper": "calibrated",
    "lexicographic": "weighted",
    "time": "wait",
    "wait": "smem",
    "sm90_gemm": "paper",
}


def variants(value: Any) -> Iterator[Any]:
    """Every value that differs from ``value`` in one place: another, missing, added, moved."""
    if type(value) is dict:
        yield from (None, [], 0, list(value), value | {"": 0}, value | {"extra": None}, {})
        for name in value:
            yield {key: item for key, item in value.items() if key != name}
            yield {(f"{key}_" if key == name else key): item for key, item in value.items()}
            for changed in variants(value[name]):
                yield value | {name: changed}
    elif type(value) is list:
        yield from (None, {}, 0, "", dict(enumerate(value)), [*value, None], [*value, 0, ""], [])
        for i, item in enumerate(value):
            yield value[:i] + value[i + 1 :]
            yield [*value[:i], item, *value[i:]]
            for changed in variants(item):
                yield [*value[:i], changed, *value[i + 1 :]]
        for i, j in itertools.combinations(range(len(value)), 2):
            moved = list(value)
            moved[i], moved[j] = moved[j], moved[i]
            yield moved
    else:
        yield from (change(value) for change in WRONG[type(value)])
        if type(value) is str and value in SWAPPED_WORDS:
            yield SWAPPED_WORDS[value]


def text(document: Any) -> str | None:
    """The document's JSON text; None where it has none."""
    try:
        return json.dumps(document, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None


def is_true(document: Document) -> bool:
    """Whether the solver itself certifies this very document."""
    try:
        objective = {k: v for k, v in document["objective"].items() if k != "units"}
        asked = certified(
            Question(
                Problem(**document["problem"]),
                device=document["device"]["name"],
                model=document["model"],
                top_k=document["top_k"],
                cache=document["cache"],
                divergence=document["divergence"],
                objective=objective_from_dict(objective),
                constraints=Constraints.from_dict(document["constraints"]),
            )
        )
    except (InvalidInput, AttributeError, KeyError, TypeError, ValueError):
        return False
    return text(asked) == text(document)


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers kept by question, as most changes leave the question as it is."""
    for name in ("legal_space", "allowed_space", "find_answer"):
        compute, kept = getattr(verdict, name), {}

        def keep(*asked: Any, compute: Any = compute, kept: Any = kept) -> Any:
            key = tuple(id(each) if isinstance(each, Space) else repr(each) for each in asked)
            if key not in kept:
                kept[key] = compute(*asked)
            return kept[key]

        monkeypatch.setattr(verdict, name, keep)


def digested(document: Document) -> Document:
    """The document with a digest that fits, where it has a text to have one of."""
    try:
        return signed(document)
    except (TypeError, ValueError, RecursionError):
        return document


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("name", QUESTIONS)
def test_any_change_is_refused_with_a_reason(name: str) -> None:
    question = QUESTIONS[name]
    document = certified(dataclasses.replace(question, top_k=min(3, question.top_k)))
    before = copy.deepcopy(document)
    refused = 0
    for member in document:
        without = {key: value for key, value in document.items() if key != member}
        changes = (document | {member: value} for value in variants(document[member]))
        for changed in (without, *changes):
            if text(changed) == text(document):
                continue
            assert not recheck(changed).holds
            if member == "sha256":
                continue
            found = recheck(digested(changed))
            if found.holds:
                assert member in verdict.ASKED
                assert is_true(digested(changed)), (member, changed[member])
                continue
            refused += 1
            if member not in verdict.ASKED:
                assert any(reason.startswith(member) for reason in found.reasons), member
    assert refused > 300
    assert document == before
    assert recheck(document).holds


@pytest.mark.usefixtures("remembered")
def test_a_question_changed_into_another_true_one_is_the_only_change_that_holds() -> None:
    document = certified(QUESTIONS["weighted"])
    for path, value in (("smem_bytes", {"max": 150_001}), ("config", {"stages": {"max": 5}})):
        changed = copy.deepcopy(document)
        changed["constraints"][path] = value
        assert recheck(signed(changed)).holds == is_true(signed(changed))
    changed = copy.deepcopy(document)
    changed["constraints"]["smem_bytes"]["max"] = 150_001
    assert recheck(signed(changed)).holds
    assert not recheck(changed).holds


def test_the_second_best_is_refused_however_consistent_its_certificate() -> None:
    document = certified(Question(SMALL, top_k=64))
    second = document["alternatives"][-1]
    assert second["gap"] > 0
    lie = document | {
        "top_k": 1,
        "alternatives": [],
        "config": second["config"],
        "predicted": {
            "time_us": second["time_us"],
            "wait_us": second["wait_us"],
            "tflops": SMALL.flops / second["time_us"] / 1e6,
        },
        "kernel": document["kernel"]
        | {name: second[name] for name in ("smem_bytes", "registers_per_thread")},
    }
    found = recheck(signed(lie))
    assert not found.holds
    assert any("config does not come first" in reason for reason in found.reasons)
    assert any(
        reason.startswith(f"predicted.time_us must be {document['predicted']['time_us']!r}")
        for reason in found.reasons
    )


def test_a_configuration_outside_the_space_is_told_from_one_that_constraints_exclude() -> None:
    document = certified(QUESTIONS["weighted"])
    for field, value, words in (
        ("stages", 2, "breaks the constraints"),
        ("tile_n", 7, "is not a legal configuration"),
        ("cluster_m", 2, "is not a legal configuration"),
    ):
        changed = document | {"config": document["config"] | {field: value}}
        reasons = recheck(signed(changed)).reasons
        assert any(reason.startswith(f"config {words}") for reason in reasons)
        assert any(reason.startswith(f"config.{field} must be") for reason in reasons)


def test_a_front_that_leaves_a_point_out_is_refused() -> None:
    document = certified(QUESTIONS["front"])
    assert len(document["front"]) > 2
    short = document | {"front": document["front"][:-1], "front_size": document["front_size"] - 1}
    assert not recheck(signed(short)).holds


def test_a_solver_that_prices_wrongly_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = solver_pick.end_ticks
    monkeypatch.setattr(solver_pick, "end_ticks", lambda pipeline: honest(pipeline) + 1)
    found = recheck(certified(Question(SMALL)))
    assert any(reason.startswith("predicted.time_us must be") for reason in found.reasons)


@pytest.fixture
def nothing_kept() -> Iterator[None]:
    """No rows are kept that another solver worked out, before and after."""
    work_rows.cache_clear()
    yield
    work_rows.cache_clear()


@pytest.mark.usefixtures("nothing_kept")
def test_a_solver_that_forgets_a_limit_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = sm90_gemm_legality.launch_limits

    def forgetful(*args: Any) -> Any:
        return tuple(limit for limit in honest(*args) if limit.field != "tile_m")

    monkeypatch.setattr(sm90_gemm_legality, "launch_limits", forgetful)
    found = recheck(certified(Question(SMALL)))
    named = {reason.partition(" ")[0] for reason in found.reasons}
    assert {"space.legal", "space.configurations", "table_sha256"} <= named


def test_reasons_are_the_same_each_time_and_few() -> None:
    document = certified(QUESTIONS["tiny"])
    emptied = signed(document | {"alternatives": [{}] * len(document["alternatives"])})
    first = recheck(emptied).reasons
    assert first == recheck(emptied).reasons
    assert len(first) <= verdict.REASONS_MAX + 1
    assert first[-1].endswith("more")


# No document raises.


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def looped() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


NO_CERTIFICATES = [
    None,
    True,
    0,
    1.5,
    "certificate",
    [],
    {},
    [{}],
    {"format": "warpwright-certificate/1"},
    {1: 2, None: 3, "sha256": ""},
    10**5000,
    nested(100_000),
]


@pytest.mark.parametrize("document", NO_CERTIFICATES, ids=lambda d: str(type(d).__name__))
def test_what_is_no_certificate_does_not_hold_and_does_not_raise(document: Any) -> None:
    found = recheck(document)
    assert not found.holds
    assert found.reasons


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize(
    "value",
    [nested(100_000), looped(), {1: 2, "a": 3}, 10**5000, -(10**400), math.nan, math.inf, "\ud800"],
    ids=["deep", "looped", "keys", "long", "huge", "nan", "inf", "surrogate"],
)
def test_no_value_in_any_place_raises(value: Any) -> None:
    document = certified(QUESTIONS["front_cut"])

    def places(node: Any) -> Iterator[Callable[[Any], None]]:
        if type(node) in (dict, list):
            for key in list(node) if type(node) is dict else range(len(node)):
                yield lambda item, key=key: node.__setitem__(key, item)
                yield from places(node[key])

    count = len(list(places(document)))
    assert count > 80
    for i in range(count):
        changed = copy.deepcopy(document)
        next(itertools.islice(places(changed), i, None))(value)
        for each in (changed, digested(changed)):
            if text(each) != text(document):
                found = recheck(each)
                assert not found.holds
                assert found.reasons


def test_questions_that_no_one_may_ask_are_refused() -> None:
    document = certified(Question(SMALL))
    paper = certified(Question(SMALL, model="paper"))
    for base, member, value in (
        (document, "model", "exact"),
        (document, "divergence", 2.0),
        (document, "problem", document["problem"] | {"k": 4097}),
        (document, "problem", document["problem"] | {"m": 2**31 - 1, "n": 2**31 - 1}),
        (document, "problem", document["problem"] | {"layout": "tt"}),  # B is longer along n
        (document, "problem", document["problem"] | {"layout": "mk"}),
        (document, "problem", document["problem"] | {"out_dtype": "fp64"}),
        (document, "problem", document["problem"] | {"out_dtype": None}),
        (document, "problem", document["problem"] | {"lda": 4095}),
        (document, "problem", document["problem"] | {"ldb": 2**31}),
        (document, "problem", document["problem"] | {"ldc": 28671}),
        (document, "problem", document["problem"] | {"ldc": None}),
        (document, "problem", document["problem"] | {"a_offset": 8}),
        (document, "problem", document["problem"] | {"b_offset": -1}),
        (document, "problem", document["problem"] | {"out_dtype": "fp32", "c_offset": 4}),
        (document, "problem", document["problem"] | {"c_offset": True}),
        (document, "device", document["device"] | {"name": "a100"}),
        (document, "device", document["device"] | {"name": "../families/sm90_gemm_registers"}),
        (document, "top_k", 65),
        (document, "constraints", {"sms": {}}),
        (document, "constraints", {"config": {}}),
        (document, "constraints", {"config": {"family": {"in": [1]}}}),
        (document, "constraints", {"config": {"stages": {"in": [4, 3]}}}),
        (document, "constraints", {"config": {"stages": {"in": [3, 3]}}}),
        (document, "constraints", {"config": {"stages": {"in": list(range(65))}}}),
        (document, "constraints", {"smem_bytes": {"max": 2**31}}),
        (document, "constraints", {"smem_bytes": {"max": 1}}),
        (document, "objective", {"kind": "lexicographic", "order": ["time", "time"]}),
        (document, "objective", {"kind": "weighted", "weights": {"time": 1}}),
        (document, "objective", {"kind": "weighted", "weights": {}, "units": {}}),
        (document, "objective", {"kind": "pareto", "axes": ["time"], "within": 0.9, "cap": 1}),
        (paper, "problem", paper["problem"] | {"layout": "nn", "lda": 16}),
        (paper, "problem", paper["problem"] | {"out_dtype": "fp32"}),
        (paper, "problem", paper["problem"] | {"lda": 4097}),
        (paper, "problem", paper["problem"] | {"ldc": 28673}),
        (paper, "problem", paper["problem"] | {"b_offset": 1}),
        (paper, "cache", "warm"),
        (paper, "divergence", 33),
        (paper, "constraints", {"registers_per_thread": {"max": 255}}),
    ):
        found = recheck(signed(base | {member: value}))
        assert any(reason.startswith(member) for reason in found.reasons), (member, value)
