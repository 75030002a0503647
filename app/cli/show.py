"""Answers as tables for a person at a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from app.cli.kinds import kind_rows
from app.cli.layout import (
    Body,
    config_words,
    energy_words,
    kernel_words,
    pairs,
    predicted_rows,
    title_of,
    warning_rows,
)
from app.ops import op_of
from solver.constraints import POWER, Constraints
from solver.objective import ENERGY, objective_from_dict
from solver.report import RANK_WORDS


def _proof(proof: Body, front: bool) -> str:
    space = proof["space"]
    count = space["configurations"]
    noun = "configuration" if count == 1 else "configurations"
    among = f"{count:,} legal {noun}"
    if space["excluded_by_constraints"]:
        among = f"{count:,} allowed {noun} of {space['legal']:,} legal"
    if proof["status"] == "timeout":
        return (
            f"timeout: {proof['undecided']:,} of {among} are undecided, the best of them has at "
            f"most {proof['gap']:.2%} less {RANK_WORDS[proof['gap_in']]}"
        )
    if proof["status"] == "not_requested":
        return f"not_requested: of {among} the answer is the first by the model, unproved"
    scope = proof["scope"]
    claim = f"the whole front of {among}" if front else f"none of {among} is better"
    return (
        f"optimal: {claim} ({scope['refuted_by_group_bound']:,} refuted by "
        f"their group's bound, {scope['refuted_exactly']:,} exactly, "
        f"{scope['finalists_over_event_arrays']:,} compared over event arrays)"
    )


def _asked(body: Body) -> list[tuple[str, Any]]:
    """What is best and what is allowed, where the question says so."""
    objective = body["objective"]
    match objective["kind"]:
        case "lexicographic":
            best = ", then ".join(RANK_WORDS[name] for name in objective["order"])
        case "weighted":
            terms = (
                f"{weight:g} x {RANK_WORDS[name]} ({objective['units'][name]})"
                for name, weight in objective["weights"].items()
            )
            best = " + ".join(terms)
        case _:
            axes = ", ".join(RANK_WORDS[name] for name in objective["axes"])
            best = f"all trade-offs of {axes} within {objective['within']} x the least time"
    rows = [("best by", best)]
    bounds = Constraints.from_dict(body.get("constraints", {})).bounds
    if bounds:
        rows.append(("allowed", "; ".join(bound.words() for bound in bounds)))
    return rows


def _source(body: Body) -> list[tuple[str, Any]]:
    """What was measured, and what the model alone would answer."""
    if body["source"] == "model":
        return []
    facts = body["measured"]
    low, high = facts["ratio_low"], facts["ratio_high"]
    return [
        (
            "measured",
            f"{facts['time_us']:.2f} us, {facts['ratio']:.3f} ({low:.3f} to {high:.3f}) of the "
            f"model's pick, on {facts['at']}",
        ),
        ("the model's pick", config_words(body["model_pick"]["config"])),
        ("  predicted", f"{body['model_pick']['predicted']['time_us']:.2f} us; the proof is of it"),
    ]


def show_answer(console: Console, body: Body) -> None:
    """An optimisation's answer, with what else it lists."""
    score = [("score", f"{body['score']:.6g}")] if "score" in body else []
    words = op_of(body).config_words
    console.print(
        pairs(
            title_of(body),
            [
                *_asked(body),
                ("configuration", words(body["config"])),
                *kind_rows(body),
                ("kernel", kernel_words(body["kernel"])),
                ("kernel id", body["kernel"]["id"] or "none: this model has no kernel"),
                *predicted_rows(body["predicted"]),
                *score,
                *_source(body),
                ("proof", _proof(body["proof"], "front" in body)),
                *warning_rows(body),
            ],
        )
    )
    if body["alternatives"]:
        console.print(_listed("The next ones", body["alternatives"], body, first=2))
    if "front" in body:
        listed, size = len(body["front"]), body["front_size"]
        which = (
            f"The first {listed} of {size:,} points"
            if listed < size
            else ("The one point" if size == 1 else f"All {size} points")
        )
        console.print(_listed(f"{which} of the front", body["front"], body, first=1))


SHOWN: dict[str, Callable[[Body], str]] = {
    "time, µs": lambda row: f"{row['time_us']:.2f}",
    "wait, µs": lambda row: f"{row['wait_us']:.2f}",
    "smem, B": lambda row: f"{row['smem_bytes']:,}",
    "registers": lambda row: str(row["registers_per_thread"] or "-"),
    "W": lambda row: f"{row['power_w']:.0f}",
    "mJ": lambda row: energy_words(row["energy_j"]),
}
"""Values of a configuration that is listed, by the heads of their columns."""
USUAL = ("time, µs", "wait, µs", "smem, B", "registers")
OF_ENERGY = ("time, µs", "smem, B", "W", "mJ")
"""What there is room for in 80 columns, where energy or power was asked about."""


def _listed(title: str, rows: Sequence[Body], body: Body, first: int) -> Table:
    """Configurations of an answer with their values, numbered from ``first``."""
    scored, words = "score" in rows[0], op_of(body).config_words
    objective = objective_from_dict({k: v for k, v in body["objective"].items() if k != "units"})
    asks_power = ENERGY in objective.named or POWER in body.get("constraints", {})
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    values = OF_ENERGY if asks_power else USUAL
    names = (*values, *(["score"] if scored else []), "gap")
    table.add_column("")
    table.add_column("configuration", overflow="fold", min_width=24)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for rank, row in enumerate(rows, start=first):
        cells = [SHOWN[name](row) for name in values]
        if scored:
            cells.append(f"{row['score']:.6g}")
        cells.append("-" if row["gap"] is None else f"{row['gap']:.2%}")
        table.add_row(str(rank), words(row["config"]), *cells)
    return table


def show_explanation(console: Console, body: Body) -> None:
    """An explanation's paragraphs."""
    for paragraph in body["text"]:
        console.print(paragraph, markup=False, highlight=False)
        console.print()


def show_verdict(console: Console, verdict: Body) -> None:
    """What a recheck found."""
    counts = ", ".join(f"{name} {count:,}" for name, count in verdict["checked"].items())
    if verdict["holds"]:
        console.print(f"The certificate holds ({counts}).", markup=False)
        return
    console.print(f"The certificate does not hold{f' ({counts})' if counts else ''}:", markup=False)
    for reason in verdict["reasons"]:
        console.print(f"- {reason}", markup=False)


def show_simulation(console: Console, body: Body) -> None:
    """A simulation's answer, with the first turn of its ring."""
    console.print(
        pairs(
            title_of(body),
            [
                ("configuration", config_words(body["config"])),
                ("kernel", kernel_words(body["kernel"])),
                *predicted_rows(body["predicted"]),
                ("gap to optimum", f"{body['gap_to_optimum']:.2%}"),
                ("optimum", config_words(body["optimum"]["config"])),
                *[
                    (u["name"], f"{u['used']:,} of {u['limit']:,} ({u['share']:.0%})")
                    for u in body["limits"]
                ],
                *warning_rows(body),
            ],
        )
    )
    table = Table(
        "iteration", "slot", "load issue", "load end", "MATH start", "MATH end", box=box.SIMPLE
    )
    for event in body["timeline"][:12]:
        times = (event[f"{n}_us"] for n in ("load_issue", "load_end", "math_start", "math_end"))
        where = f"{event['unit']}.{event['iteration']}"
        table.add_row(where, str(event["slot"]), *(f"{time:.3f}" for time in times))
    console.print("Timeline of the first iterations, µs from the first load")
    console.print(table)


def show_devices(console: Console, host: Body | None, devices: Sequence[Body]) -> None:
    """The profiles, and the host's GPU."""
    gpu = "absent" if host is None else f"{host['name']} (profile {host['profile'] or 'none'})"
    console.print(f"GPU of this machine: {gpu}")
    table = Table("name", "device", "arch", box=box.SIMPLE)
    for names in ("kernel families", "models"):
        table.add_column(names, no_wrap=True)  # one a line, none cut off
    for device in devices:
        families = "\n".join(device["families"]) or "none"
        models = "\n".join(device["models"])
        table.add_row(device["name"], device["title"], device["arch"], families, models)
    console.print(table)


def show_record(console: Console, title: str, record: Body) -> None:
    """A flat JSON object as names and values; what is nested is left to --json."""
    flat = [(n, v) for n, v in record.items() if not isinstance(v, dict | list)]
    console.print(pairs(title, [(n, f"{v:.4g}" if isinstance(v, float) else v) for n, v in flat]))
