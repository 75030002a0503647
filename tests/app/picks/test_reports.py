"""What JUnit's readers and GitHub are given: words of whoever wrote a file stay words."""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from app.cli.main import main
from app.errors import EnvironmentLacks
from app.picks.report import PickReport, Report
from app.picks.reports.github import SUMMARY_BYTES_MAX, append_summary, error_commands, summary
from app.picks.reports.junit import junit
from app.picks.reports.text import command_data, command_property, markdown, xml_text
from app.picks.step import Status, Step
from tests.app.picks.tools import PICKS, edit, lock_of, locked

NASTY = "<b>&\"'|`*_[x](y)@me #1 ::error::%0A ]]> ~ \x1b[31m \x00 \ud800 \ufffe é\r\n::stop"


def reported(words: str = NASTY, name: str = NASTY, picks: int = 1) -> Report:
    steps = (
        Step("lock", Status.HOLDS, words, 0.5),
        Step("compile", Status.FAILS, words),
        Step("numerics", Status.LACKS, words),
        Step("regret", Status.SKIPPED, words),
    )
    each = PickReport(name, words, 1.5, steps)
    return Report(name, "picks.lock.json", words, (steps[1],), (each,) * picks, 1.0)


def test_junit_has_a_case_for_each_step_and_any_words() -> None:
    root = ElementTree.fromstring(junit(reported()))
    (suite,) = root
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "2",
        "errors": "1",
        "skipped": "1",
    }
    whole, *cases = suite
    assert (whole.get("classname"), whole.get("name")) == ("picks.lock.json", "compile")
    assert [[child.tag for child in case] for case in cases] == [
        ["system-out"],
        ["failure"],
        ["error"],
        ["skipped"],
    ]
    assert cases[0].get("time") == "0.500"
    text = str(cases[1][0].text)
    assert text.startswith(
        "<b>&\"'|`*_[x](y)@me #1 ::error::%0A ]]> ~ \\x1b[31m \\x00 \\ud800 \\ufffe é"
    )


def test_a_workflow_command_is_one_line_whose_properties_end_where_they_should() -> None:
    lines = error_commands(reported(), "", {})
    assert len(lines) == 2
    for line in lines:
        assert "\n" not in line
        assert "\r" not in line
        command, properties, message = re.fullmatch(r"::(\w+) (.*?)::(.*)", line).groups()  # type: ignore[union-attr]
        assert command == "error"
        assert [each.partition("=")[0] for each in properties.split(",")] == [
            "file",
            "line",
            "title",
        ]
        decoded = message.replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%")
        assert xml_text(NASTY) in decoded
    assert command_property("a:b,c%\n") == "a%3Ab%2Cc%25%0A"
    assert command_data("a:b,c%\r\n") == "a:b,c%25%0D%0A"


def test_too_many_annotations_are_counted_in_the_last() -> None:
    lines = error_commands(reported(picks=30), "", {})
    assert len(lines) == 10
    assert lines[-1].endswith("::and 22 more; the job's summary has them all")


def test_an_annotation_is_at_the_picks_line_of_the_lock_from_the_repositorys_root(
    tmp_path: Path,
) -> None:
    (tmp_path / "ci").mkdir()
    path = locked(tmp_path / "ci")
    text = lock_of(path).read_text("utf-8")
    report = Report(
        str(path),
        str(lock_of(path)),
        None,
        (),
        (PickReport("fp16", "", None, (Step("lock", Status.FAILS, "no"),)),),
        1.0,
    )
    (line,) = error_commands(report, text, {"GITHUB_WORKSPACE": str(tmp_path)})
    number = 1 + text.splitlines().index('   "name": "fp16",')
    assert line == (
        f"::error file=ci/picks.lock.json,line={number},title=warpwright%3A fp16::lock: no"
    )
    (outside,) = error_commands(report, text, {"GITHUB_WORKSPACE": str(tmp_path / "other")})
    assert f"file={lock_of(path)}," in outside


def test_a_summary_holds_no_markup_of_others() -> None:
    text = summary(reported())
    for line in text.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (4, 6), line
    plain = re.sub(r"&#\d+;|&\w+;", "", text)
    for forbidden in ("<b>", "`", "[x]", "@me", "~ "):
        assert forbidden not in plain
    assert " ".join(xml_text(NASTY).split()) in html.unescape(text)
    assert markdown("a\nb|c") == "a b&#124;c"


def test_a_summary_is_cut_where_github_would_refuse_it(tmp_path: Path) -> None:
    text = summary(reported(picks=4000))
    assert len(text.encode()) <= SUMMARY_BYTES_MAX
    assert re.search(r"and \d+ more lines\n$", text)


def test_a_summary_is_appended_and_where_it_cant_be_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    append_summary(reported(), {"GITHUB_STEP_SUMMARY": str(path)})
    assert path.read_text("utf-8").startswith("before\n### ❌ Warpwright: ")
    append_summary(reported(), {})
    with pytest.raises(EnvironmentLacks, match="can't be written: Is a directory"):
        append_summary(reported(), {"GITHUB_STEP_SUMMARY": str(tmp_path)})


@pytest.mark.parametrize("as_json", [False, True])
def test_in_github_annotations_and_a_summary_come_by_themselves(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    as_json: bool,
) -> None:
    text = PICKS.replace('"small"', '"::warning::%0A <x> & small"')
    path = locked(tmp_path, text)
    edit(path, lambda d: d["picks"][0]["config"].update(stages=99))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    capsys.readouterr()
    words = ["--junit", str(tmp_path / "out.xml"), *(["--json"] if as_json else [])]
    assert main(["check", str(path), "--jobs", "1", *words]) == 1
    captured = capsys.readouterr()
    said = captured.err if as_json else captured.out
    commands = [line for line in said.splitlines() if line.startswith("::")]
    if not as_json:
        # What others' words could begin is not read as a command.
        token = commands[0].removeprefix("::stop-commands::")
        assert commands[1] == f"::{token}::"
        commands = commands[2:]
    (command,) = commands
    assert command.startswith("::error file=picks.lock.json,line=")
    assert "config.stages: must be" in command
    assert "title=warpwright%3A %3A%3Awarning%3A%3A%250A <x> & small::" in command
    assert "&#60;x&#62; &#38; small" in (tmp_path / "summary.md").read_text("utf-8")
    names = {case.get("classname") for case in ElementTree.parse(tmp_path / "out.xml").iter()}
    assert "::warning::%0A <x> & small" in names


def test_annotations_come_where_they_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = locked(tmp_path)
    edit(path, lambda d: d.update(model_version="2"))
    capsys.readouterr()
    assert main(["check", str(path), "--jobs", "1", "--github"]) == 1
    assert "::error file=" in capsys.readouterr().out


def test_what_ends_before_there_is_a_report_is_an_annotation_and_in_the_summary_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(text))
    path = locked(tmp_path)
    lock_of(path).write_text("{")
    assert main(["check", str(path), "--github"]) == 2
    assert main(["check", str(locked(tmp_path)), "--github", "--gpu"]) == 3
    errors = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    assert [line.partition("=")[0] for line in errors] == ["::error file", "::error file"]
    assert "picks.lock.json: is no JSON: " in errors[0]
    assert "no NVIDIA GPU" in errors[1]
    told = html.unescape(text.read_text("utf-8"))
    unread, without = told.split("### ⚠️ Warpwright: ")[1:]
    assert "|" not in told
    assert "no pick was checked; check: " in unread
    assert "is no JSON" in unread
    assert "no NVIDIA GPU" in without
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))  # can't be written
    assert main(["check", str(path), "--github", "--gpu"]) == 3
    assert "no NVIDIA GPU" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--gpu"], 3, "no NVIDIA GPU"),
        (["--server", "http://127.0.0.1:9"], 3, "no service answers"),
        (["--server", "nowhere"], 2, "must be an address"),
        ([], 2, "is no JSON"),
    ],
)
def test_what_ends_before_there_is_a_report_leaves_no_earlier_ones_xml(
    tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    path, xml = locked(tmp_path), tmp_path / "out.xml"
    asked = ["check", str(path), "--jobs", "1", "--junit", str(xml)]
    assert main(asked) == 0
    if not words:
        lock_of(path).write_text("{")
    assert main([*asked, *words]) == code
    (suite,) = ElementTree.parse(xml).getroot()
    (case,) = suite
    (error,) = case
    assert (suite.get("tests"), suite.get("errors"), error.tag) == ("1", "1", "error")
    assert said in str(error.text)


def test_xml_that_cant_be_written_exits_3_where_no_pick_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = locked(tmp_path)
    asked = ["check", str(path), "--jobs", "1", "--junit", str(tmp_path / "no" / "x")]
    assert main(asked) == 3
    assert "can't be written" in capsys.readouterr().err
    edit(path, lambda d: d["picks"][0]["config"].update(stages=99))
    assert main(asked) == 1
    assert "can't be written" in capsys.readouterr().err
