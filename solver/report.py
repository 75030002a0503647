"""Priced rows in the user's units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from solver.device import DeviceProfile
from solver.pick import price
from solver.problem import Problem
from solver.simulator import Event
from solver.table import LOAD_PATHS, Table
from solver.units import us_from_ticks


def predicted(table: Table, work: int, kernel: int, problem: Problem) -> dict[str, Any]:
    """Predicted time of one row in µs, its parts (which add up to it) and what bounds it."""
    times, waits = price(table, [work], [kernel])
    time, wait = int(times[0]), int(waits[0])
    w = table.works
    waves, units = int(w.waves[work]), int(w.units[work])
    load, math = int(w.load[work]), int(w.math[work])
    launch = int(w.fixed[work]) + int(table.kernels.setup[kernel])
    multiply = waves * units * int(w.iterations[work]) * math
    epilogue = waves * (units - 1) * int(w.epilogue[work]) + int(w.store[work])
    ramp = int(w.latency[work]) + load + math
    slots = int(table.kernels.slots[kernel])
    if max(launch, epilogue) > time / 2:
        bound = "launch" if launch > epilogue else "epilogue"
    elif int(w.iterations[work]) > slots and ramp - int(w.early[work]) > slots * max(load, math):
        bound = "ring_depth"
    else:
        bound = "math" if math >= load else LOAD_PATHS[int(w.load_path[work])]
    return {
        "time_us": us_from_ticks(time),
        "wait_us": us_from_ticks(wait),
        "tflops": problem.flops / us_from_ticks(time) / 1e6,
        "bound": bound,
        "clock_mhz": int(w.clock_mhz[work]) or None,
        "breakdown": {
            "launch_us": us_from_ticks(launch),
            "math_us": us_from_ticks(multiply),
            "wait_us": us_from_ticks(wait),
            "epilogue_us": us_from_ticks(epilogue),
        },
        "pipeline": {
            "load_us": us_from_ticks(load),
            "latency_us": us_from_ticks(int(w.latency[work])),
            "math_us": us_from_ticks(math),
            "early_us": us_from_ticks(int(w.early[work])),
            "epilogue_us": us_from_ticks(int(w.epilogue[work])),
            "slots": slots,
            "iterations": int(w.iterations[work]),
            "units_per_cta": units,
            "waves": waves,
        },
    }


def timeline_events(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Events with their times in µs from the CTA's first load."""
    return [
        {
            "unit": e.unit,
            "iteration": e.iteration,
            "slot": e.slot,
            "load_issue_us": us_from_ticks(e.load_issue),
            "load_end_us": us_from_ticks(e.load_end),
            "math_start_us": us_from_ticks(e.math_start),
            "math_end_us": us_from_ticks(e.math_end),
        }
        for e in events
    ]


def describe_device(device: DeviceProfile, model: str) -> dict[str, Any]:
    """Which profile was used and where its constants come from."""
    table = "paper" if model == "paper" else device.families[0]
    constants = device.model(table)
    count = Counter(constant.provenance for constant in constants.values())
    unmeasured = [n for n in device.must_measure if n.startswith(f"{table}.")]
    return {
        "name": device.name,
        "title": device.title,
        "memory_bytes": device.limit("memory_bytes"),
        "profile_sha256": device.sha256,
        "constants_by_provenance": dict(sorted(count.items())),
        "must_measure": unmeasured,
    }
