"""bench accuracy: how far the model is from what was measured, and what its picks cost."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from app.cli.arguments import add_device, add_json, device_of
from app.cli.layout import pairs
from app.cli.session import OK, Session
from solver.device import load_profile
from solver.raced import TOP_COUNT

PARTS = {"paper": "the paper's protocol, warm", "llm": "the LLM suite and further shapes, cold"}
GROUPS = {"by_split": "held out by", "by_suite": "suite", "by_m": "m", "by_kind": "operands"}


def add_kind(kinds: Any) -> None:
    """Register this module's kind of bench."""
    accuracy_ = kinds.add_parser(
        "accuracy", help="prediction error and regret over the recorded ground truth; no GPU"
    )
    add_device(accuracy_)
    add_results(accuracy_)
    accuracy_.add_argument(
        "--fitted",
        action="store_true",
        help="over what constants are fitted to alone; looks at nothing that is held out",
    )
    add_json(accuracy_)
    accuracy_.set_defaults(run=accuracy_command)


def add_results(parser: argparse.ArgumentParser) -> None:
    """``--results``."""
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="folder of what was measured; bench/results/DEVICE of the checkout",
    )


def accuracy_command(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright bench accuracy``."""
    from app.accuracy import accuracy  # here, with what it reads: no other command needs them
    from app.recorded import read_recorded
    from solver.accuracy import FITTED, HELD_OUT

    device = load_profile(device_of(arguments)).name
    recorded = read_recorded(device, arguments.results)
    which = FITTED if arguments.fitted else HELD_OUT
    with session.progress("looking up picks") as bar:
        result = accuracy(recorded, device, which, bar)
    session.emit(result, lambda console: _show(console, result))
    return OK


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _error_rows(part: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What is shown of a part, line by line."""
    yield "all", part
    if not part["rows"]:
        return
    yield "without noisy rows", part["quiet"]
    for group, words in GROUPS.items():
        for name, figures in part[group].items():
            yield f"{words} {name}", figures
    for name, figures in part["peers"].items():
        yield name, figures
        yield "  times one constant", figures["scaled"]
        yield f"  the model on {name}'s rows", figures["model_on_the_same"]


def _show(console: Console, result: Mapping[str, Any]) -> None:
    rows = result["rows"].replace("_", "-")
    for name, words in PARTS.items():
        part = result[name]
        title = f"Prediction error over {rows} rows: {words}"
        table = Table(title=title, title_justify="left", box=box.SIMPLE)
        table.add_column("", no_wrap=True)
        for column in ("rows", "mean", "p95", "max"):
            table.add_column(column, justify="right", no_wrap=True)
        for label, figures in _error_rows(part):
            errors = (_percent(figures[key]) for key in ("mean_ape", "p95_ape", "max_ape"))
            table.add_row(label, f"{figures['rows']:,}", *errors)
        console.print(table)
        if part["rows"] and part["noise"]["rows"]:
            noise = part["noise"]
            console.print(
                f"Measured twice, {noise['rows']:,} of these rows were {noise['median']:.1%} apart "
                f"in the median, {noise['p95']:.1%} at p95; {noise['noisy_rows']:,} rows are noisy."
            )
    regret, against = result["regret"], result["pick_vs_cublas"]
    lines = [
        ("shapes, of which unmeasured", f"{regret['shapes']}, {regret['unmeasured']}"),
        ("the pick: geomean, worst", _pair(regret, "geomean", "worst")),
        ("best of the first five", _pair(regret, "top5_geomean", "top5_worst")),
        (
            f"best of the five that top_k {TOP_COUNT} races",
            _pair(regret, "contest_geomean", "contest_worst"),
        ),
        (
            f"after verifying each with top_k {TOP_COUNT}, on {regret['learnt_shapes']} shapes",
            _pair(regret, "learnt_geomean", "learnt_worst")
            if regret["learnt_shapes"]
            else "not run",
        ),
        *(
            (f"{name}'s pick, on {peer['shapes']} shapes", _pair(peer, "geomean", "worst"))
            for name, peer in regret["peers"].items()
        ),
        *(
            (f"among measured rows, {name}", _pair(each, "geomean", "worst"))
            for name, each in regret["over_measured"].items()
        ),
    ]
    console.print(pairs("Regret", lines))
    shapes = f"{against['shapes']}, {against['unmeasured']}, {against['stale']}"
    lines = [
        ("shapes, of which unmeasured, stale", shapes),
        ("cuBLAS over the pick: geomean, worst", _pair(against, "geomean", "worst")),
    ]
    console.print(pairs("Against cuBLAS", lines))
    console.print(f"Held out: {result['held_out']}.", markup=False)


def _pair(figures: Mapping[str, Any], *names: str) -> str:
    return ", ".join(_ratio(figures[name]) for name in names)
