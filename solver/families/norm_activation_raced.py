"""Races measured on a device, beside which a problem may lie, and what they make of its times.

Which kernels the model has too fast, and which too slow, goes with width, type and the warps of an
SM, and little with the degree of a polynomial (docs/norm-model.md has the figures). So that a
problem beside races is told the model's times over what the model was off by there: a
configuration's error, over the logarithm of multiply-adds an element, in a straight line between
two races and that of the last one beyond.

The races ship with the device (``norm_activation_races.json``, written by ``bench.norm_races``);
what is held out of every fit is not among them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from math import log
from typing import Any

import numpy as np

from solver.advice.thresholds import Range
from solver.calibration.rows import Floats
from solver.device import DeviceProfile
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_columns import norm_rows
from solver.families.norm_activation_cost import priced
from solver.families.norm_activation_crowding import reserved_smem_bytes
from solver.pick import price
from solver.units import TICKS_PER_US

FAR = 4.0
"""Times more or less arithmetic than the nearest race's with which nothing is told any more where
all races are on one side: the grid's own steps are up to 3.8."""
FILE = "norm_activation_races.json"


@dataclass(frozen=True, slots=True)
class Corrected:
    """Raced configurations, and what each is predicted to take in µs, shape [R]. ``between``:
    whether the problem has a race of its own arithmetic, or races of less and of more."""

    configs: tuple[NormConfig, ...]
    time_us: Floats
    between: bool


@cache
def _shipped() -> Mapping[str, Any]:
    raw: Mapping[str, Any] = json.loads(
        resources.files(__package__).joinpath(FILE).read_text("utf-8")
    )
    return raw


def forget() -> None:
    """The file was written anew: read it again."""
    _shipped.cache_clear()
    _raced.cache_clear()


def ranges(basis: str) -> dict[str, Range]:
    """Measured over predicted of each figure that advice gives on a basis: a tenth of the fitted
    problems lie below ``low``, half below ``expected``, a tenth above ``high``."""
    return {name: Range(*off) for name, off in _shipped()["off"][basis].items()}


def corrected(
    problem: NormProblem,
    device: DeviceProfile,
    warps_per_sm: int | None,
    *,
    unseen: bool = False,
) -> Corrected | None:
    """Times of the configurations that were raced beside a problem; None where no race lies there.

    Beside are races of problems that differ in rows and degree alone, of more than the L2 holds, of
    which cold and warm launches are one: one of the same degree, or two, of which one is not FAR.
    ``unseen``: by races of other degrees alone, as if this one had not been measured.
    """
    if not _outgrows_l2(problem, device):
        return None
    shape = NormProblem(1, problem.width, problem.dtype, problem.norm, problem.activation)
    beside = [
        each
        for each in _raced(shape, device, warps_per_sm)
        if not (unseen and each.degree == problem.degree)
    ]
    if len(beside) < 2 and problem.degree not in {each.degree for each in beside}:
        return None  # of one other problem's errors nobody knows how they go on
    at = _arithmetic(problem)
    between = beside[0].arithmetic <= at <= beside[-1].arithmetic
    if not between and min(abs(each.arithmetic - at) for each in beside) > log(FAR):
        return None
    known: dict[NormConfig, list[tuple[float, float]]] = {}
    for each in beside:
        for config, log_off in zip(each.configs, each.log_off.tolist(), strict=True):
            known.setdefault(config, []).append((each.arithmetic, log_off))
    configs = tuple(known)
    log_off = np.array([np.interp(at, *np.array(known[config]).T) for config in configs])
    return Corrected(
        configs=configs,
        time_us=_predicted_us(problem, configs, device, warps_per_sm) * np.exp(log_off),
        between=between,
    )


@dataclass(frozen=True, slots=True)
class _Raced:
    """A race: its problem's degree and arithmetic, and the logarithm of measured over predicted
    time of each configuration, shape [R]."""

    degree: int
    arithmetic: float
    configs: tuple[NormConfig, ...]
    log_off: Floats


@lru_cache(maxsize=64)
def _raced(
    shape: NormProblem, device: DeviceProfile, warps_per_sm: int | None
) -> tuple[_Raced, ...]:
    """The device's races of a width, type, norm and transformation, by arithmetic."""
    shipped = _shipped()
    if shipped["device"] != device.name:
        return ()
    known = [NormConfig.from_dict(each) for each in shipped["configs"]]
    found = []
    for raw in shipped["races"]:
        problem = NormProblem(**raw["problem"])
        alike = replace(problem, rows=1, degree=0) == shape and raw["warps_per_sm"] == warps_per_sm
        if alike and _outgrows_l2(problem, device):
            configs = tuple(known[place] for place in raw["configs"])
            predicted_us = _predicted_us(problem, configs, device, warps_per_sm)
            log_off = np.log(np.array(raw["median_us"]) / predicted_us)
            found.append(_Raced(problem.degree, _arithmetic(problem), configs, log_off))
    return tuple(sorted(found, key=lambda each: each.arithmetic))


def _predicted_us(
    problem: NormProblem,
    configs: Sequence[NormConfig],
    device: DeviceProfile,
    warps_per_sm: int | None,
) -> Floats:
    """By the model, with as many blocks on an SM as it counts."""
    reserved = [reserved_smem_bytes(problem, c, warps_per_sm, device) or 0 for c in configs]
    table = priced(problem, device, norm_rows(problem, configs, device, None, reserved))
    every = np.arange(table.size)
    predicted: Floats = price(table, every, every)[0] / TICKS_PER_US
    return predicted


def _arithmetic(problem: NormProblem) -> float:
    return log(problem.fmas / (problem.rows * problem.width))


def _outgrows_l2(problem: NormProblem, device: DeviceProfile) -> bool:
    return problem.storage_bytes > device.limit("l2_bytes")
