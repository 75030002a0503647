"""The record of the GPU tests, without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import evidence, gpu_tests

MIXED = """
import pytest

pytestmark = pytest.mark.gpu

@pytest.fixture
def broken():
    raise RuntimeError("no")

@pytest.fixture
def left_open():
    yield
    raise RuntimeError("no")

@pytest.mark.parametrize("n", [1, 2])
def test_right(n): pass
def test_wrong(): assert False
def test_not_set_up(broken): pass
def test_not_torn_down(left_open): pass
@pytest.mark.skip(reason="no")
def test_skipped(): pass
"""
RIGHT = MIXED.partition("def test_wrong")[0]
SKIPPED = RIGHT.replace("pytest.mark.gpu", "[pytest.mark.gpu, pytest.mark.skip]")
UNREADABLE = "import nothing_of_this_name"
NONE = ""


def record_of(
    monkeypatch: pytest.MonkeyPatch, folder: Path, source: str
) -> tuple[int, dict[str, Any]]:
    """Exit code and record where the GPU tests are one file with this source."""
    (folder / "test_file.py").write_text(source, "utf-8")
    monkeypatch.setattr(gpu_tests, "FOLDER", str(folder))
    monkeypatch.setattr(evidence, "about", lambda commit: {"profile": "h200", "commit": commit})
    out = folder / "record.json"
    code = gpu_tests.main(["--out", str(out), "--commit", "abc"])
    return code, json.loads(out.read_text("utf-8"))


def test_every_case_is_recorded_with_its_outcome(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, record = record_of(monkeypatch, tmp_path, MIXED)
    assert code == 1
    assert (record["passed"], record["failed"], record["skipped"]) == (2, 3, 1)
    assert (record["profile"], record["commit"]) == ("h200", "abc")
    assert record["elapsed_s"] > 0
    outcomes = {case["name"].rpartition("::")[2]: case["outcome"] for case in record["cases"]}
    assert outcomes == {
        "test_right[1]": "passed",
        "test_right[2]": "passed",
        "test_wrong": "failed",
        "test_not_set_up": "failed",
        "test_not_torn_down": "failed",
        "test_skipped": "skipped",
    }
    assert all(case["seconds"] >= 0 for case in record["cases"])


@pytest.mark.parametrize(
    ("source", "code", "counts"),
    [
        (RIGHT, 0, {"passed": 2, "failed": 0, "skipped": 0}),
        (SKIPPED, 1, {"passed": 0, "failed": 0, "skipped": 2}),
        (UNREADABLE, 1, {"passed": 0, "failed": 1, "skipped": 0}),
        (NONE, 1, {"passed": 0, "failed": 0, "skipped": 0}),
    ],
)
def test_only_a_run_in_which_something_passed_and_nothing_failed_is_right(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, code: int, counts: dict[str, int]
) -> None:
    got, record = record_of(monkeypatch, tmp_path, source)
    assert got == code
    assert counts.items() <= record.items()


def test_a_run_of_which_pytest_left_no_report_is_not_right(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_tests, "run_pytest", lambda report, files: -9)
    code, record = record_of(monkeypatch, tmp_path, RIGHT)
    assert (code, record["pytest_exit_code"], record["cases"]) == (1, -9, [])


SOURCES = dict.fromkeys(gpu_tests.SAME, "a")


@pytest.fixture
def two_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two files of GPU tests, and where their record goes."""
    (tmp_path / "test_file.py").write_text(RIGHT, "utf-8")
    (tmp_path / "test_other.py").write_text(RIGHT.replace("test_right", "test_new"), "utf-8")
    monkeypatch.setattr(gpu_tests, "FOLDER", str(tmp_path))
    monkeypatch.setattr(evidence, "about", lambda commit: SOURCES | {"commit": commit} | profile())
    return tmp_path / "record.json"


def profile() -> dict[str, str]:
    return {"profile": "h200"}


def test_some_files_are_added_to_the_record_of_the_others(two_files: Path) -> None:
    """What ran again counts once, as do files that are gone; a run of all keeps nothing."""

    def cases(*arguments: str, commit: str = "abc") -> list[str]:
        assert gpu_tests.main(["--out", str(two_files), "--commit", commit, *arguments]) == 0
        record = json.loads(two_files.read_text("utf-8"))
        names = [case["name"].rpartition("::")[2] for case in record["cases"]]
        assert len(names) == record["passed"]
        return [f"{n} {case['commit']}" for n, case in zip(names, record["cases"], strict=True)]

    def ran(name: str, commit: str = "abc") -> list[str]:
        return [f"{name}[{n}] {commit}" for n in (1, 2)]

    assert cases("--files", "test_other.py") == ran("test_new")
    assert cases("--files", "test_file.py") == ran("test_new") + ran("test_right")
    again = cases("--files", "test_other.py", commit="abd")
    assert again == ran("test_right") + ran("test_new", "abd")
    (two_files.parent / "test_file.py").unlink()
    assert cases("--files", "test_other.py") == ran("test_new")
    assert cases(commit="abd") == ran("test_new", "abd")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (json.dumps(SOURCES | {"driver": "b", "cases": [], "elapsed_s": 1}), "another driver"),
        (json.dumps(SOURCES), "no record of the GPU tests"),
        (json.dumps(SOURCES | {"cases": [{}], "elapsed_s": 1}), "no record of the GPU tests"),
        ("[]", "no record of the GPU tests"),
        ("{", "is no JSON"),
    ],
)
def test_a_record_that_can_not_be_added_to_stays_as_it_is(
    two_files: Path, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    two_files.write_text(text, "utf-8")
    with pytest.raises(SystemExit) as left:
        gpu_tests.main(["--out", str(two_files), "--commit", "a", "--files", "test_file.py"])
    assert left.value.code == 2
    assert words in capsys.readouterr().err
    assert two_files.read_text("utf-8") == text


def test_files_that_are_not_there_are_named(
    two_files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        gpu_tests.main(["--out", str(two_files), "--commit", "a", "--files", "test_none.py"])
    assert left.value.code == 2
    assert "test_none.py is no file of" in capsys.readouterr().err
