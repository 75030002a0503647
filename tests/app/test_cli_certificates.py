"""optimize --certificate and recheck: what is proved is written, what was changed is found."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from app.cli.documents import write_whole
from app.cli.main import main
from tests.app.test_cli import run_json

SIZE = ("256", "256", "256")
CONSTRAINED = ["--constraints", '{"sms":{"max":20},"config":{"stages":{"max":4}}}']
QUESTIONS = [
    ["--top-k", "3"],
    [*CONSTRAINED, "--objective", '{"kind":"weighted","weights":{"time":1,"smem":0.1}}'],
    [*CONSTRAINED, "--objective", '{"kind":"pareto","axes":["time","smem"],"cap":2}'],
    ["--model", "paper", "--device", "a6000", "--divergence", "2"],
]


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("app.host", "kernels.verify"):
        monkeypatch.setattr(f"{module}.host_gpu", lambda: None)


@pytest.fixture
def certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The certificate of a small question."""
    file = tmp_path / "certificate.json"
    words = ["--model", "paper", "--device", "a6000", "--certificate", str(file), "--json"]
    assert main(["optimize", *SIZE, *words]) == 0
    capsys.readouterr()
    return file


@pytest.mark.parametrize("words", QUESTIONS)
def test_a_certificate_is_written_beside_the_answer_and_holds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    file = tmp_path / "certificate.json"
    plain = run_json(capsys, "optimize", *SIZE, *words)
    assert run_json(capsys, "optimize", *SIZE, *words, "--certificate", str(file)) == plain
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert json.loads(file.read_text("utf-8"))["config"] == plain[1]["config"]
    code, verdict = run_json(capsys, "recheck", str(file))
    assert (code, verdict["holds"], verdict["reasons"]) == (0, True, [])
    assert verdict["checked"]["legal"] >= verdict["checked"]["configurations"] > 0
    assert main(["recheck", str(file)]) == 0
    assert "The certificate holds" in capsys.readouterr().out


def test_a_person_is_told_where_the_certificate_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "[red]certificate.json"
    words = ["--model", "paper", "--device", "a6000", "--certificate", str(file)]
    assert main(["optimize", *SIZE, *words]) == 0
    assert str(file) in capsys.readouterr().out.replace("\n", "")
    assert file.exists()


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with one member replaced."""
    copy = json.loads(json.dumps(document))
    *above, last = path.split(".")
    place = copy
    for name in above:
        place = place[name]
    place[last] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("config.stages", 2, "config"),
        ("predicted.time_us", 1.0, "predicted.time_us"),
        ("space.legal", 1, "space.legal"),
        ("problem.m", 257, "sha256"),
        ("format", "another", "format"),
        ("sha256", "0" * 64, "sha256"),
        ("table_sha256", None, "table_sha256"),
    ],
)
def test_a_changed_certificate_is_refuted_with_a_reason(
    capsys: pytest.CaptureFixture[str], certificate: Path, path: str, value: Any, named: str
) -> None:
    document = json.loads(certificate.read_text("utf-8"))
    certificate.write_text(json.dumps(changed(document, path, value)))
    code, verdict = run_json(capsys, "recheck", str(certificate))
    assert (code, verdict["holds"]) == (1, False)
    assert any(named in reason for reason in verdict["reasons"])
    assert main(["recheck", str(certificate)]) == 1
    out = capsys.readouterr().out
    assert "does not hold" in out
    assert named in out


@pytest.mark.parametrize("value", [[], None, 1, "text", {}, {"format": "warpwright-certificate/1"}])
def test_json_that_is_no_certificate_is_refuted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, value: Any
) -> None:
    file = tmp_path / "other.json"
    file.write_text(json.dumps(value))
    code, verdict = run_json(capsys, "recheck", str(file))
    assert (code, verdict["holds"]) == (1, False)
    assert verdict["reasons"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "must be JSON"),
        (b"{", "must be JSON"),
        (b"\xff\xfe\xff", "can't be read"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'{"a": 1, "a": 1}', "twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 5000, "too many digits"),
        (b'{"\\ud800": 1}', "half a character"),
    ],
)
def test_a_file_that_is_no_json_exits_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes, words: str
) -> None:
    file = tmp_path / "broken.json"
    file.write_bytes(content)
    code, body = run_json(capsys, "recheck", str(file))
    assert (code, body["errors"][0]["field"]) == (2, "file")
    assert words in body["errors"][0]["message"]


@pytest.mark.parametrize("name", ["missing.json", ".", "\0"])
def test_a_file_that_can_not_be_read_exits_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    code, body = run_json(capsys, "recheck", f"{tmp_path}/{name}")
    assert (code, body["errors"][0]["field"]) == (2, "file")


def test_an_answer_that_ran_out_of_time_is_not_certified(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "certificate.json"
    words = ["optimize", "4096", "4096", "4096", "--time-limit-ms", "1", "--certificate", str(file)]
    assert main([*words, "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["proof"]["status"] == "timeout"
    assert "no certificate: the time limit came before the end of the proof" in captured.err
    assert not list(tmp_path.iterdir())


def test_an_answer_without_proof_is_not_certified(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "certificate.json"
    code, body = run_json(capsys, "optimize", *SIZE, "--proof", "none", "--certificate", str(file))
    assert (code, body["errors"][0]["field"]) == (2, "proof")
    assert not file.exists()


def test_what_can_not_be_had_leaves_no_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "certificate.json"
    words = ["--constraints", '{"smem_bytes":{"max":1}}', "--certificate", str(file)]
    assert run_json(capsys, "optimize", *SIZE, *words)[0] == 1
    assert not file.exists()


def test_a_certificate_that_can_not_be_written_exits_3(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["--model", "paper", "--device", "a6000"]
    for file in (tmp_path / "no" / "folder.json", tmp_path, "\0", "."):
        code, body = run_json(capsys, "optimize", *SIZE, *words, "--certificate", str(file))
        assert (code, body["type"]) == (3, "urn:warpwright:problem:environment")
    assert not list(tmp_path.iterdir())


def test_an_older_certificate_is_replaced_whole(
    capsys: pytest.CaptureFixture[str], certificate: Path
) -> None:
    before = certificate.read_bytes()
    certificate.write_text("old")
    words = ["--model", "paper", "--device", "a6000", "--certificate", str(certificate)]
    assert run_json(capsys, "optimize", *SIZE, *words)[0] == 0
    assert certificate.read_bytes() == before


def test_a_device_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, b"certificate")
    assert os.read(reader, 100) == b"certificate"
    os.close(reader)
    assert pipe.is_fifo()
    link.symlink_to(target)
    write_whole(link, b"certificate")
    assert (link.is_symlink(), target.read_bytes()) == (True, b"certificate")
