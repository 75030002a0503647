"""A configuration's trace: launches of its traced build, laid over what the model says of them.

Needs neither a GPU nor z3: what ``kernels.trace_launch`` brought from one goes in, JSON-ready
values come out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.launch_plan import plan_launch
from kernels.overlay import modelled, overlay
from kernels.sources import traced_hash
from kernels.trace_events import events_of
from kernels.trace_launch import TracedLaunches, TraceTask
from kernels.trace_records import read_cta
from solver.device import load_profile


def trace_of(task: TraceTask, launched: TracedLaunches) -> dict[str, Any]:
    """What launches showed beside what the model says. Of the launch whose MATH wait is in the
    middle: its critical CTA's events; of the others: their waits.

    Raises TraceUnreadable where records are not what the launch leads to.
    """
    plan = plan_launch(task.problem, task.config, launched.sms)
    cold = task.protocol.cache == "cold"
    model = modelled(task.problem, task.config, load_profile(task.device), cold)
    read = []
    for critical in launched.ctas:
        steps = read_cta(plan, critical.cta, critical.stripes)
        events = events_of(plan, steps, critical.clock_mhz, model.events.product_us)
        read.append((events, steps, critical))
    read.sort(key=lambda one: one[0].wait_us)
    events, steps, critical = read[len(read) // 2]
    return {
        "kernel_id": launched.kernel_id,
        "traced_hash": traced_hash(),
        "spill_bytes": launched.spill_bytes,
        "cache": task.protocol.cache,
        "grid": plan.grid,
        "cta": critical.cta,
        "sm": critical.sm,
        "clock_mhz": round(critical.clock_mhz, 1),
        "clock_from": critical.clock_from,
        "units": steps.units,
        "dropped": steps.dropped,
        "span": {
            "measured_us": critical.span / critical.clock_mhz,
            "modelled_us": model.span_us,
        },
        "predicted_us": model.time_us,
        "disturbance": _disturbance(launched),
        "waits_us": [one[0].wait_us for one in read],
        **overlay(events, model.events),
    }


def _disturbance(launched: TracedLaunches) -> Mapping[str, Any]:
    names = ("shipped_us", "traced_us", "ratio", "low", "high", "rounds", "note")
    return {name: getattr(launched, name) for name in names}
