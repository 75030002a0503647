"""A verification's race as a table for a person at a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from app.cli.layout import Body, config_words


def show_contest(console: Console, contest: Body) -> None:
    """Every candidate with its times, and what the race came to."""
    table = Table(title="The race", title_justify="left", box=box.SIMPLE)
    table.add_column("")
    table.add_column("configuration", overflow="fold", min_width=24)
    for name in ("predicted, µs", "measured, µs", "over the pick", "dropped at"):
        table.add_column(name, justify="right", no_wrap=True)
    for place, candidate in enumerate(contest["candidates"]):
        table.add_row(str(place + 1), config_words(candidate["config"]), *_figures(candidate))
    console.print(table)
    for place, candidate in enumerate(contest["candidates"], start=1):
        if candidate["failure"] is not None:
            console.print(f"{place}: {candidate['failure']}", markup=False)
    console.print(_verdict(contest), markup=False)


def _figures(candidate: Body) -> tuple[str, ...]:
    predicted_us = f"{candidate['predicted_us']:.2f}"
    if candidate["time_us"] is None:
        return predicted_us, "-" if candidate["failure"] is None else "failed", "-", "-"
    ratio = "-"
    if candidate["ratio"] is not None:
        low, high = candidate["ratio_low"], candidate["ratio_high"]
        ratio = f"{candidate['ratio']:.3f} ({low:.3f} to {high:.3f})"
    dropped = candidate["dropped_at"]
    return (
        predicted_us,
        f"{candidate['time_us']:.2f}",
        ratio,
        "-" if dropped is None else f"{dropped}",
    )


def _verdict(contest: Body) -> str:
    fresh, winner = contest["fresh"], contest["winner"]
    if contest["note"] is not None:
        return f"The race was not run to its end: {contest['note']}"
    if winner is None:
        return "None of them ran."
    if fresh is None:
        return f"Number {winner + 1} is the fastest."
    sure = "is surely faster than" if contest["beats_pick"] else "is not surely faster than"
    return (
        f"Number {winner + 1} {sure} the pick: timed afresh, {fresh['ratio']:.3f} of its time "
        f"({fresh['low']:.3f} to {fresh['high']:.3f})."
    )
