"""The arithmetic of a calibration in a process of its own, so that a service that calibrates goes
on answering, and cancelling it ends it. No CUDA here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.process import report
from solver.calibration.design import CalibrationDesign, make_design
from solver.calibration.fit import fit
from solver.calibration.profile import calibrated_text
from solver.calibration.rows import RowGroup, mean_ape
from solver.calibration.start import Start, start_of
from solver.device import load_profile
from solver.ground_truth import CONFIG_FIELDS
from solver.sweep_design import SweepRow

DESIGN, FIT = "design", "fit"


@dataclass(frozen=True, slots=True)
class Basis:
    """What a calibration begins with: whose profile, the limits read off the device, what
    microbenchmarks said, and whether the present constants are forgotten."""

    device: str
    limits: Mapping[str, int]
    ceilings: Mapping[str, float] = field(default_factory=dict)
    scratch: bool = False


@dataclass(frozen=True, slots=True)
class Timed:
    """A row and its time in µs."""

    row: SweepRow
    median_us: float


@dataclass(frozen=True, slots=True)
class FitTask:
    """Rows to fit to and fresh ones to judge by; ``calibration`` and ``where`` go into the profile
    (``solver.calibration.profile``)."""

    basis: Basis
    fitted: tuple[Timed, ...]
    fresh: tuple[Timed, ...]
    calibration: Mapping[str, Any]
    where: str


@dataclass(frozen=True, slots=True)
class FitResult:
    """Mean errors over the fresh rows, and over the fitted ones, of the present profile and of the
    calibrated one, whose text is beside them and names the present one's hash."""

    present_error: float
    calibrated_error: float
    fitted_error_before: float
    fitted_error: float
    steps: int
    text: str


def design_rows(basis: Basis, seed: int, rows: int) -> CalibrationDesign:
    """The rows to measure."""
    report(DESIGN)
    start = _start(basis)
    return make_design(start.device, start.widths, seed, rows)


def fit_rows(task: FitTask) -> FitResult:
    """Fit, judge, and write the profile down; reports each step."""
    start = _start(task.basis)
    fitted, fresh = groups_of(task.fitted), groups_of(task.fresh)

    def tell(done: int, most: int) -> None:
        report(FIT, done=done, total=most)

    found = fit(fitted, start.device, start.widths, "calibrated", progress=tell)
    present = load_profile(task.basis.device)
    errors = {
        "error_present": mean_ape(fresh, present),
        "error": mean_ape(fresh, found.device),
        "fitted_error_before": mean_ape(fitted, start.device),
        "fitted_error": mean_ape(fitted, found.device),
    }
    calibration = {**task.calibration, "present_sha256": present.sha256}
    calibration |= {n: round(e, 5) for n, e in errors.items()}
    text = calibrated_text(task.basis.device, found, task.basis.limits, calibration, task.where)
    return FitResult(
        present_error=errors["error_present"],
        calibrated_error=errors["error"],
        fitted_error_before=errors["fitted_error_before"],
        fitted_error=errors["fitted_error"],
        steps=found.steps,
        text=text,
    )


def _start(basis: Basis) -> Start:
    return start_of(load_profile(basis.device), basis.limits, basis.ceilings, scratch=basis.scratch)


def groups_of(rows: Sequence[Timed]) -> list[RowGroup]:
    """Rows by problem and cache state."""
    by_group: dict[Any, list[Timed]] = {}
    for timed in rows:
        by_group.setdefault(timed.row.group, []).append(timed)
    groups = []
    for members in by_group.values():
        first = members[0].row
        columns = {
            name: np.array([getattr(each.row.config, name) for each in members], dtype=np.int64)
            for name in CONFIG_FIELDS
        }
        times = np.array([each.median_us for each in members])
        groups.append(RowGroup(first.problem, first.cache == "cold", columns, times))
    return groups
