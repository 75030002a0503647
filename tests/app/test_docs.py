"""The examples of docs/api.md work as they stand."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

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
