"""Learning the winner on the command line, and what takes no notice of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from app.errors import StoreUnavailable
from app.store.job import Outcome
from app.store.measurements import MeasurementStore
from kernels.process import Outcome as Ended
from kernels.process import OutcomeKind
from kernels.verify import VerificationRequest, contest_record
from tests.app.conftest import sqlite_url
from tests.app.picks.tools import lock_of, scratch
from tests.app.races import H200, last_is_fastest, outcome

SIZE = ("512", "512", "512")
Run = Callable[..., Any]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command beside an H200 on which the last candidate of a race is the fastest; what it
    prints as JSON."""
    for module in ("app.host", "kernels.verify"):
        monkeypatch.setattr(f"{module}.host_gpu", lambda: H200)
    monkeypatch.delenv("WARPWRIGHT_DATABASE", raising=False)

    def verify(request: VerificationRequest, **_: Any) -> Outcome:
        return outcome(request, last_is_fastest(request))

    monkeypatch.setattr("app.cli.gpu.verify_here", verify)

    def go(*words: str, code: int = 0) -> Any:
        assert main([*words, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    return go


@pytest.fixture
def remembering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Path:
    """A database, named to every command from here on."""
    monkeypatch.setenv("WARPWRIGHT_DATABASE", sqlite_url(tmp_path))
    return tmp_path / "warpwright.db"


def test_what_verify_found_is_what_optimize_answers(run: Run, remembering: Path) -> None:
    before = run("optimize", *SIZE)
    assert before["source"] == "model"
    assert not remembering.exists()  # an answer makes no database
    record = run("verify", *SIZE, "--top-k", "5")
    assert record["measurement"] == 1
    assert len(record["contest"]["candidates"]) == 5
    assert record["drift"]["found"] is None
    after = run("optimize", *SIZE)
    assert after["source"] == "measured"
    assert after["config"] == record["contest"]["candidates"][-1]["config"]
    assert after["model_pick"]["config"] == before["config"]
    assert run("optimize", *SIZE, "--model-only") == before


def test_what_was_measured_is_told_where_the_database_can_not_remember_it(
    run: Run, remembering: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(store: MeasurementStore, measured: Any) -> Any:
        raise StoreUnavailable("the database can't be used: database is locked")

    monkeypatch.setattr(MeasurementStore, "add", away)
    record = run("verify", *SIZE, "--top-k", "3", code=3)
    assert record["contest"]["beats_pick"]
    assert "measurement" not in record


def test_a_person_is_told_why_a_race_was_not_run_to_its_end(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def verify(request: VerificationRequest, **_: Any) -> Outcome:
        ended = outcome(request, last_is_fastest(request))
        hung = Ended(OutcomeKind.TIMEOUT, 1.0, message="killed at its deadline")
        ended.result["contest"] = contest_record(request, hung)
        return ended

    monkeypatch.setattr("app.cli.gpu.verify_here", verify)
    assert main(["verify", *SIZE, "--top-k", "3"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "was not run to its end: timeout: killed at its deadline" in told
    assert "None of them ran" not in told
    assert "failed" not in told.partition("The race")[2]


def test_a_person_is_told_of_the_race_and_of_the_pick(
    run: Run, remembering: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", *SIZE, "--top-k", "3"]) == 0
    out = capsys.readouterr().out
    assert "over the pick" in out
    assert "Number 3 is surely faster than the pick: timed afresh, 0.800" in out
    assert main(["optimize", *SIZE]) == 0
    out = capsys.readouterr().out
    assert "the model's pick" in out
    assert "the proof is of it" in out


def test_without_a_database_nothing_is_remembered(run: Run) -> None:
    assert "measurement" not in run("verify", *SIZE, "--top-k", "3")
    assert run("optimize", *SIZE)["source"] == "model"


def test_a_configuration_of_ones_own_is_not_raced(run: Run, remembering: Path) -> None:
    config = '{"family": "sm90_gemm", "tile_m": 64, "tile_n": 64, "tile_k": 64, "stages": 4}'
    error = run("verify", *SIZE, "--config", config, "--top-k", "2", code=2)
    assert error["errors"][0]["field"] == "top_k"
    assert run("verify", *SIZE, "--top-k", "17", code=2)["errors"][0]["field"] == "top_k"
    assert "measurement" not in run("verify", *SIZE, "--config", config)


def test_a_database_that_can_not_be_used_is_said_and_not_passed_over(
    run: Run, remembering: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembering.write_text("no database")
    assert "database" in run("optimize", *SIZE, code=3)["detail"]
    assert run("optimize", *SIZE, "--model-only")["source"] == "model"
    monkeypatch.setenv("WARPWRIGHT_DATABASE", "mysql://here")
    assert run("optimize", *SIZE, code=2)["errors"][0]["field"] == "WARPWRIGHT_DATABASE"


def test_locks_tables_certificates_and_explanations_take_no_notice_of_what_was_measured(
    run: Run, remembering: Path, tmp_path: Path
) -> None:
    def made(name: str) -> list[Any]:
        folder = tmp_path / name
        folder.mkdir()
        shapes = folder / "shapes.csv"
        shapes.write_text("m,n,k\n512,512,512\n")
        picks = scratch(folder)
        run("lock", str(picks), "--jobs", "1")
        run("table", "--shapes", str(shapes), "--out", str(folder / "table.json"))
        proved = run("optimize", *SIZE, "--certificate", str(folder / "proof.json"))
        files = (lock_of(picks), folder / "table.json", folder / "proof.json")
        return [proved, run("explain", "64", "64", "64"), *(file.read_bytes() for file in files)]

    before = made("before")
    run("verify", *SIZE, "--top-k", "5")
    run("verify", "64", "64", "64", "--top-k", "5")
    assert run("optimize", *SIZE)["source"] == "measured"
    assert made("after") == before
    assert before[0]["source"] == "model"
