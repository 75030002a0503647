"""The GPU's own timeline beside the model's, in words and pictures for docs/results.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.timeline import timeline_svg
from kernels.bench_plan import problem_of
from kernels.sources import source_hash
from solver.report import problem_words

TITLE = "## The GPU's own timeline"
TIMELINES = {
    "math": ("a launch bound by MATH, measured over predicted", "trace_math.svg"),
    "loads": ("a launch bound by loads, measured over predicted", "trace_loads.svg"),
}
PHASE_WORDS = {
    "load_issue": "loads issued",
    "load_end": "loads arrived, where MATH waited for them",
    "math_start": "MATH starts",
    "math_end": "MATH ends",
    "epilogue": "epilogue ends",
}

Record = dict[str, Any]


def of_present_kernels(record: Record | None) -> str | None:
    """Why a record of ``bench.gpu_trace`` is not shown; None where it is."""
    if record is None:
        return "`bench.gpu_trace`: not run."
    if record["source_hash"] != source_hash():
        others = record["source_hash"][:12]
        return f"`bench.gpu_trace`: not run on these sources; its record is of {others}."
    if not record.get("complete", True) or not record["traced"]:
        return "`bench.gpu_trace`: its record was cut short."
    return None


def trace_line(record: Record | None, docs: str = "") -> str:
    """How far MATH wait is off and what tracing costs, in a sentence or two; ``docs`` is where the
    pages lie."""
    why_not = of_present_kernels(record)
    if record is None or why_not is not None:
        return str(why_not)
    wait, tracing = record["wait"], record["disturbance"]
    correlation = wait["rank_correlation"]
    ranks = "" if correlation is None else f", rank correlation {correlation:.3f}"
    failed = f", {record['failed']} failed" if record["failed"] else ""
    return (
        f"MATH wait against the GPU's own timeline over {record['traced']} configurations{failed}: "
        f"mean error {wait['mean_error_us']:.2f} µs, {wait['mean_share_of_time']:.1%} of the CTA's "
        f"time{ranks}; of the wait itself, which is often short, {wait['median_ape']:.0%} in the "
        f"median and {wait['mean_ape']:.0%} in the mean. Tracing slows a kernel by "
        f"{tracing['median'] - 1:.1%} in the median, {tracing['p95'] - 1:.1%} at p95 "
        f"([how]({docs}trace.md))."
    )


def trace_part(record: Record | None) -> str:
    """The section: errors of event times by phase, of MATH wait, and what tracing costs."""
    if record is None or of_present_kernels(record) is not None:
        return f"{TITLE}\n\n{of_present_kernels(record)}"
    head = (
        "| events | configurations | mean error µs | bias µs | of the CTA's time |\n"
        "|---|---|---|---|---|"
    )
    lines = [
        f"| {words} | {phase['traced']} | {phase['mean_error_us']:.2f} | {phase['bias_us']:+.2f} "
        f"| {phase['mean_share_of_time']:.1%} |"
        for name, words in PHASE_WORDS.items()
        if (phase := record["phases"][name])["traced"]
    ]
    shown = [
        f"- {TIMELINES[role][0]}: {_shown(row)}"
        for role, row in record["timelines"].items()
        if row["reason"] is None
    ]
    about = (
        f"{record['device']}, {record['date'][:10]}. Times from a CTA's first load on; errors are "
        "predicted less measured: means over a configuration's events, then over configurations."
    )
    return "\n\n".join(
        [
            TITLE,
            trace_line(record),
            about,
            "\n".join([head, *lines]),
            *(["\n".join(shown)] if shown else []),
        ]
    )


def _shown(row: Record) -> str:
    trace, wait = row["trace"], row["trace"]["wait"]
    return (
        f"{problem_words(problem_of(row['problem']))}, MATH wait {wait['measured_us']:.1f} µs, "
        f"predicted {wait['modelled_us']:.1f}, of {trace['span']['measured_us']:.1f} µs"
    )


def draw_traces(record: Record | None, images: Path) -> dict[str, str]:
    """Draw the timelines that are shown; file names by what a reader is told they show."""
    if record is None or of_present_kernels(record) is not None:
        return {}
    drawn = {}
    for role, (words, name) in TIMELINES.items():
        row = record["timelines"].get(role)
        if row is not None and row["reason"] is None:
            title = f"{problem_words(problem_of(row['problem']))}: {words}"
            (images / name).write_text(timeline_svg(row["trace"], title), "utf-8")
            drawn[words] = name
    return drawn
