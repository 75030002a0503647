"""What traced launches come to: a row for each configuration, and figures over all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.trace_sample import Traced
from kernels.errors import TraceUnreadable
from kernels.overlay import PHASES
from kernels.statistics import rank_correlation
from kernels.trace import trace_of
from kernels.trace_launch import TracedLaunches

Row = dict[str, Any]


def row_of(traced: Traced, launched: TracedLaunches) -> Row:
    """A configuration's row: its trace, with the timeline where that is shown, or why it has
    none."""
    row = {**traced.to_dict(), "reason": None}
    try:
        trace = trace_of(traced.task, launched)
    except TraceUnreadable as error:
        return row | {"reason": "trace_failed", "details": str(error)}
    if traced.role == "sample":
        trace.pop("timeline")
    return row | {"trace": trace}


def result_of(rows: Sequence[Row]) -> dict[str, Any]:
    """The record: figures over the sample's rows that have a trace, the rows, and the timelines
    that are shown, by what bounds them."""
    sample = [row for row in rows if row["role"] == "sample"]
    traces = [row["trace"] for row in sample if row["reason"] is None]
    return {
        "failed": sum(row["reason"] is not None for row in rows),
        "traced": len(traces),
        "wait": _wait(traces),
        "phases": {name: _phase(traces, name) for name in (*PHASES, "epilogue")},
        "disturbance": _disturbance(traces),
        "timelines": {row["role"]: row for row in rows if row["role"] != "sample"},
        "rows": sample,
    }


def _over(values: Sequence[float], how: Callable[[Any], Any]) -> float | None:
    return float(how(np.asarray(values))) if len(values) else None


def _wait(traces: Sequence[Row]) -> dict[str, Any]:
    """MATH wait: errors in µs, over the wait measured and over the CTA's time; rank correlation."""
    measured = [trace["wait"]["measured_us"] for trace in traces]
    said = [trace["wait"]["modelled_us"] for trace in traces]
    off = [abs(trace["wait"]["error_us"]) for trace in traces]
    spans = [trace["span"]["measured_us"] for trace in traces]
    different = len({*measured}) > 1 and len({*said}) > 1
    return {
        "mean_error_us": _over(off, np.mean),
        "mean_ape": _over([e / m for e, m in zip(off, measured, strict=True) if m], np.mean),
        "median_ape": _over([e / m for e, m in zip(off, measured, strict=True) if m], np.median),
        "mean_share_of_time": _over([e / s for e, s in zip(off, spans, strict=True)], np.mean),
        "rank_correlation": rank_correlation(measured, said) if different else None,
    }


def _phase(traces: Sequence[Row], name: str) -> dict[str, Any]:
    """Event times of a phase: mean errors in µs and over the CTA's time, over configurations."""
    seen = [
        (trace["phases"][name], trace["span"]["measured_us"])
        for trace in traces
        if trace["phases"][name]["events"]
    ]
    return {
        "traced": len(seen),
        "mean_error_us": _over([phase["mean_error_us"] for phase, _ in seen], np.mean),
        "bias_us": _over([phase["bias_us"] for phase, _ in seen], np.mean),
        "mean_share_of_time": _over([p["mean_error_us"] / span for p, span in seen], np.mean),
    }


def _disturbance(traces: Sequence[Row]) -> dict[str, Any]:
    """Times of the traced kernel over those of the one that ships."""
    ratios = [trace["disturbance"]["ratio"] for trace in traces]
    return {
        "median": _over(ratios, np.median),
        "p95": _over(ratios, lambda values: np.quantile(values, 0.95)),
        "worst": _over(ratios, np.max),
    }
