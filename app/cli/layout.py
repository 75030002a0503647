"""Pieces of what is shown to a person at a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from app.ops import op_of
from solver.families.registry import memory_bytes
from solver.report import config_words as config_words
from solver.report import energy_words as energy_words

Body = Mapping[str, Any]


def pairs(title: str, rows: Sequence[tuple[str, Any]]) -> Table:
    """Names and their values under a title."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in rows:
        table.add_row(name, str(value))
    return table


def title_of(body: Body) -> str:
    """The problem and the device, for a table's head."""
    op = op_of(body)
    problem = op.problem_words(op.problem(**body["problem"]))
    divergence = body.get("divergence", 1)
    settings = [
        *(["the published model"] if body["model"] == "paper" else []),
        *([f"divergence {divergence:g}"] if divergence != 1 else []),
        *([f"{op.inputs} in the L2"] if body["cache"] == "warm" else []),
    ]
    return ", ".join([f"{problem} on {body['device']['title']}", *settings])


def kernel_words(kernel: Body) -> str:
    """What a launch takes, in one line."""
    registers = kernel["registers_per_thread"]
    return (
        f"{kernel['grid']} CTAs x {kernel['threads']} threads, {kernel['smem_bytes']:,} B shared "
        f"memory" + ("" if registers is None else f", {registers} registers a thread")
    )


def predicted_rows(p: Body) -> list[tuple[str, Any]]:
    """What the model predicts."""
    parts = ", ".join(f"{n.removesuffix('_us')} {v:.2f}" for n, v in p["breakdown"].items())
    rate = f"{p['tflops']:.1f} TFLOP/s" if "tflops" in p else f"{p['bytes_per_us'] / 1e3:.0f} GB/s"
    return [
        ("predicted time", f"{p['time_us']:.2f} µs ({rate})"),
        ("of which, µs", parts),
        ("MATH wait", f"{p['wait_us']:.2f} µs"),
        ("bound by", p["bound"]),
        *sustained_rows(p),
    ]


def sustained_rows(p: Body) -> list[tuple[str, Any]]:
    """What launches that follow one another for seconds hold; [] where nothing is known of it."""
    if "sustained" not in p:
        return []
    held = p["sustained"]
    return [
        (
            "held for seconds",
            f"{held['power_w']:.0f} W ({held['power_high_w']} W with its margin) at "
            f"{held['clock_mhz']} MHz, "
            f"{energy_words(held['energy_j'])} mJ and {held['time_us']:.2f} µs a launch",
        )
    ]


def warning_rows(body: Body) -> list[tuple[str, Any]]:
    """What the reader of an answer must know, where there is anything."""
    warnings = []
    if copied := body.get("copied_operands"):
        names = " and ".join(name.upper() for name in copied)
        warnings.append(("copied first", f"{names}: TMA can't take a line off 16 bytes"))
    if not body.get("fits_device_memory", True):
        needed = memory_bytes(op_of(body).problem(**body["problem"]), body["model"])
        warnings.append(
            ("does not fit", f"it takes {needed / 1e9:,.0f} GB: the answer is the model's alone")
        )
    if missing := body["device"]["must_measure"]:
        warnings.append(("not yet measured", ", ".join(missing)))
    return warnings
