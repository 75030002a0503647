"""Pictures of recorded results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, NullFormatter, ScalarFormatter

from bench.records import Row, passed
from kernels.bench_plan import problem_of
from solver.accuracy import geomean

COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626", "#0891b2", "#65a30d")


def save_figure(figure: Any, path: Path) -> None:
    """Write a picture, the same bytes for the same figures, and let go of it."""
    figure.tight_layout()
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)


def plot_ratios(suites: dict[str, Sequence[Row]], path: Path) -> None:
    """Time of cuBLAS over ours for every pick, against M; above 1 is faster than cuBLAS."""
    figure, axes = plt.subplots(figsize=(9, 4.2))
    for (title, rows), colour in zip(suites.items(), COLOURS, strict=False):
        rows = [row for row in passed(rows) if row.get("ratio_to_cublas")]
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
    save_figure(figure, path)


def plot_ratios_by_m(picks: Sequence[Row], best: Sequence[Row], title: str, path: Path) -> None:
    """Time of cuBLAS over ours at each M, of the picks and of the best; lines join the geometric
    means."""
    figure, axes = plt.subplots(figsize=(9, 4.2))
    places = {m: place for place, m in enumerate(sorted({row["m"] for row in picks}))}
    sides = (("pick", picks, -0.12, COLOURS[0]), ("best", best, 0.12, COLOURS[1]))
    for name, rows, shift, colour in sides:
        rows = [r for r in passed(rows) if r.get("ratio_to_cublas") and r["m"] in places]
        if not rows:
            continue
        axes.scatter(
            [places[row["m"]] + shift for row in rows],
            [row["ratio_to_cublas"] for row in rows],
            s=16,
            alpha=0.6,
            color=colour,
        )
        means = {
            m: geomean([row["ratio_to_cublas"] for row in rows if row["m"] == m])
            for m in sorted({row["m"] for row in rows})
        }
        axes.plot(
            [places[m] + shift for m in means],
            list(means.values()),
            marker="_",
            markersize=16,
            markeredgewidth=2,
            linewidth=0.8,
            color=colour,
            label=f"{name}, geometric mean {geomean([row['ratio_to_cublas'] for row in rows]):.3f}",
        )
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xticks(list(places.values()), [str(m) for m in places])
    axes.set_xlabel("M")
    axes.set_ylabel("time of cuBLAS / ours")
    axes.set_title(title)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
    save_figure(figure, path)


def plot_roofline(suites: dict[str, Sequence[Row]], ceilings: dict[str, Any], path: Path) -> None:
    """Achieved TFLOP/s against operations per byte of A, B and C, under measured ceilings.

    Cold rows alone: what lies in the L2 already does not pass through memory.
    """
    figure, axes = plt.subplots(figsize=(9, 5.2))
    intensities: list[float] = []
    for (title, rows), colour in zip(suites.items(), COLOURS, strict=False):
        cold = [(problem_of(r), r) for r in passed(rows) if r["cache"] == "cold"]
        if not cold:
            continue
        across = [problem.flops / problem.operand_bytes for problem, _ in cold]
        intensities += across
        axes.scatter(
            across,
            [problem.flops / row["median_us"] / 1e6 for problem, row in cold],
            s=16,
            alpha=0.7,
            color=colour,
            label=title,
        )
    span = [min(intensities, default=1.0) / 2, max(intensities, default=1e4) * 2]
    tops = (("tensor_tflops", "-"), ("tensor_held_tflops", "--"))
    peak = max((ceilings[name] for name, _ in tops if ceilings.get(name)), default=float("inf"))
    for name, words, style in (
        ("copy_gb_per_s", "copy", "-"),
        ("read_gb_per_s", "read", "--"),
    ):
        rate = ceilings.get(name)
        if rate:
            ridge = min(span[1], peak * 1e3 / rate)
            axes.plot(
                [span[0], ridge],
                [x * rate / 1e3 for x in (span[0], ridge)],
                style,
                color="black",
                linewidth=0.9,
                label=f"{words}, {rate:.0f} GB/s",
            )
    for (name, style), words in zip(tops, ("as a row is timed", "held for a second"), strict=True):
        top = ceilings.get(name)
        if top:
            label = f"wgmma alone, {words}: {top:.0f} TFLOP/s"
            axes.plot(span, [top, top], style, color="gray", linewidth=0.9, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*span)
    axes.set_xlabel("operations per byte of A, B and C")
    axes.set_ylabel("TFLOP/s")
    axes.set_title("Picks on one H200 under measured ceilings")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
    save_figure(figure, path)


def plot_predictions(suites: dict[str, Sequence[Row]], path: Path) -> None:
    """Predicted against measured time of every pick, with a band of ±10 %."""
    figure, axes = plt.subplots(figsize=(6, 5.2))
    for (title, rows), colour in zip(suites.items(), COLOURS, strict=False):
        rows = passed(rows)
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
    save_figure(figure, path)


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
    save_figure(figure, path)


BANDS = ((0.05, 0.3), (0.15, 0.15))
"""Half-widths of the bands around what is measured, and how dark they are."""


def plot_truth(parts: dict[str, tuple[Any, Any]], path: Path) -> None:
    """Predicted over measured against measured time in µs, of each part's rows, with bands of ±5
    and ±15 %."""
    figure, panes = plt.subplots(
        1, len(parts), figsize=(5.2 * len(parts), 4.2), sharey=True, squeeze=False
    )
    for axes, (title, (predicted, measured)), colour in zip(
        panes[0], parts.items(), COLOURS, strict=False
    ):
        for width, alpha in BANDS:
            axes.axhspan(1 - width, 1 + width, color="gray", alpha=alpha, linewidth=0)
        axes.scatter(measured, predicted / measured, s=3, alpha=0.3, color=colour)
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(FixedLocator([0.5, 0.7, 0.85, 0.95, 1, 1.05, 1.15, 1.4, 2]))
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("measured, µs")
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.25)
    panes[0][0].set_ylabel("predicted over measured")
    figure.suptitle("Rows that nothing was fitted to (bands: ±5 and ±15 %)", fontsize=11)
    save_figure(figure, path)


def plot_errors_by_class(
    classes: Mapping[str, Mapping[str, Any]], published: dict[str, float], path: Path
) -> None:
    """Mean, 95th percentile and maximum of the error of each class of rows, in percent."""
    figure, axes = plt.subplots(figsize=(9, 4.4))
    names = list(classes)
    for shift, (key, words), colour in zip(
        (-0.27, 0.0, 0.27),
        (("mean_ape", "mean"), ("p95_ape", "p95"), ("max_ape", "max")),
        COLOURS,
        strict=False,
    ):
        heights = [100 * classes[name][key] for name in names]
        places = [place + shift for place in range(len(names))]
        axes.bar(places, heights, width=0.25, color=colour, label=words)
    for (words, value), style in zip(published.items(), ("--", ":"), strict=True):
        axes.axhline(100 * value, color="black", linewidth=0.8, linestyle=style, label=words)
    rows = [f"{name}\n{classes[name]['rows']:,}" for name in names]
    axes.set_xticks(range(len(names)), rows, rotation=40, ha="right", fontsize=8)
    axes.set_ylim(top=1.2 * axes.get_ylim()[1])  # room for the legend
    axes.set_ylabel("error, %")
    axes.set_title("Prediction error of held-out rows by class, with the number of rows")
    axes.grid(alpha=0.25, axis="y")
    axes.legend(fontsize=8, ncols=5, loc="upper center")
    save_figure(figure, path)


def plot_regret(
    of_first: dict[str, dict[str, float]], raced: dict[str, tuple[int, float]], path: Path
) -> None:
    """Geometric mean of the regret of the best of the first k by each prediction, over measured
    rows; and what races found, at their k."""
    figure, axes = plt.subplots(figsize=(7, 4.4))
    for (name, by_count), colour in zip(of_first.items(), COLOURS, strict=False):
        counts = [int(count) for count in by_count]
        axes.plot(counts, list(by_count.values()), marker="o", color=colour, label=name)
    for (name, (count, value)), marker in zip(raced.items(), ("*", "P", "X", "D"), strict=False):
        axes.scatter([count], [value], marker=marker, s=90, color="black", zorder=3, label=name)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(sorted({int(count) for by in of_first.values() for count in by}))
    axes.set_xlabel("k: rows tried, in the order of the prediction")
    axes.set_ylabel("time of the best of them over the best of all")
    axes.set_title("Regret over k, geometric mean over held-out shapes")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
    save_figure(figure, path)
