"""The model's price of given configurations of a problem, whole columns of them at a time.

The table of a space (``solver.table``) prices everything that is legal; this prices rows that were
measured, alike, whether or not they are legal by now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from solver.device import DeviceProfile
from solver.families import sm90_gemm as family
from solver.families.sm90_gemm_cost import LAUNCH_FIELDS, WORK_FIELDS, setup_ticks, work_cost
from solver.problem import Problem
from solver.recurrence import Pipeline, Ticks, end_ticks, wait_ticks
from solver.table import Works


@dataclass(frozen=True, slots=True)
class Framed:
    """What the model has of R rows: the recurrence's parameters, and what frames it. ``setup``
    ticks and the works' ``fixed`` precede the first load, their ``store`` follows the last MATH."""

    works: Works
    pipeline: Pipeline
    setup: Ticks


def framed_rows(
    problem: Problem, device: DeviceProfile, columns: Mapping[str, Any], *, cold: bool
) -> Framed:
    """The parameters of rows given as configuration columns, integer arrays of shape [R]."""
    fields = {name: columns[name] for name in (*WORK_FIELDS, *LAUNCH_FIELDS)}
    w = work_cost(problem, device, fields, cold=cold)
    slots = family.usable_slots(columns)
    load = w.load_at(slice(None), slots)
    setup = setup_ticks(
        family.threads(columns),
        family.smem_bytes(columns, problem.element_bytes),
        device.constant(family.NAME, "launch_warpgroup_us"),
        device.constant(family.NAME, "launch_serial_us"),
    )
    pipeline = Pipeline(load, w.latency, w.math, w.early, w.epilogue, slots, w.iterations, w.units)
    return Framed(w, pipeline, setup)


def price_rows(
    problem: Problem, device: DeviceProfile, columns: Mapping[str, Any], *, cold: bool
) -> tuple[Ticks, Ticks]:
    """(time, MATH wait) in ticks of rows given as configuration columns. Shape [R] each."""
    framed = framed_rows(problem, device, columns, cold=cold)
    end = end_ticks(framed.pipeline)
    time: Ticks = framed.works.fixed + framed.setup + end + framed.works.store
    return time, wait_ticks(framed.pipeline, end)
