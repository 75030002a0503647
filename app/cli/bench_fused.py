"""bench fused: what the recorded norm_activation grid says of advice, model and divided warps."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from app.cli.arguments import add_device, add_json, device_of
from app.cli.bench_accuracy import add_results
from app.cli.layout import pairs
from app.cli.session import OK, Session
from solver.device import load_profile
from solver.families.norm_activation_rivals import RIVAL_WORDS


def add_kind(kinds: Any) -> None:
    """Register this module's kind of bench."""
    fused_ = kinds.add_parser(
        "fused",
        help="advice, predicted times and picks over the recorded norm_activation grid; no GPU",
    )
    add_device(fused_)
    add_results(fused_)
    fused_.add_argument(
        "--fitted",
        action="store_true",
        help="over problems that constants may be fitted to alone; looks at nothing held out",
    )
    add_json(fused_)
    fused_.set_defaults(run=fused_command)


def fused_command(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright bench fused``; exits 3 where no grid was recorded."""
    from app.fused import fused  # here: no other command needs it

    device = load_profile(device_of(arguments)).name
    with session.progress("asking for advice") as bar:
        result = fused(device, arguments.results, fitted=arguments.fitted, progress=bar)
    session.emit(result, lambda console: _show(console, result))
    return OK


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _show(console: Console, result: Mapping[str, Any]) -> None:
    names = ("mean_ape", "p95_ape", "max_ape")
    errors = ", ".join(_percent(result[name]) for name in names)
    unseen = ", ".join(_percent(result[f"{name}_heldout"]) for name in names)
    regret = f"{_ratio(result['regret_mean'])}, {_ratio(result['regret_worst'])}"
    regret_unseen = (
        f"{_ratio(result['regret_mean_heldout'])}, {_ratio(result['regret_worst_heldout'])}"
    )
    natural = result["specialised_wins_natural"]
    console.print(
        pairs(
            f"Divided warps over {result['problems']} problems of norm_activation",
            [
                ("held out of every fit", f"{result['problems_heldout']}"),
                ("rows, of which failed", f"{result['rows']:,}, {result['failed_rows']:,}"),
                (
                    "specialised wins, of which at natural occupancy",
                    f"{result['specialised_wins']}, {natural}",
                ),
                ("error of predicted times: mean, p95, max", errors),
                ("  of held-out problems", unseen),
                ("regret of the model's pick: mean, worst", regret),
                ("  of held-out problems", regret_unseen),
            ],
        )
    )
    for rival, words in RIVAL_WORDS.items():
        _show_advice(console, f"Advice against {words}", result["against"][rival])
    _table(
        console,
        "What is said of divided warps",
        ("", "over", "held", "median ratio", "least", "most"),
        [
            (
                line["claim"],
                line["over"],
                f"{line['held']} of {line['problems']}",
                *(_ratio(line[name]) for name in ("median", "least", "most")),
            )
            for line in result["claims"]
        ],
    )


def _show_advice(console: Console, title: str, figures: Mapping[str, Any]) -> None:
    rows = [
        (verdict, *(str(count) for count in row.values()))
        for verdict, row in figures["confusion"].items()
    ]
    _table(console, title, ("advice", "won", "lost", "tied within 2 %"), rows)
    names = ("advice_right", "right_when_yes", "right_when_no")
    for words, part in (("all", figures), ("held out", figures["heldout"])):
        shares = ", ".join(_percent(part[name]) for name in names)
        console.print(
            f"  a verdict on {_percent(part['coverage'])} of {part['decided']} decided; right of "
            f"these, where it won, lost ({words}): {shares}; undecided as wrong: "
            f"{_percent(part['advice_right_all'])}; by the sign alone: "
            f"{_percent(part['sign_right'])}"
        )
    gains = ", ".join(_ratio(figures[f"gain_{name}"]) for name in ("least", "median", "most"))
    console.print(f"  measured gain: least, median, most: {gains}")


def _table(
    console: Console, title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]]
) -> None:
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for column in columns:
        table.add_column(column, justify="left" if column in ("", "advice", "over") else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
