"""The examples of docs/api.md work as they stand."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.cli.main import main
from app.problem_documents import KINDS, URN, ProblemDocument
from app.schemas.questions import ConfigRequest, OptimizeRequest, ProblemRequest
from solver.config import Config
from solver.device import load_profile
from solver.errors import IllegalConfig
from solver.families import paper
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.problem import Problem

TEXT = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", TEXT, re.DOTALL)
DOCUMENTS = [json.loads(text) for language, text in BLOCKS if language == "json"]
COMMANDS = [
    line for language, text in BLOCKS if language == "sh" for line in text.strip().splitlines()
]


CURLS = [
    line for language, text in BLOCKS if language == "bash" for line in text.strip().splitlines()
]


def section(title: str) -> str:
    """The text under a heading, up to the next of its rank."""
    rank = title.split()[0]
    return re.split(rf"^{rank} ", TEXT.partition(f"{title}\n")[2], flags=re.MULTILINE)[0]


@pytest.mark.parametrize("question", [each for each in DOCUMENTS if "m" in each])
def test_every_question_is_answered(client: TestClient, question: dict[str, Any]) -> None:
    assert client.post("/v1/optimize", json=question).status_code == 200


def test_the_answer_shown_is_the_first_questions(client: TestClient) -> None:
    """Every member is there and in the answer; figures that are shown are the figures."""

    def held(shown: Any, real: Any, path: str) -> None:
        if isinstance(shown, dict):
            assert {name for name in shown if name != "..."} <= set(real), path
            assert "..." in shown or set(shown) == set(real), path
            for name in shown:
                if name != "...":
                    held(shown[name], real[name], f"{path}.{name}")
        elif isinstance(shown, float):
            assert f"{real:.1f}" == f"{shown:.1f}", path
        elif isinstance(shown, list) and shown:
            held(shown[0], real[0], path)
        elif isinstance(shown, str) and shown.endswith("..."):
            assert real.startswith(shown.removesuffix("...")), path
        else:
            assert shown == real, path

    question = next(each for each in DOCUMENTS if "m" in each)
    shown = next(each for each in DOCUMENTS if "predicted" in each)
    held(shown, client.post("/v1/optimize", json=question).json(), "answer")


def test_the_conflict_shown_is_a_real_one(client: TestClient) -> None:
    shown = next(each for each in DOCUMENTS if "core" in each)
    question = {"m": 4096, "n": 4096, "k": 4096, "constraints": {"smem_bytes": {"max": 9830}}}
    response = client.post("/v1/optimize", json=question)
    request = f"urn:warpwright:request:{response.headers['x-request-id']}"
    assert response.json() == {**shown, "instance": request}
    ProblemDocument.model_validate(shown)


def test_every_command_works(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) > 3
    for command in COMMANDS:
        program, *words = shlex.split(command)
        assert program == "warpwright"
        assert main(words) == 0, command
    capsys.readouterr()
    assert main(["recheck", "pick.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) in DOCUMENTS


def curl(client: TestClient, words: list[str], folder: Path) -> Any:
    """What a curl command of the document gets, asked without curl."""
    options = argparse.ArgumentParser(exit_on_error=False)
    options.add_argument("url")
    options.add_argument("-N", action="store_true")
    options.add_argument("-G", dest="get", action="store_true")
    options.add_argument("-H", dest="headers", action="append", default=[])
    options.add_argument("-d", dest="data", action="append", default=[])
    options.add_argument("--data-urlencode", dest="encoded", action="append", default=[])
    options.add_argument("--etag-save")
    options.add_argument("--etag-compare")
    given = options.parse_args(words)
    headers = dict(header.split(": ", 1) for header in given.headers)
    if given.etag_compare is not None:
        headers["If-None-Match"] = (folder / given.etag_compare).read_text()
    if given.data and not given.get:
        return client.post(given.url, content="&".join(given.data), headers=headers)
    pairs = [quote(each, safe="=") for each in given.encoded]
    url = "?".join([given.url, "&".join([*given.data, *pairs])]).rstrip("?")
    response = client.get(url, headers=headers)
    if given.etag_save is not None:
        (folder / given.etag_save).write_text(response.headers["etag"])
    return response


def test_every_curl_command_works(client: TestClient, tmp_path: Path) -> None:
    assert len(CURLS) > 3
    for command in CURLS:
        program, *words = shlex.split(command)
        assert program == "curl"
        response = curl(client, words, tmp_path)
        if "--etag-compare" in words:
            assert (response.status_code, response.content) == (304, b"")
        else:
            assert response.status_code == 200, command
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert sorted((line["index"], "answer" in line) for line in lines) == [
        (0, True),
        (1, True),
        (2, False),
    ]


def test_every_field_and_every_kind_of_problem_is_in_its_table() -> None:
    optimize = section("## POST /v1/optimize")
    for name in ProblemRequest.model_fields:
        assert f"`{name}`" in section("## The problem")
    for name in set(OptimizeRequest.model_fields) - set(ProblemRequest.model_fields):
        assert f"| `{name}`" in optimize
    for name in ConfigRequest.model_fields:
        assert f"`{name}`" in section("## A configuration")
    for kind in KINDS:
        assert f"| {kind.status} | " in section("## Errors")
        assert f"`{kind.type.removeprefix(URN)}`" in section("## Errors")


def table_of_values() -> dict[str, list[str]]:
    """The cells of each field of a configuration: its values in both families, its default."""
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", section("## A configuration"), re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}


def numbers(cell: str) -> set[int]:
    """The integers that a cell lists, ends of a range included."""
    first, _, last = cell.partition(" to ")
    return set(range(int(first), int(last) + 1)) if last else set(map(int, cell.split(", ")))


TABLE = table_of_values()
NUMBERS = [name for name in TABLE if name != "family"]
TRIED = np.arange(400)


def domain(**columns: Any) -> Any:
    """Which of these columns of fields the Hopper family's domain has; the rest is usual."""
    usual = Config(family.NAME, 64, 16, 64, 3).to_dict()
    whole = np.broadcast_arrays(*(columns.get(name, usual[name]) for name in NUMBERS))
    limits = legality.domain_limits(dict(zip(NUMBERS, whole, strict=True)))
    return np.logical_and.reduce([np.broadcast_to(limit.holds, whole[0].shape) for limit in limits])


@pytest.mark.parametrize("name", NUMBERS)
def test_the_values_of_a_field_are_those_of_the_families(name: str) -> None:
    ours, published, default, _ = TABLE[name]
    shapes, clusters = np.array(family.TILE_SHAPES), np.array(family.CLUSTERS)
    others = {
        "tile_m": shapes[:, 0, None, None],
        "math_warpgroups": shapes[:, 1, None, None],
        "cluster_m": clusters[:, 0, None],
        "cluster_n": clusters[:, 1, None],
    }
    allowed = domain(**others | {name: TRIED})
    assert numbers(ours) == set(TRIED[allowed.any(axis=(0, 1))].tolist())

    def is_published(value: int) -> bool:
        config = dataclasses.replace(Config(paper.NAME, 64, 64, 64, 1), **{name: value})
        try:
            paper.check(config, Problem(512, 512, 512), load_profile("a100"))
        except IllegalConfig:
            return False
        return True

    assert numbers(published) == {int(value) for value in TRIED if is_published(int(value))}
    field = ConfigRequest.model_fields[name]
    assert default == ("required" if field.is_required() else str(field.default))


def test_the_values_that_go_together_are_those_of_the_family() -> None:
    text = " ".join(section("## A configuration").split())
    for fields in (("tile_m", "math_warpgroups"), ("cluster_m", "cluster_n")):
        listed = text.partition(f"(`{fields[0]}`, `{fields[1]}`) ")[2].partition(".")[0]
        said = re.findall(r"\((\d+), (\d+)\)", listed.partition(", and (")[0])
        first, second = fields
        pairs = np.argwhere(domain(**{first: TRIED[:, None], second: TRIED}))
        assert {(int(a), int(b)) for a, b in said} == set(map(tuple, pairs.tolist()))
    assert f"at most {family.ACCUMULATORS_MAX} accumulators" in text
    splits = " or ".join(map(str, family.ROLE_REGISTERS))
    assert f"`register_split` takes {splits} MATH warpgroups" in text
    steps = {legality.step_n("tt", "bf16"), legality.step_n("tn", "fp32"), 2 * family.BOX_STEP}
    assert steps == {16}
    assert "`tile_n` is a multiple of 16" in text
