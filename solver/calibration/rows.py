"""Measured rows of one problem as a fit needs them, and the model's errors over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from solver.config import Config
from solver.device import Constant, DeviceProfile
from solver.families import sm90_gemm, sm90_gemm_power
from solver.ground_truth import CONFIG_FIELDS
from solver.problem import Problem
from solver.row_price import price_rows
from solver.units import TICKS_PER_US

FAMILY = sm90_gemm.NAME

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]


class MeasuredGroup(Protocol):
    """Timed rows of one problem: configuration columns and times in µs, shape [R] each."""

    @property
    def problem(self) -> Problem: ...
    @property
    def cold(self) -> bool: ...
    @property
    def columns(self) -> dict[str, Integers]: ...
    @property
    def measured_us(self) -> Floats: ...


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A ``MeasuredGroup`` and no more."""

    problem: Problem
    cold: bool
    columns: dict[str, Integers]
    measured_us: Floats


def with_constants(
    device: DeviceProfile,
    values: Mapping[str, float],
    source: str,
    provenance: str = "measured",
    family: str = FAMILY,
) -> DeviceProfile:
    """The profile with some of a family's constants replaced."""
    table = dict(device.models[family])
    for name, value in values.items():
        table[name] = Constant(value, table[name].unit, provenance, source)
    return dataclasses.replace(device, models={**device.models, family: table})


def predict_us(group: MeasuredGroup, device: DeviceProfile) -> Floats:
    """Predicted time of a group's rows in µs."""
    time, _ = price_rows(group.problem, device, group.columns, cold=group.cold)
    time_us: Floats = time / TICKS_PER_US
    return time_us


def log_times(groups: Sequence[MeasuredGroup], device: DeviceProfile) -> Floats:
    """Logarithm of the predicted µs of all rows, group after group."""
    device = device.without(sm90_gemm_power.TABLE)
    return np.concatenate([np.log(predict_us(group, device)) for group in groups])


def log_errors(groups: Sequence[MeasuredGroup], device: DeviceProfile) -> Floats:
    """log(predicted / measured) of all rows, group after group."""
    device = device.without(sm90_gemm_power.TABLE)
    return np.concatenate([np.log(predict_us(g, device) / g.measured_us) for g in groups])


def measured_over_predicted(groups: Sequence[MeasuredGroup], device: DeviceProfile) -> list[float]:
    """Measured over predicted time of all rows, group after group."""
    return np.exp(-log_errors(groups, device)).tolist() if groups else []


def timed_row(problem: Problem, config: Config, cache: str, measured_us: float) -> RowGroup:
    """One timed configuration."""
    columns = {n: np.array([getattr(config, n)], dtype=np.int64) for n in CONFIG_FIELDS}
    return RowGroup(problem, cache == "cold", columns, np.array([measured_us], dtype=np.float64))


def mean_ape(groups: Sequence[MeasuredGroup], device: DeviceProfile) -> float:
    """Mean of |predicted - measured| / measured over all rows."""
    return float(np.abs(np.expm1(log_errors(groups, device))).mean())


def row_count(groups: Sequence[MeasuredGroup]) -> int:
    """Rows of all groups."""
    return sum(len(group.measured_us) for group in groups)


def taken(group: MeasuredGroup, rows: Sequence[int] | Integers) -> RowGroup:
    """Some rows of a group."""
    columns = {name: column[rows] for name, column in group.columns.items()}
    return RowGroup(group.problem, group.cold, columns, group.measured_us[rows])
