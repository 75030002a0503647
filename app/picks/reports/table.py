"""A report for a person at a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from app.picks.change import Change
from app.picks.locking import Made
from app.picks.report import Report
from app.picks.step import Status, Step

LOG_COLUMNS = 180

STYLES = {
    Status.HOLDS: "green",
    Status.FAILS: "bold red",
    Status.LACKS: "bold yellow",
    Status.SKIPPED: "dim",
}


def show_report(console: Console, report: Report) -> None:
    """A line for each pick, then in words what does not hold."""
    where = f", run on {report.where}" if report.where else ""
    table = Table(box=box.SIMPLE, title=escape(f"{report.picks_file}{where}"), title_justify="left")
    table.add_column("")
    table.add_column("pick", overflow="fold")
    table.add_column("configuration", overflow="fold")
    table.add_column("predicted, µs", justify="right")
    table.add_column("steps")
    for pick in report.picks:
        predicted = "-" if pick.predicted_us is None else f"{pick.predicted_us:.2f}"
        status = Text(str(pick.status), STYLES[pick.status])
        words = (Text(pick.name), Text(pick.config), predicted, _steps(pick.steps))
        table.add_row(status, *words)
    if not console.is_terminal:  # a log has no width: a line for each pick is easier to search
        console.width = max(console.width, LOG_COLUMNS)
    console.print(table)
    for step in report.whole:
        if step.status in (Status.FAILS, Status.LACKS):
            _tell(console, report.lock_file, step)
    for pick in report.picks:
        for step in pick.steps:
            if step.status in (Status.FAILS, Status.LACKS):
                _tell(console, pick.name, step)
    console.print(f"{report.verdict} ({report.elapsed_s:.1f} s)", markup=False, highlight=False)


def _steps(steps: tuple[Step, ...]) -> Text:
    text = Text()
    for step in steps:
        word = step.name if step.status is Status.HOLDS else f"{step.name}: {step.status}"
        text.append(f"{', ' if text else ''}{word}", STYLES[step.status])
    return text


def _tell(console: Console, of: str, step: Step) -> None:
    words = Text.assemble(
        (f"{step.status} ", STYLES[step.status]), (of, "bold"), f", {step.name}: {step.words}"
    )
    console.print(words, soft_wrap=True)


def show_made(console: Console, path: str, made: Made, written: bool) -> None:
    """What became of a lock."""
    count = len(made.document["picks"])
    for cause in made.causes:
        console.print(f"changed: {cause}", markup=False, highlight=False, soft_wrap=True)
    for change in made.changes:
        console.print(_words(change), markup=False, highlight=False, soft_wrap=True)
    said = "written" if written else "left as it is"
    noun = "pick" if count == 1 else "picks"
    console.print(f"{path}: {count} {noun}, {said}", markup=False, highlight=False, soft_wrap=True)


def _words(change: Change) -> str:
    return f"{change.kind}: {change.name}: {change.words}"
