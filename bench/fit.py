"""Fit the Hopper family's constants to measured rows and report the error on shapes held out.

    python -m bench.fit bench/results/h200/calibration_samples.json.gz --device h200 --write

Least squares on the logarithm of predicted over measured time, with a soft loss so that a
throttled row pulls little. Shapes are split by a hash before anything is fitted: two thirds
are fitted, a third is only ever reported. ``--write`` puts the constants into the profile;
``python -m bench.derive_profiles`` must follow.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from kernels.bench_plan import problem_of
from solver.device import Constant, DeviceProfile, load_profile
from solver.families import sm90_gemm
from solver.families.sm90_gemm_cost import LAUNCH_FIELDS, WORK_FIELDS, setup_ticks, work_cost
from solver.problem import Problem
from solver.recurrence import Pipeline, end_ticks
from solver.units import TICKS_PER_US

FAMILY = sm90_gemm.NAME

LEAST = {"mma_overhead": 0.968}
"""The least a constant may be: at 0.967 one SM at ``clock_ghz`` has its datasheet's tensor rate."""

FIXED = ("mma_macs_per_cycle", "mma_min_n", "clock_ghz", "load_norm")
"""Constants that are the hardware's or the model's own and are not fitted."""


def is_held_out(m: int, n: int, k: int) -> bool:
    """Whether a shape is one of the third that nothing is fitted to, by hash."""
    return hashlib.sha256(f"{m}x{n}x{k}".encode()).digest()[0] % 3 == 0


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Measured rows of one problem: configuration columns, and time in µs."""

    problem: Problem
    cold: bool
    columns: dict[str, np.ndarray[Any, np.dtype[np.int64]]]
    measured_us: np.ndarray[Any, np.dtype[np.float64]]

    @property
    def held_out(self) -> bool:
        """A third of the shapes, by hash."""
        return is_held_out(self.problem.m, self.problem.n, self.problem.k)


def load_groups(paths: list[Path]) -> list[Group]:
    """Timed rows of result files, by problem and cache state."""
    by_problem: dict[tuple[Problem, bool], list[tuple[dict[str, Any], float]]] = {}
    for path in paths:
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        for row in json.loads(text)["rows"]:
            if row.get("median_us"):
                problem = problem_of(row)
                key = (problem, row["cache"] == "cold")
                by_problem.setdefault(key, []).append((row["config"], row["median_us"]))
    groups = []
    for (problem, cold), rows in by_problem.items():
        names = [name for name in rows[0][0] if name != "family"]
        columns = {n: np.array([c[n] for c, _ in rows], dtype=np.int64) for n in names}
        groups.append(Group(problem, cold, columns, np.array([time for _, time in rows])))
    return groups


def with_constants(device: DeviceProfile, values: dict[str, float], source: str) -> DeviceProfile:
    """The profile with some of the family's constants replaced."""
    table = dict(device.models[FAMILY])
    for name, value in values.items():
        table[name] = Constant(value, table[name].unit, "measured", source)
    return dataclasses.replace(device, models={**device.models, FAMILY: table})


def predict_us(group: Group, device: DeviceProfile) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Predicted time of a group's rows in µs."""
    c = group.columns
    w = work_cost(
        group.problem, device, {n: c[n] for n in (*WORK_FIELDS, *LAUNCH_FIELDS)}, cold=group.cold
    )
    slots = sm90_gemm.usable_slots(c)
    pipeline = Pipeline(
        w.load, w.latency, w.math, w.early, w.epilogue, slots, w.iterations, w.units
    )
    setup = setup_ticks(
        sm90_gemm.threads(c),
        sm90_gemm.smem_bytes(c, group.problem.element_bytes),
        device.constant(FAMILY, "launch_warpgroup_us"),
        device.constant(FAMILY, "launch_serial_us"),
    )
    time_us: np.ndarray[Any, np.dtype[np.float64]] = (
        w.fixed + setup + end_ticks(pipeline) + w.store
    ) / TICKS_PER_US
    return time_us


def errors(groups: list[Group], device: DeviceProfile) -> np.ndarray[Any, np.dtype[np.float64]]:
    """log(predicted / measured) of all rows."""
    return np.concatenate([np.log(predict_us(g, device) / g.measured_us) for g in groups])


def summary(groups: list[Group], device: DeviceProfile) -> str:
    """Mean, median, p95 and maximal absolute percentage error, and regret among the rows."""
    off = np.abs(np.expm1(errors(groups, device)))
    regret = [
        g.measured_us[int(np.argmin(predict_us(g, device)))] / g.measured_us.min()
        for g in groups
        if len(g.measured_us) > 4
    ]
    return (
        f"{len(off)} rows: mean {off.mean():.3f}, median {np.median(off):.3f}, "
        f"p95 {np.percentile(off, 95):.3f}, max {off.max():.3f}; regret among rows "
        f"{np.exp(np.log(regret).mean()):.3f}, worst {max(regret):.3f}"
    )


def fit(groups: list[Group], device: DeviceProfile, source: str) -> DeviceProfile:
    """Constants that minimise a soft loss of the log error over ``groups``."""
    names = [n for n in device.models[FAMILY] if n not in FIXED]
    start = np.array([device.constant(FAMILY, n) for n in names])

    def residuals(scales: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
        values = dict(zip(names, (start * np.exp(scales - 1)).tolist(), strict=True))
        prior = 0.5 * (scales - 1)  # a constant that no row decides stays where it was
        return np.concatenate([errors(groups, with_constants(device, values, source)), prior])

    # From 1, so that a relative step of 1 % moves times by more than a tick.
    start = np.maximum(start, [LEAST.get(name, -np.inf) for name in names])
    least = [
        1 + np.log(LEAST[n] / s) - 1e-9 if n in LEAST else -np.inf
        for n, s in zip(names, start, strict=True)
    ]
    solution = least_squares(
        residuals,
        np.ones(len(names)),
        bounds=(least, np.inf),
        loss="soft_l1",
        f_scale=0.05,
        diff_step=0.01,
        max_nfev=60,
    )
    values = dict(zip(names, (start * np.exp(solution.x - 1)).tolist(), strict=True))
    return with_constants(device, {n: float(f"{v:.4g}") for n, v in values.items()}, source)


def _source(paths: list[Path], rows: int) -> str:
    """Where fitted constants come from, in words."""
    names = ", ".join(f"{p.name} {hashlib.sha256(p.read_bytes()).hexdigest()[:12]}" for p in paths)
    return f"fitted by bench/fit.py to {rows} timed rows on one H200 ({names})"


def main() -> None:
    """Fit, report, and write on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    device = load_profile(arguments.device)
    groups = load_groups(arguments.results)
    training = [g for g in groups if not g.held_out]
    held_out = [g for g in groups if g.held_out]
    rows = sum(len(g.measured_us) for g in training)
    print(f"before, fitted shapes: {summary(training, device)}")
    print(f"before, held out:      {summary(held_out, device)}")
    fitted = fit(training, device, _source(arguments.results, rows))
    print(f"after, fitted shapes:  {summary(training, fitted)}")
    print(f"after, held out:       {summary(held_out, fitted)}")
    for suite in (True, False):
        part = [g for g in held_out if g.cold == suite]
        print(f"  held out, {'cold' if suite else 'warm'}:      {summary(part, fitted)}")
    for name, constant in fitted.models[FAMILY].items():
        print(f"{name:32} {device.constant(FAMILY, name):12.5g} -> {constant.value:12.5g}")
    if arguments.write:
        path = Path("solver/profiles") / f"{arguments.device}.json"
        raw = json.loads(path.read_text("utf-8"))
        raw["models"][FAMILY] = {n: c.to_dict() for n, c in fitted.models[FAMILY].items()}
        path.write_text(json.dumps(raw, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
