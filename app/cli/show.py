"""Answers as tables for a person at a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

Body = Mapping[str, Any]


def _pairs(title: str, rows: Sequence[tuple[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in rows:
        table.add_row(name, str(value))
    return table


def _problem(body: Body) -> str:
    p = body["problem"]
    return f"{p['m']} x {p['n']} x {p['k']} {p['dtype']} ({p['layout']})"


def _config(config: Body) -> str:
    """A configuration in one line, what it leaves at its default left out."""
    tile = f"{config['tile_m']}x{config['tile_n']}x{config['tile_k']}"
    rest = [
        f"{name}={value}"
        for name, value in config.items()
        if name not in ("family", "tile_m", "tile_n", "tile_k")
    ]
    return " ".join([config["family"], tile, *rest])


def _kernel(kernel: Body) -> str:
    registers = kernel["registers_per_thread"]
    return (
        f"{kernel['grid']} CTAs x {kernel['threads']} threads, {kernel['smem_bytes']:,} B shared "
        f"memory" + ("" if registers is None else f", {registers} registers a thread")
    )


def _predicted(p: Body) -> list[tuple[str, Any]]:
    parts = ", ".join(f"{n.removesuffix('_us')} {v:.2f}" for n, v in p["breakdown"].items())
    return [
        ("predicted time", f"{p['time_us']:.2f} µs ({p['tflops']:.1f} TFLOP/s)"),
        ("of which, µs", parts),
        ("MATH wait", f"{p['wait_us']:.2f} µs"),
        ("bound by", p["bound"]),
    ]


def _proof(proof: Body) -> str:
    space = f"{proof['space']['configurations']:,} legal configurations"
    if proof["status"] != "optimal":
        return f"{proof['status']}; the pick is the first of {space}"
    scope = proof["scope"]
    return (
        f"optimal: none of {space} is better ({scope['refuted_by_group_bound']:,} refuted by "
        f"their group's bound, {scope['refuted_exactly']:,} exactly, the pick and "
        f"{scope['finalists_over_event_arrays'] - 1} next to it over event arrays)"
    )


def show_answer(console: Console, body: Body) -> None:
    """An optimisation's answer."""
    console.print(
        _pairs(
            f"{_problem(body)} on {body['device']['title']}",
            [
                ("configuration", _config(body["config"])),
                ("kernel", _kernel(body["kernel"])),
                ("kernel id", body["kernel"]["id"] or "none: this model has no kernel"),
                *_predicted(body["predicted"]),
                ("proof", _proof(body["proof"])),
                *_warning(body),
            ],
        )
    )
    if body["alternatives"]:
        table = Table("", "configuration", "µs", "gap", box=box.SIMPLE, title_justify="left")
        for rank, row in enumerate(body["alternatives"], start=2):
            gap = f"{row['gap']:.2%}"
            table.add_row(str(rank), _config(row["config"]), f"{row['time_us']:.2f}", gap)
        console.print(table)


def _warning(body: Body) -> list[tuple[str, Any]]:
    warnings = []
    if not body.get("fits_device_memory", True):
        size = f"A, B and C take {body['operand_bytes'] / 1e9:,.0f} GB"
        warnings.append(("does not fit", f"{size}: the answer is the model's alone"))
    if missing := body["device"]["must_measure"]:
        warnings.append(("not yet measured", ", ".join(missing)))
    return warnings


def show_simulation(console: Console, body: Body) -> None:
    """A simulation's answer, with the first turn of its ring."""
    console.print(
        _pairs(
            f"{_problem(body)} on {body['device']['title']}",
            [
                ("configuration", _config(body["config"])),
                ("kernel", _kernel(body["kernel"])),
                *_predicted(body["predicted"]),
                ("gap to optimum", f"{body['gap_to_optimum']:.2%}"),
                ("optimum", _config(body["optimum"]["config"])),
                *[
                    (u["name"], f"{u['used']:,} of {u['limit']:,} ({u['share']:.0%})")
                    for u in body["limits"]
                ],
                *_warning(body),
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
    table = Table("name", "device", "arch", "kernel families", "models", box=box.SIMPLE)
    for device in devices:
        families = ", ".join(device["families"]) or "none"
        models = ", ".join(device["models"])
        table.add_row(device["name"], device["title"], device["arch"], families, models)
    console.print(table)


def show_record(console: Console, title: str, record: Body) -> None:
    """A flat JSON object as names and values; what is nested is left to --json."""
    flat = [(n, v) for n, v in record.items() if not isinstance(v, dict | list)]
    console.print(_pairs(title, [(n, f"{v:.4g}" if isinstance(v, float) else v) for n, v in flat]))
