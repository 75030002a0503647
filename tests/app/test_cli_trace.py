"""warpwright verify --trace, the GPU itself left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from app.cli.main import main
from app.store.job import Outcome
from kernels.host import HostGpu
from kernels.verify import VerificationRequest
from tests.app.traces import trace

SHAPE = ("512", "512", "512")
Ran = Callable[[Outcome], list[VerificationRequest]]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Has verifications come out so, and collects what was asked for."""

    def arrange(outcome: Outcome) -> list[VerificationRequest]:
        asked: list[VerificationRequest] = []

        def verify_here(request: VerificationRequest, **_: Any) -> Outcome:
            asked.append(request)
            return outcome

        gpu = HostGpu("NVIDIA H200", "GPU-0", "580", 2**37, (9, 0), 1980, ())
        monkeypatch.setattr("app.cli.gpu.require_gpu", lambda: (gpu, "h200"))
        monkeypatch.setattr("app.cli.gpu.verify_here", verify_here)
        return asked

    return arrange


def test_a_trace_is_asked_for_and_comes_whole_as_json(
    ran: Ran, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ran(Outcome("passed", None, {"median_us": 5.0, "trace": trace()}))
    assert main(["verify", *SHAPE, "--trace", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trace"] == trace()
    assert [request.trace for request in asked] == [True]


def test_a_person_is_told_a_trace_in_a_line(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    ran(Outcome("passed", None, {"median_us": 5.0, "trace": trace()}))
    assert main(["verify", *SHAPE, "--trace"]) == 0
    out = capsys.readouterr().out
    assert "MATH waits" in out
    assert "load_issue" not in out


def test_a_picture_is_written_and_asks_for_a_trace(
    ran: Ran, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ran(Outcome("passed", None, {"median_us": 5.0, "trace": trace()}))
    file = tmp_path / "trace.svg"
    assert main(["verify", *SHAPE, "--trace-svg", str(file)]) == 0
    assert ElementTree.fromstring(file.read_text("utf-8")).tag.endswith("svg")
    assert [request.trace for request in asked] == [True]


def test_a_verification_that_fails_before_its_trace_writes_no_picture(
    ran: Ran, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ran(Outcome("failed", "wrong_result", {"details": "wrong", "trace": None}))
    file = tmp_path / "trace.svg"
    assert main(["verify", *SHAPE, "--trace-svg", str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["trace"] is None
    assert not file.exists()


def test_without_the_option_nothing_is_traced(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ran(Outcome("passed", None, {"median_us": 5.0, "trace": None}))
    assert main(["verify", *SHAPE]) == 0
    assert [request.trace for request in asked] == [False]


def test_a_picture_that_can_not_be_written_takes_no_result_with_it(
    ran: Ran, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ran(Outcome("passed", None, {"median_us": 5.0, "trace": trace()}))
    file = tmp_path / "none" / "trace.svg"
    assert main(["verify", *SHAPE, "--trace-svg", str(file), "--json"]) == 3
    told = capsys.readouterr()
    assert json.loads(told.out)["median_us"] == 5.0
    assert "can't be written" in told.err
