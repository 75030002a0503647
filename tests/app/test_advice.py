"""/v1/advise and ``warpwright advise``: three ways of asking, one answer, and docs/advice.md."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest
from fastapi.testclient import TestClient

from app.advice import FORMS
from app.cli.main import main
from app.schemas.advice import EXAMPLES, AdviseAnswer, FiguresRequest, ReasonShape
from solver.advice import ncu_metrics, thresholds
from solver.advice.figures import KernelFigures
from tests.app.conftest import service
from tests.app.test_cli import run_json
from tests.solver.ncu_exports import ROWS, details, raw

ROUTE = "/v1/advise"
PROBLEM, KERNEL = EXAMPLES
DOC = (Path(__file__).parents[2] / "docs" / "advice.md").read_text("utf-8")


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("app.host", "kernels.verify"):
        monkeypatch.setattr(f"{module}.host_gpu", lambda: None)


def asked(client: TestClient, **body: Any) -> AdviseAnswer:
    response = client.post(ROUTE, json=body)
    assert response.status_code == 200, response.text
    timings = response.headers["server-timing"]
    assert re.fullmatch(r"advise;dur=.*, queue;dur=.*, total;dur=.*", timings)
    return AdviseAnswer.model_validate_json(response.content)


def test_a_problem_is_answered_by_races_beside_it_or_by_the_model(client: TestClient) -> None:
    answer = asked(client, **PROBLEM)
    assert (answer.verdict, answer.source, answer.device.name) == ("no", "races", "h200")
    assert [reason.reason for reason in answer.reasons] == ["slower", "latency_hidden"]
    assert [each.kind for each in answer.kernels] == ["plain", "strong", "ring", "specialised"]
    starved = asked(client, **PROBLEM, warps_per_sm=8)
    assert starved.source == "model"
    assert (starved.verdict == "undecided") == (starved.missing == ["verification"])
    raced = {"rows": 65536, "width": 1024, "activation": "poly", "degree": 128}
    crowded = asked(client, **{**PROBLEM, **raced}, warps_per_sm=8, rival="strong")
    assert crowded.verdict == "specialise"
    assert [words.partition("(")[2].partition(")")[0] for words in crowded.notes] == [
        "latency_hidden"
    ]
    assert crowded.present_us is not None
    assert crowded.gain is not None
    assert crowded.gain.expected > 1.01


def test_a_problem_is_answered_by_its_kernels_figures(client: TestClient) -> None:
    answer = asked(client, **PROBLEM, device="a100")
    assert (answer.verdict, answer.source, answer.device.name) == ("no", "figures", "a100")
    assert [reason.reason for reason in answer.reasons] == ["latency_hidden"]
    assert answer.kernels == []
    assert answer.problem is not None
    assert answer.problem["rows"] == 131072
    assert answer.config is not None
    assert answer.config["kind"] == "strong"
    assert answer.launch is None


def test_figures_of_a_starved_kernel_say_divide(client: TestClient) -> None:
    answer = asked(client, **KERNEL)
    assert answer.verdict == "specialise"
    assert answer.gain is not None
    assert answer.gain.low > 1.1
    assert answer.present_us is not None
    assert answer.present_us.measured
    assert answer.problem is answer.config is answer.launch is None


@pytest.mark.parametrize(("page", "notes"), [(raw, 0), (details, 1)])
def test_a_launch_of_an_export_is_advised_on(client: TestClient, page: Any, notes: int) -> None:
    answer = asked(client, ncu_csv=page(ids=("0", "1")), kernel="transform")
    assert answer.launch is not None
    assert (answer.launch.id, len(answer.notes)) == ("1", notes)
    assert answer.figures.resident_warps == pytest.approx(7.91)
    assert answer.verdict == "specialise"


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({}, "op", "exactly one of op, figures and ncu_csv must be given, got none"),
        ({"rows": 3}, "op", "exactly one of"),
        ({**PROBLEM, **KERNEL}, "figures", "got op and figures"),
        ({**KERNEL, "rows": 3}, "rows", "does not go with figures"),
        ({**KERNEL, "kernel": "k"}, "kernel", "does not go with figures"),
        ({**KERNEL, "cache": "cold"}, "cache", "does not go with figures"),
        ({"op": "gemm", "rows": 1, "width": 1}, "op", "must be one of norm_activation"),
        ({"op": "norm_activation", "rows": 1}, "width", "is required"),
        ({**PROBLEM, "rows": 0}, "rows", "must be between 1 and 2147483647, got 0"),
        ({**PROBLEM, "width": 2**20}, "width", "must be between 1 and 65536"),
        ({**PROBLEM, "degree": 3}, "degree", "0 unless activation is poly"),
        ({**PROBLEM, "cache": "hot"}, "cache", "must be one of cold, warm"),
        ({**PROBLEM, "rows": "3"}, "rows", "must be an integer between 1 and 2147483647"),
        ({**PROBLEM, "rows": None}, "rows", "got null"),
        ({**PROBLEM, "figures": None}, "figures", "got null"),
        ({**PROBLEM, "warps_per_sm": 3}, "warps_per_sm", "between 4 and 64"),
        ({**PROBLEM, "rival": "cublas"}, "rival", "must be one of like_warps, strong, plain"),
        ({**KERNEL, "rival": "plain"}, "rival", "does not go with figures"),
        ({**PROBLEM, "colour": 1}, "colour", "is no field"),
        ({**PROBLEM, "device": "mi300x"}, "device", "advice is for a100"),
        ({**PROBLEM, "device": "abacus"}, "device", "must be one of"),
        ({"figures": {}}, "figures.threads_per_block", "is required"),
        ({"figures": 3}, "figures", "must be a JSON object"),
        ({"figures": KERNEL["figures"] | {"time_us": -1}}, "figures.time_us", "between 0.001"),
        ({"figures": KERNEL["figures"] | {"time_us": "1"}}, "figures.time_us", "a number between"),
        ({"figures": KERNEL["figures"] | {"grid_blocks": 0}}, "figures.grid_blocks", "between 1"),
        (
            {"figures": KERNEL["figures"] | {"smem_per_block_bytes": 2**19}},
            "figures.smem_per_block_bytes",
            "must be at most 232448 on this device",
        ),
        ({"figures": KERNEL["figures"] | {"time_us": 10}}, "figures.time_us", "at least 223.7"),
        ({**KERNEL, "device": "a6000"}, "figures.time_us", "must be at least 1398"),
        (
            {"figures": KERNEL["figures"] | {"resident_warps": 9}},
            "figures.resident_warps",
            "must be at most 8",
        ),
        ({"ncu_csv": "no"}, "ncu_csv", "has no header"),
        (
            {"ncu_csv": raw().replace('"640.00"', '"10.00"')},
            "ncu_csv.time_us",
            "must be at least 222.3",
        ),
        ({"ncu_csv": raw(ids=("0", "1"))}, "kernel", "must name one launch by its ID"),
        ({"ncu_csv": raw(), "device": "a100"}, "device", "compute capability is 9.0"),
    ],
)
def test_a_wrong_request_is_told_which_member(
    client: TestClient, body: dict[str, Any], field: str, words: str
) -> None:
    response = client.post(ROUTE, json=body)
    assert response.status_code == 422, response.text
    error = response.json()["errors"][0]
    assert error["field"] == field
    assert words in error["message"]


def test_an_export_may_be_larger_than_other_bodies_up_to_a_limit_of_its_own() -> None:
    with service(body_bytes=1024, advise_body_bytes=20_000) as client:
        assert client.post(ROUTE, json={"ncu_csv": raw()}).status_code == 200
        large = client.post(ROUTE, json={"ncu_csv": raw() + "x" * 20_000})
        assert large.status_code == 413
        assert "at most 20000 bytes" in large.json()["detail"]


def test_the_command_lines_answers_are_the_services(
    capsys: pytest.CaptureFixture[str], client: TestClient, tmp_path: Path
) -> None:
    figures, export = tmp_path / "kernel.json", tmp_path / "profile.csv"
    figures.write_text(json.dumps(KERNEL["figures"]))
    export.write_text(raw(ids=("0", "1")), "utf-8")
    problem = {"op": "norm_activation", "rows": 4096, "width": 1024, "dtype": "bf16"}
    problem |= {"norm": "rms", "activation": "poly", "degree": 32, "cache": "warm"}
    problem |= {"warps_per_sm": 8, "rival": "plain"}
    options = [
        word
        for name, value in problem.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    for words, body in (
        (["--figures", str(figures)], KERNEL),
        (["--figures", str(figures), "--device", "h20"], {**KERNEL, "device": "h20"}),
        (["--ncu", str(export), "--kernel", "1"], {"ncu_csv": export.read_text(), "kernel": "1"}),
        (options, problem),
    ):
        code, answer = run_json(capsys, "advise", *words)
        assert code == 0
        assert answer == client.post(ROUTE, json=body).json()


def test_the_pages_figures_are_asked_about_as_it_says(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, client: TestClient
) -> None:
    """Over HTTP the body as it stands, on the command line a file of what is under `figures`."""
    body = next(
        each
        for each in map(json.loads, re.findall(r"```json\n(.*?)```", DOC, re.S))
        if "figures" in each
    )
    file = tmp_path / "kernel.json"
    file.write_text(json.dumps(body["figures"]), "utf-8")
    assert main(["advise", "--figures", str(file), "--json"]) == 0
    answer = client.post(ROUTE, json=body).json()
    assert json.loads(capsys.readouterr().out) == answer
    for whole in (body, answer):
        file.write_text(json.dumps(whole), "utf-8")
        assert main(["advise", "--figures", str(file), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == answer


def test_a_person_is_shown_the_verdict_its_reasons_and_what_would_decide(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["advise", "--op", "norm_activation", "--rows", "131072", "--width", "1024"]) == 0
    out = capsys.readouterr().out
    for words in (
        "layer norm and gelu of 131072 rows of 1024 in fp32, on NVIDIA H200",
        "don't divide the warps",
        "latency_hidden",
        "waits on loads: no",
        "stages: yes",
        "times as fast",
    ):
        assert words in out
    words = ["--rows", "32768", "--width", "2048", "--warps-per-sm", "8"]
    assert main(["advise", "--op", "norm_activation", *words]) == 0
    out = capsys.readouterr().out
    assert "of 32768 rows of 2048 in fp32 with 8 warps on an SM, on NVIDIA" in out
    assert re.search(r"would decide\s+the kinds raced on the GPU: warpwright verify", out)
    export = tmp_path / "profile.csv"
    rows = tuple(row for row in ROWS if not row[1].startswith("Compute"))
    text = details(rows).replace("transform(", "[/bold]transform\x1b(")
    export.write_text(text, "utf-8")
    assert main(["advise", "--ncu", str(export)]) == 0
    out = capsys.readouterr().out
    assert "launch 1, [/bold]transform?(const float" in out
    assert re.search(r"would decide\s+flops", out)
    assert "all that memory moved is taken to be read" in out


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ([], "arguments"),
        (["--figures", "a", "--op", "norm_activation"], "arguments"),
        (["--figures", "/nowhere.json"], "figures"),
        (["--ncu", "/nowhere.csv"], "ncu_csv"),
        (["--ncu", __file__], "ncu_csv"),
        (["--op", "norm_activation", "--rows", "x"], "rows"),
        (["--op", "norm_activation", "--rows", "0", "--width", "8"], "rows"),
        (["--op", "norm_activation", "--rows", "8", "--width", "8", "--kernel", "k"], "kernel"),
        (["--op", "norm_activation", "--rows", "8", "--width", "8", "--dtype", "int8"], "dtype"),
    ],
)
def test_wrong_words_exit_2_and_name_the_field(
    capsys: pytest.CaptureFixture[str], words: list[str], field: str
) -> None:
    code, body = run_json(capsys, "advise", *words)
    assert code == 2
    assert body["errors"][0]["field"] == field


BLOCKS = re.findall(r"```(\w*)\n(.*?)```", DOC, re.DOTALL)
QUESTIONS = [json.loads(text) for language, text in BLOCKS if language == "json"]


def test_the_questions_of_the_page_are_answered(client: TestClient) -> None:
    assert len(QUESTIONS) == 2
    for question in QUESTIONS:
        asked(client, **question)


def test_the_commands_of_the_page_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kernel.json").write_text(json.dumps(QUESTIONS[0]))
    Path("profile.csv").write_text(raw(ids=("0", "1")))
    commands = [line for language, text in BLOCKS if language == "sh" for line in text.splitlines()]
    assert len(commands) == 4
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "warpwright"
        assert main(words) == 0, command
    capsys.readouterr()


def test_the_page_has_every_figure_reason_threshold_and_member() -> None:
    for name in FiguresRequest.model_fields:
        assert f"`{name}`" in DOC
    for reason in get_args(ReasonShape.model_fields["reason"].annotation):
        assert f"`{reason}`" in DOC
    for name in (*AdviseAnswer.model_fields, *FORMS):
        assert f"`{name}`" in DOC or f'"{name}"' in DOC, name
    for each in vars(thresholds).values():
        if isinstance(each, thresholds.Threshold):
            unit = " us" if each.unit == "us" else ""
            assert f"| {each.name} | {each.value:g}{unit} |" in DOC
        if isinstance(each, thresholds.Overlap):
            for values in (each.whole, each.lesser):
                shown = {values.low, values.expected, values.high}
                assert all(f"{value:g}" in DOC for value in shown)
    for names in vars(ncu_metrics).values():
        if isinstance(names, tuple):
            for name in names:
                if isinstance(name, str) and name.startswith(("gpu__time", "launch__", "lts__")):
                    assert f"`{name}`" in DOC


def test_the_figures_asked_for_are_the_solvers() -> None:
    ours = {field.name: field.default for field in dataclasses.fields(KernelFigures)}
    assert FiguresRequest.model_fields.keys() == ours.keys()
    for name, field in FiguresRequest.model_fields.items():
        assert field.is_required() == (ours[name] is dataclasses.MISSING), name
        assert field.is_required() or field.default == ours[name], name
