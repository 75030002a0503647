"""The examples of docs/api.md work as they stand."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from app.cli.main import main
from app.problem_documents import KINDS, URN, ProblemDocument
from app.schemas.questions import ConfigRequest, OptimizeRequest, ProblemRequest

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
    assert client.post("/v1/optimize", json=question).json() == shown
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
