"""Verifications of norm_activation, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Callable

from rich import box
from rich.console import Console
from rich.table import Table

from app.cli.layout import Body
from app.cli.show import show_record
from app.ops import OPS


def show_rows_verified(console: Console, record: Body) -> None:
    """A verification: what was verified, every kernel beside it, and what their times say."""
    show_record(console, record["status"], record)
    table = Table(
        *("kernel", "predicted, µs", "median, µs", "p95", "p99", "p99/median", "over verified"),
        box=box.SIMPLE,
    )
    for entrant in record["entrants"]:
        table.add_row(*_entrant(entrant, OPS[record["op"]].config_words))
    console.print(table)
    if record["verdict"] is not None:
        console.print(f"Verified: {record['verdict']['words']}.", markup=False)
        console.print(f"Measured: {record['verdict']['specialising']}.", markup=False)


def _entrant(entrant: Body, words: Callable[[Body], str]) -> tuple[str, ...]:
    name = f"{', '.join(entrant['roles'])}: {words(entrant['config'])}"
    predicted = f"{entrant['predicted_us']:.2f}"
    if "median_us" not in entrant:
        return name, predicted, "-", "-", "-", "-", "-"
    return (
        name,
        predicted,
        f"{entrant['median_us']:.2f}",
        f"{entrant['p95_us']:.2f}",
        f"{entrant['p99_us']:.2f}",
        _interval(entrant, "tail_ratio", "tail_ratio"),
        _interval(entrant, "ratio_to_verified", "ratio"),
    )


def _interval(values: Body, name: str, ends: str) -> str:
    return f"{values[name]:.3f} ({values[f'{ends}_low']:.3f} to {values[f'{ends}_high']:.3f})"
