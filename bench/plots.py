"""Pictures of recorded results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter, ScalarFormatter

Row = dict[str, Any]
COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea")


def _passed(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["status"] == "passed"]


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)


def plot_ratios(suites: dict[str, Sequence[Row]], path: Path) -> None:
    """Time of cuBLAS over ours for every pick, against M; above 1 is faster than cuBLAS."""
    figure, axes = plt.subplots(figsize=(9, 4.2))
    for (title, rows), colour in zip(suites.items(), COLOURS, strict=True):
        rows = [row for row in _passed(rows) if row.get("ratio_to_cublas")]
        axes.scatter(
            [row["m"] for row in rows],
            [row["ratio_to_cublas"] for row in rows],
            s=16,
            alpha=0.7,
            color=colour,
            label=title,
        )
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_yticks([0.7, 0.8, 0.9, 1, 1.1, 1.5, 2, 3, 5])
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel("M")
    axes.set_ylabel("time of cuBLAS / time of the pick")
    axes.set_title("Picks on one H200, each interleaved with cuBLAS")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
    _save(figure, path)


def plot_predictions(suites: dict[str, Sequence[Row]], path: Path) -> None:
    """Predicted against measured time of every pick, with a band of ±10 %."""
    figure, axes = plt.subplots(figsize=(6, 5.2))
    for (title, rows), colour in zip(suites.items(), COLOURS, strict=True):
        rows = _passed(rows)
        axes.scatter(
            [row["predicted_us"] for row in rows],
            [row["median_us"] for row in rows],
            s=14,
            alpha=0.7,
            color=colour,
            label=title,
        )
    low, high = 2.0, 20_000.0
    axes.plot([low, high], [low, high], color="black", linewidth=0.8)
    axes.fill_between([low, high], [low * 0.9, high * 0.9], [low * 1.1, high * 1.1], alpha=0.15)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("predicted, µs")
    axes.set_ylabel("measured, µs")
    axes.set_title("The model's picks: predicted and measured (band: ±10 %)")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
    _save(figure, path)


def plot_solve_times(rows: Sequence[Row], path: Path) -> None:
    """Time of an answer with its proof against K, the size of its space as area."""
    figure, axes = plt.subplots(figsize=(9, 3.6))
    axes.scatter(
        [row["k"] for row in rows],
        [row["total_ms"] for row in rows],
        s=[4 + row["configurations"] / 250 for row in rows],
        alpha=0.5,
        color=COLOURS[0],
    )
    axes.axhline(25, color="black", linewidth=0.8, linestyle="--", label="bound on the median")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_ylim(bottom=0)
    axes.set_xlabel("K")
    axes.set_ylabel("pick and proof, ms")
    axes.set_title("Time of an answer over the LLM suite; area: legal configurations")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
    _save(figure, path)
