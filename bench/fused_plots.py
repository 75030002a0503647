"""Pictures of dividing the warps of norm_activation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import Patch

from bench.plots import COLOURS, save_figure
from bench.records import Row
from solver.fused import TIE

COPIES = {"vector": "loads", "async": "asynchronous copies", "bulk": "bulk copies"}


def plot_gains(problems: Sequence[Row], path: Path) -> None:
    """Gain of divided warps over like warps of each problem: by the model against measured; ties
    lie in the bands."""
    figure, axes = plt.subplots(figsize=(6.4, 5.2))
    known = [row for row in problems if row["gain"] is not None]
    for (warps, words), colour in zip(
        ((None, "as many warps as fit"), (16, "16 warps an SM"), (8, "8"), (4, "4")),
        COLOURS,
        strict=False,
    ):
        for held, marker in ((False, "o"), (True, "^")):
            some = [r for r in known if r["warps_per_sm"] == warps and r["held_out"] == held]
            axes.scatter(
                [row["gain"] for row in some],
                [row["gain_predicted"] for row in some],
                s=22,
                alpha=0.75,
                color=colour,
                marker=marker,
                label=f"{words}{', held out' if held else ''}",
            )
    for draw in (axes.axhspan, axes.axvspan):
        draw(1 - TIE, 1 + TIE, color="gray", alpha=0.15, linewidth=0)
    ends = [row[name] for row in known for name in ("gain", "gain_predicted")]
    span = [min(ends, default=0.9), max(ends, default=1.1)]
    axes.plot(span, span, color="black", linewidth=0.8)
    axes.set_xlabel("measured: like warps' time over divided warps'")
    axes.set_ylabel("by the model")
    axes.set_title("Gain of divided warps over the best of like warps")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=7)
    save_figure(figure, path)


def plot_sweep(lines: Sequence[Row], warps: Mapping[int | None, str], path: Path) -> None:
    """Time over like warps' by producers : consumers, a pane for each occupancy: measured as bars,
    the model as marks."""
    figure, panes = plt.subplots(1, len(warps), figsize=(13, 4.6), sharey=True, squeeze=False)
    colours = dict(zip(("vector", "async", "bulk"), COLOURS, strict=False))
    for axes, (count, words) in zip(panes[0], warps.items(), strict=True):
        some = [line for line in lines if line["warps_per_sm"] == count]
        some.sort(
            key=lambda line: (
                line["copies"],
                line["producers"] + line["consumers"],
                line["producers"],
            )
        )
        places = range(len(some))
        axes.bar(
            places,
            [line["measured"] for line in some],
            color=[colours[line["copies"]] for line in some],
            alpha=0.75,
        )
        axes.scatter(places, [line["modelled"] for line in some], color="black", s=16, zorder=3)
        names = [f"{line['producers']}:{line['consumers']}" for line in some]
        axes.set_xticks(list(places), names, rotation=70, fontsize=7)
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_title(f"warps: {words}", fontsize=10)
        axes.grid(alpha=0.25, axis="y")
    marks = [
        Patch(color=colour, alpha=0.75, label=COPIES[name]) for name, colour in colours.items()
    ]
    marks.append(panes[0][0].scatter([], [], color="black", s=16, label="by the model"))
    panes[0][0].set_ylabel("time over that of the best of like warps")
    panes[0][0].legend(handles=marks, fontsize=7)
    figure.suptitle("Producers : consumers, geometric mean over problems", fontsize=11)
    save_figure(figure, path)
