"""optimize and explain on the command line, with objectives, constraints and time limits."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from app.schemas.answers import OptimizeAnswer
from app.schemas.explanations import ExplainAnswer
from tests.app.test_cli import run_json

SIZE = ("256", "512", "512")
WEIGHTED = {"kind": "weighted", "weights": {"time": 1, "smem": 0.1}}
PARETO = {"kind": "pareto", "axes": ["time", "smem"], "cap": 3}
CONSTRAINTS = {"smem_bytes": {"max": 98304}, "config": {"tile_m": {"in": [64, 128]}}}
NOTHING = {"smem_bytes": {"max": 1000}}


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("app.host", "kernels.verify"):
        monkeypatch.setattr(f"{module}.host_gpu", lambda: None)


def options(**members: Any) -> list[str]:
    """Options with JSON values."""
    return [word for name, value in members.items() for word in (f"--{name}", json.dumps(value))]


def test_objective_and_constraints_are_taken_as_text_and_from_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = options(objective=WEIGHTED, constraints=CONSTRAINTS)
    code, body = run_json(capsys, "optimize", *SIZE, *words)
    assert code == 0
    assert OptimizeAnswer.model_validate(body).score is not None
    assert body["constraints"] == CONSTRAINTS
    files = {}
    for name, value in (("objective", WEIGHTED), ("constraints", CONSTRAINTS)):
        files[name] = tmp_path / f"{name}.json"
        files[name].write_text(json.dumps(value))
    words = [word for name, file in files.items() for word in (f"--{name}", f"@{file}")]
    assert run_json(capsys, "optimize", *SIZE, *words) == (0, body)


def test_the_command_lines_answer_is_the_services(
    capsys: pytest.CaptureFixture[str], client: Any
) -> None:
    words = options(objective=PARETO, constraints=CONSTRAINTS)
    _, body = run_json(capsys, "optimize", *SIZE, *words)
    m, n, k = map(int, SIZE)
    question = {"m": m, "n": n, "k": k, "objective": PARETO, "constraints": CONSTRAINTS}
    assert client.post("/v1/optimize", json=question).json() == body


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (options(objective=WEIGHTED), ["1 x time (µs) + 0.1 x shared memory (KiB)", "score"]),
        (options(objective=PARETO), ["within 1.25 x the least time", "of the front", "smem, B"]),
        (options(constraints=CONSTRAINTS), ["smem_bytes at most 98304", "allowed configurations"]),
        (["--top-k", "3"], ["The next ones", "gap", "time, then MATH wait"]),
        (["--time-limit-ms", "1"], ["timeout", "undecided", "% less time"]),
        (
            [*options(objective={"kind": "lexicographic", "order": ["smem"]}), "--model", "paper"],
            ["shared memory", "none: this model has no kernel"],
        ),
    ],
)
def test_a_person_is_shown_what_was_asked_and_found(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    shown: list[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["optimize", *SIZE, *words]) == 0
    out = capsys.readouterr().out
    assert all(part in out for part in shown), out


@pytest.mark.parametrize("command", ["optimize", "explain"])
def test_what_can_not_be_had_is_a_document_on_standard_output_and_exits_1(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    words = [command, *SIZE, *options(constraints=NOTHING)]
    code, body = run_json(capsys, *words)
    assert code == 1
    assert body["type"] == "urn:warpwright:problem:unsatisfiable"
    assert body["core"] == ["constraints.smem_bytes.max"]
    assert body["relaxations"][0]["given"] == 1000
    assert main(words) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out) == body
    assert "no legal configuration satisfies constraints.smem_bytes.max" in captured.err


def at_a_terminal(*words: str, error_too: bool = True) -> tuple[int, str]:
    """Exit code and what a terminal shows of a command that runs at it."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "app.cli.main", *words]
    process = subprocess.Popen(
        command, stdout=theirs, stderr=theirs if error_too else subprocess.DEVNULL
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # Linux says so at the end
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    return process.wait(60), shown.decode()


@pytest.mark.parametrize("command", ["optimize", "explain"])
def test_at_a_terminal_what_can_not_be_had_is_told_once(command: str) -> None:
    words = [command, *SIZE, *options(constraints=NOTHING)]
    code, shown = at_a_terminal(*words)
    assert code == 1
    assert shown.count("no legal configuration satisfies constraints.smem_bytes.max") == 1
    assert shown.count("smem_bytes") == 2  # what clashes, and what would do
    code, shown = at_a_terminal(*words, "--json", error_too=False)  # which has a progress bar
    assert code == 1
    assert json.loads(shown)["core"] == ["constraints.smem_bytes.max"]


@pytest.mark.parametrize("command", ["optimize", "explain"])
@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--objective", "{"], "objective"),
        (["--objective", "fastest"], "objective"),
        (["--objective", "[]"], "objective"),
        (["--objective", "@/no/such/file"], "objective"),
        (["--objective", "@\0"], "objective"),
        (["--objective", "[" * 100_000], "objective"),
        (["--objective", '{"kind":"weighted","weights":{"time":NaN}}'], "objective"),
        (["--objective", '{"kind":"weighted","kind":"weighted"}'], "objective"),
        (["--objective", '{"kind":"weighted","weights":{"time":1e999}}'], "objective.weights.time"),
        (["--objective", '{"kind":"weighted","weights":{"speed":1}}'], "objective.weights.speed"),
        (["--objective", '{"kind":"lexicographic","order":["time",1]}'], "objective.order.1"),
        (["--objective", '{"kind":"best"}'], "objective.kind"),
        (["--constraints", "5"], "constraints"),
        (["--constraints", '{"sms":{"max":' + "9" * 5000 + "}}"], "constraints"),
        (["--constraints", '{"sms":{"max":"1"}}'], "constraints.sms.max"),
        (["--constraints", '{"config":{"stages":{}}}'], "constraints.config.stages"),
        (
            ["--constraints", '{"config":{"tile_m":{"in":[64,"x"]}}}'],
            "constraints.config.tile_m.in.1",
        ),
        (["--constraints", '{"power_w":{"min":300}}'], "constraints.power_w.min"),
        (["--objective", '{"kind":"lexicographic","ordre":["time"]}'], "objective.ordre"),
        (["--constraints", "@."], "constraints"),
        (["--divergence", "nan"], "divergence"),
        (["--divergence", "2"], "divergence"),
        (["--proof", "maybe"], "proof"),
        (["--cache", "hot"], "cache"),
        (["--model", "x" * 5000], "model"),
        (["--device", ""], "device"),
    ],
)
def test_bad_input_exits_2_and_names_the_path(
    capsys: pytest.CaptureFixture[str], command: str, words: list[str], field: str
) -> None:
    code, body = run_json(capsys, command, "8", "8", "8", *words)
    assert (code, body["status"]) == (2, 422)
    assert body["errors"][0]["field"] == field
    assert len(body["errors"][0]["message"]) < 250


@pytest.mark.parametrize("limit", ["0", "60001", "1.5", "x", "-1"])
def test_a_wrong_time_limit_exits_2(capsys: pytest.CaptureFixture[str], limit: str) -> None:
    code, body = run_json(capsys, "optimize", "8", "8", "8", "--time-limit-ms", limit)
    assert (code, body["errors"][0]["field"]) == (2, "time_limit_ms")


@pytest.mark.parametrize("word", ["--top-k", "--time-limit-ms", "--certificate"])
def test_explain_does_not_take_what_only_answers_have(
    capsys: pytest.CaptureFixture[str], word: str
) -> None:
    code, body = run_json(capsys, "explain", "8", "8", "8", word, "1")
    assert (code, body["errors"][0]["field"]) == (2, "arguments")


def test_explain_prints_its_paragraphs_or_the_body(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", *SIZE, "--model", "paper", "--device", "a6000"]
    code, body = run_json(capsys, *words)
    assert code == 0
    ExplainAnswer.model_validate(body)
    assert main(words) == 0
    out = capsys.readouterr().out
    assert out.split("\n\n")[:-1] == [paragraph.strip() for paragraph in body["text"]]


@pytest.mark.parametrize("command", ["explain", "simulate", "export", "compile"])
def test_commands_of_products_alone_refuse_another_op_by_its_name(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not as an M, which its name would else be taken for."""
    assert main([command, "--op", "norm_activation", "--rows", "5", "--width", "5"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: op: must be gemm here, got 'norm_activation'")
