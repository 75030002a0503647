"""What GitHub Actions reads: annotations on the lock's lines, and the job's summary."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from app.errors import EnvironmentLacks
from app.picks.report import PickReport, Report
from app.picks.reports.text import command_data, command_property, markdown
from app.picks.step import Status

ERRORS_SHOWN = 10
"""GitHub shows so many errors of a step and drops the rest."""
SUMMARY_BYTES_MAX = 1 << 20
"""GitHub refuses a longer summary of a step."""

BAD = (Status.FAILS, Status.LACKS)


def error_commands(report: Report, lock_text: str, environment: Mapping[str, str]) -> list[str]:
    """Workflow commands: an error for each pick that does not hold, the last of too many counts
    the others."""
    found = [
        error_command(report.lock_file, 1, "lock", step.words, environment)
        for step in report.whole
        if step.status in BAD
    ]
    lines = _name_lines(lock_text)
    for pick in report.picks:
        bad = [step for step in pick.steps if step.status in BAD]
        if bad:
            line = lines.get(pick.name, 1)
            words = "\n".join(f"{step.name}: {step.words}" for step in bad)
            found.append(error_command(report.lock_file, line, pick.name, words, environment))
    if len(found) > ERRORS_SHOWN:
        left = len(found) - ERRORS_SHOWN + 1
        words = f"and {left} more; the job's summary has them all"
        found[ERRORS_SHOWN - 1 :] = [error_command(report.lock_file, 1, "more", words, environment)]
    return found


def error_command(
    path: str, line: int, title: str, words: str, environment: Mapping[str, str]
) -> str:
    """The workflow command of one error at a line of a file."""
    properties = {
        "file": _in_repository(path, environment),
        "line": str(line),
        "title": f"warpwright: {title}",
    }
    listed = ",".join(f"{name}={command_property(value)}" for name, value in properties.items())
    return f"::error {listed}::{command_data(words)}"


def _in_repository(path: str, environment: Mapping[str, str]) -> str:
    """A path as GitHub names files: from the repository's root, where it is in there."""
    workspace = environment.get("GITHUB_WORKSPACE")
    with suppress(OSError, ValueError):
        if workspace:
            return Path(path).resolve().relative_to(Path(workspace).resolve()).as_posix()
    return path


def _name_lines(lock_text: str) -> dict[str, int]:
    """The line of the lock on which each pick's name is, as `warpwright lock` writes it."""
    lines: dict[str, int] = {}
    for number, line in enumerate(lock_text.splitlines(), start=1):
        key, _, value = line.strip().partition(": ")
        if key == '"name"':
            with suppress(ValueError):
                lines.setdefault(str(json.loads(value.removesuffix(","))), number)
    return lines


@contextmanager
def commands_stopped(active: bool) -> Iterator[None]:
    """Around lines that hold others' words: GitHub takes none of them for a command."""
    if not active:
        yield
        return
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", flush=True)
    try:
        yield
    finally:
        print(f"::{token}::", flush=True)


def summary(report: Report) -> str:
    """The job's summary: Markdown, a row for each pick, then what does not hold."""
    mark = {Status.HOLDS: "✅", Status.FAILS: "❌", Status.LACKS: "⚠️"}
    where = f" on {markdown(report.where)}" if report.where else ""
    lines = [
        f"### {mark[report.status]} Warpwright: {markdown(report.picks_file)}{where}",
        "",
        markdown(report.verdict),
        "",
    ]
    if report.picks:
        lines += [
            "| | pick | configuration | predicted | steps |",
            "|---|---|---|---|---|",
            *(_row(pick, mark[pick.status]) for pick in report.picks),
            "",
        ]
    bad = [(pick.name, step) for pick in report.picks for step in pick.steps if step.status in BAD]
    if bad:
        lines += ["| pick | step | what is wrong |", "|---|---|---|"]
        lines += [
            f"| {markdown(name)} | {markdown(step.name)} | {markdown(step.words)} |"
            for name, step in bad
        ]
        lines.append("")
    return _cut(lines)


def _row(pick: PickReport, mark: str) -> str:
    predicted = "" if pick.predicted_us is None else f"{pick.predicted_us:.2f} µs"
    steps = ", ".join(
        step.name if step.status is Status.HOLDS else f"**{markdown(step.name)} {step.status}**"
        for step in pick.steps
    )
    return f"| {mark} | {markdown(pick.name)} | {markdown(pick.config)} | {predicted} | {steps} |"


def _cut(lines: list[str]) -> str:
    """The lines that fit, and a last one that says how many don't."""
    size = 0
    for number, line in enumerate(lines):
        size += len(line.encode()) + 1
        if size > SUMMARY_BYTES_MAX - 100:
            return "\n".join([*lines[:number], "", f"and {len(lines) - number} more lines", ""])
    return "\n".join([*lines, ""])


def append_summary(report: Report, environment: Mapping[str, str]) -> None:
    """Append to the file that GITHUB_STEP_SUMMARY names, where it names one.

    Raises EnvironmentLacks where that can't be written.
    """
    path = environment.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with open(path, "ab") as file:
            file.write(summary(report).encode("utf-8", "backslashreplace"))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise EnvironmentLacks(f"the job's summary {path} can't be written: {why}") from error


def in_github(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this is a step of GitHub Actions."""
    return environment.get("GITHUB_ACTIONS") == "true"
