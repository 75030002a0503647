"""A traced CTA's timeline laid over the simulator's: what the model is off by, phase by phase.

Needs neither a GPU nor z3: numbers in, JSON-ready values out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.trace_events import CtaEvents, Times
from kernels.trace_records import STEP_ROOM
from solver.config import Config
from solver.device import DeviceProfile
from solver.problem import Problem
from solver.recurrence import end_ticks
from solver.row_price import framed_rows
from solver.simulator import simulate
from solver.units import us_from_ticks

SHOWN = 256
"""K-iterations of a timeline that a result keeps; its figures are over all."""
PHASES = ("load_issue", "load_end", "math_start", "math_end")
WAIT_PHASES = ("first_load", "within_units", "between_units")
"""The pipeline fills; a ring that runs dry; a unit's first load comes after the epilogue."""


@dataclass(frozen=True, slots=True)
class Modelled:
    """What the model says of a launch: its CTA's events, played one by one, as many as a trace may
    have; the time from the CTA's first load to its end, and that of the whole launch."""

    events: CtaEvents
    span_us: float
    time_us: float


def modelled(problem: Problem, config: Config, device: DeviceProfile, cold: bool) -> Modelled:
    """Play a configuration's CTA in the simulator."""
    columns = {n: np.array([v]) for n, v in config.to_dict().items() if n != "family"}
    framed = framed_rows(problem, device, columns, cold=cold)
    parameters = {
        name: int(getattr(framed.pipeline, name)[0]) for name in type(framed.pipeline).__slots__
    }
    store, before = int(framed.works.store[0]), int(framed.works.fixed[0] + framed.setup[0])
    span = int(end_ticks(framed.pipeline)[0]) + store
    return Modelled(played(parameters, store), us_from_ticks(span), us_from_ticks(before + span))


def played(parameters: dict[str, int], store: int) -> CtaEvents:
    """The simulator's events of a CTA, by the recurrence's parameters in ticks; ``store`` ticks
    follow its last product. The first STEP_ROOM k-iterations, where there are more."""
    total = parameters["iterations"] * parameters["units"]
    run = simulate(
        **parameters,
        keep_events=min(total, STEP_ROOM),
        stop_after_kept=True,
    )

    def times(name: str) -> Times:
        return np.array([us_from_ticks(getattr(event, name)) for event in run.events])

    iteration = np.array([event.iteration for event in run.events])
    first, last = iteration == 0, iteration == parameters["iterations"] - 1
    start, end = times("math_start"), times("math_end")
    epilogue_end = end[last] + us_from_ticks(parameters["epilogue"])
    ready = np.concatenate([[0.0], end[:-1]])
    ready[first] = np.concatenate([[0.0], epilogue_end])[: first.sum()]
    if len(run.events) == total:
        epilogue_end[-1] = us_from_ticks(run.end + store)
    return CtaEvents(
        unit=np.array([event.unit for event in run.events]),
        iteration=iteration,
        load_issue=times("load_issue"),
        load_end=times("load_end"),
        math_start=start,
        math_end=end,
        wait=start - ready,
        epilogue_end=epilogue_end,
        pass_us=0.0,
        product_us=us_from_ticks(parameters["math"]),
    )


def overlay(measured: CtaEvents, model: CtaEvents) -> dict[str, Any]:
    """The errors (modelled less measured) of event times by phase and of MATH wait, in µs, over
    the k-iterations that both have, and the first SHOWN events of both."""
    mine, theirs = _common(measured, model)
    phases = {
        name: _errors(getattr(model, name)[theirs], getattr(measured, name)[mine])
        for name in PHASES
    }
    units = min(len(measured.epilogue_end), len(model.epilogue_end))
    phases["epilogue"] = _errors(model.epilogue_end[:units], measured.epilogue_end[:units])
    return {
        "iterations": len(mine),
        "phases": phases,
        "wait": _wait(measured, mine, model, theirs),
        "product": {"measured_us": measured.product_us, "modelled_us": model.product_us},
        "pass_us": measured.pass_us,
        "timeline": {
            "shown": min(SHOWN, len(mine)),
            "measured": _timeline(measured, mine[:SHOWN]),
            "modelled": _timeline(model, theirs[:SHOWN]),
        },
    }


def _common(measured: CtaEvents, model: CtaEvents) -> tuple[Any, Any]:
    """Places in both of the k-iterations that both have: splits of a k are not all as long."""
    place = {key: i for i, key in enumerate(zip(model.unit, model.iteration, strict=True))}
    keys = list(zip(measured.unit, measured.iteration, strict=True))
    mine = [i for i, key in enumerate(keys) if key in place]
    return np.array(mine, dtype=int), np.array([place[keys[i]] for i in mine], dtype=int)


def _errors(modelled_us: Times, measured_us: Times) -> dict[str, Any]:
    """Of the events that were seen; all None where none was."""
    off = (modelled_us - measured_us)[np.isfinite(measured_us)]
    if not off.size:
        return {"events": 0, "mean_error_us": None, "bias_us": None, "worst_us": None}
    return {
        "events": len(off),
        "mean_error_us": float(np.abs(off).mean()),
        "bias_us": float(off.mean()),
        "worst_us": float(np.abs(off).max()),
    }


def _wait(measured: CtaEvents, mine: Any, model: CtaEvents, theirs: Any) -> dict[str, Any]:
    unit, iteration = model.unit[theirs], model.iteration[theirs]
    parts = {
        "first_load": (unit == 0) & (iteration == 0),
        "within_units": iteration > 0,
        "between_units": (unit > 0) & (iteration == 0),
    }
    real, said = measured.wait[mine], model.wait[theirs]
    return {
        **_pair(real.sum(), said.sum()),
        "by_phase": {name: _pair(real[parts[name]].sum(), said[parts[name]].sum())
                     for name in WAIT_PHASES},
    }  # fmt: skip


def _pair(measured_us: float, modelled_us: float) -> dict[str, float]:
    return {
        "measured_us": float(measured_us),
        "modelled_us": float(modelled_us),
        "error_us": float(modelled_us - measured_us),
    }


def _timeline(events: CtaEvents, places: Any) -> dict[str, Any]:
    """Columns of the first events; null where a time was not seen."""
    units = 0 if not len(places) else int(events.unit[places[-1]]) + 1
    return {
        "unit": events.unit[places].tolist(),
        "iteration": events.iteration[places].tolist(),
        **{f"{name}_us": _rounded(getattr(events, name)[places]) for name in PHASES},
        "epilogue_end_us": _rounded(events.epilogue_end[:units]),
    }


def _rounded(times_us: Times) -> list[float | None]:
    """To the nanosecond, which is less than a clock has."""
    return [round(float(t), 3) if np.isfinite(t) else None for t in times_us]
