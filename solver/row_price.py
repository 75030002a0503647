"""The model's price of given configurations of a problem, whole columns of them at a time.

The table of a space (``solver.table``) prices everything that is legal; this prices rows that were
measured, alike, whether or not they are legal by now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from solver.device import DeviceProfile
from solver.families import sm90_gemm as family
from solver.families.sm90_gemm_cost import LAUNCH_FIELDS, WORK_FIELDS, setup_ticks, work_cost
from solver.problem import Problem
from solver.recurrence import Pipeline, Ticks, end_ticks, wait_ticks


def price_rows(
    problem: Problem, device: DeviceProfile, columns: Mapping[str, Any], *, cold: bool
) -> tuple[Ticks, Ticks]:
    """(time, MATH wait) in ticks of rows given as configuration columns. Shape [R] each."""
    fields = {name: columns[name] for name in (*WORK_FIELDS, *LAUNCH_FIELDS)}
    w = work_cost(problem, device, fields, cold=cold)
    slots = family.usable_slots(columns)
    load = w.load_at(slice(None), slots)
    pipeline = Pipeline(load, w.latency, w.math, w.early, w.epilogue, slots, w.iterations, w.units)
    setup = setup_ticks(
        family.threads(columns),
        family.smem_bytes(columns, problem.element_bytes),
        device.constant(family.NAME, "launch_warpgroup_us"),
        device.constant(family.NAME, "launch_serial_us"),
    )
    end = end_ticks(pipeline)
    time: Ticks = w.fixed + setup + end + w.store
    return time, wait_ticks(pipeline, end)
