"""Fit the Hopper family's constants to measured rows and report the error on shapes held out.

    python -m bench.fit bench/results/h200/ground_truth.csv.gz --device h200 --write
    python -m bench.fit bench/results/h200/calibration_*.json.gz --device h200 --write

The rows of a ground truth; samples of a calibration, and the candidates that were measured for the
best of a suite. Least squares on the logarithm of predicted over measured time, with a soft loss so
that a throttled row pulls little. Rows are split by hash before anything is fitted
(``solver.split``): what is held out, by shape or by configuration, is not fitted, and held-out
shapes are reported with ``--held-out`` alone: look when the model is frozen, and count it
(docs/accuracy.md). Candidates are timed shortly and one after another, the best of them once more
and longer: what its first time was off by is taken from all. ``--write`` puts the constants into
the profile; ``python -m bench.derive_profiles`` must follow.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import hashlib
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.files import write_constants
from kernels.bench_plan import problem_of
from solver.calibration import fit as calibration
from solver.calibration.prior import FIXED
from solver.calibration.rows import FAMILY, log_errors, row_count
from solver.config import Config
from solver.device import NOT_PARSED, DeviceProfile, load_profile
from solver.errors import InvalidInput
from solver.families import sm90_gemm
from solver.ground_truth import GZIP_DAMAGED, load_ground_truth
from solver.problem import Problem
from solver.recurrence import Ticks
from solver.row_price import price_rows
from solver.split import held_out_forms, is_held_out

CALIBRATION = "calibration"
TRUTH = "truth "
"""Before the suite of a ground truth's rows."""

STEADY = 0.03
"""How far the best's time, measured again, may be off where the candidates' order says something:
throttled ones differ by as much among themselves."""

REGRET_ROWS = 5
"""Rows a group needs for its regret to say something."""

WIDTH = 0.1
"""Of every constant's prior, which matters where no row decides one: it stays where it was."""

EVALUATIONS = 60


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Measured rows of one problem: configuration columns, and time in µs.

    ``suite`` is CALIBRATION, TRUTH and a suite, or whose candidates the rows are. ``steady``: the
    row that was measured twice took the same time.
    """

    suite: str
    problem: Problem
    cold: bool
    steady: bool
    columns: dict[str, np.ndarray[Any, np.dtype[np.int64]]]
    measured_us: np.ndarray[Any, np.dtype[np.float64]]

    @property
    def held_out(self) -> bool:
        """A third of the shapes, by hash."""
        return is_held_out(self.problem.m, self.problem.n, self.problem.k)


def _result_rows(path: Path) -> list[dict[str, Any]]:
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        rows: list[dict[str, Any]] = json.loads(text)["rows"]
    except (*GZIP_DAMAGED, *NOT_PARSED) as error:
        raise InvalidInput("results", f"{path} is no file of rows: {error!r}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidInput("results", f"{path} is no file of rows")
    return rows


def load_groups(paths: list[Path]) -> list[Group]:
    """Rows of ground truths (``.csv.gz``); timed samples of result files, by problem and cache
    state, and the candidates of each best row; picks are left out, nothing was measured beside
    them. Raises InvalidInput where a file is neither."""
    samples: dict[tuple[Problem, bool], list[dict[str, Any]]] = {}
    groups = []
    for path in paths:
        if path.name.endswith(".csv.gz"):
            groups += [
                Group(TRUTH + g.suite, g.problem, g.cold, True, g.columns, g.measured_us)
                for g in load_ground_truth(path)
            ]
            continue
        for row in _result_rows(path):
            key = (problem_of(row), row["cache"] == "cold")
            if not row.get("median_us"):
                continue
            if row["role"] == "sample":
                samples.setdefault(key, []).append(row)
            elif row["role"] == "best":
                (best,) = (c for c in row["candidates"] if c["config"] == row["config"])
                again = row["median_us"] / best["median_us"]
                groups.append(_group(row["suite"], *key, row["candidates"], again))
    return [*(_group(CALIBRATION, *key, rows) for key, rows in samples.items()), *groups]


def _group(
    suite: str, problem: Problem, cold: bool, measured: list[dict[str, Any]], again: float = 1.0
) -> Group:
    rows = [row for row in measured if row.get("median_us")]
    configs = [Config.from_dict(row["config"]).to_dict() for row in rows]
    names = [name for name in configs[0] if name != "family"]
    columns = {n: np.array([config[n] for config in configs], dtype=np.int64) for n in names}
    times = np.array([row["median_us"] for row in rows]) * again
    return Group(suite, problem, cold, abs(again - 1) <= STEADY, columns, times)


def training_rows(groups: list[Group]) -> list[Group]:
    """What constants are fitted to: groups whose shape is not held out, without rows whose
    configuration is."""
    kept = []
    for group in groups:
        rows = ~held_out_forms(group.columns)
        if not group.held_out and rows.any():
            columns = {name: column[rows] for name, column in group.columns.items()}
            kept.append(
                dataclasses.replace(group, columns=columns, measured_us=group.measured_us[rows])
            )
    return kept


def price(group: Group, device: DeviceProfile) -> tuple[Ticks, Ticks]:
    """(time, MATH wait) in ticks of a group's rows."""
    return price_rows(group.problem, device, group.columns, cold=group.cold)


def regret(group: Group, device: DeviceProfile) -> float:
    """Measured time of the row that the solver would take, of a group's, over the best's."""
    smem_bytes = sm90_gemm.smem_bytes(group.columns, group.problem.element_bytes)
    time, wait = price(group, device)
    taken = np.lexsort((smem_bytes, wait, time))[0]
    return float(group.measured_us[taken] / group.measured_us.min())


def summary(groups: list[Group], device: DeviceProfile) -> str:
    """Mean and p95 of the absolute relative error, and regret among each group's rows."""
    if not groups:
        return "no rows"
    off = np.abs(np.expm1(log_errors(groups, device)))
    words = f"{len(off):5} rows: mean {off.mean():.3f}, p95 {np.percentile(off, 95):.3f}"
    regrets = [regret(g, device) for g in groups if len(g.measured_us) >= REGRET_ROWS]
    if regrets:
        mean = np.exp(np.log(regrets).mean())
        words += f"; {len(regrets):3} groups: regret {mean:.3f}, worst {max(regrets):.3f}"
    return words


def _by_suite(groups: list[Group]) -> dict[str, list[Group]]:
    suites = sorted({g.suite for g in groups})
    return {f"  {suite}": [g for g in groups if g.suite == suite] for suite in suites}


def report(groups: list[Group], device: DeviceProfile, held_out: bool = False) -> str:
    """Errors and regrets by what was measured, of what is fitted, and of shapes held out where that
    is asked for."""
    truth = [g for g in groups if g.suite.startswith(TRUTH)]
    candidates = [g for g in groups if g.suite != CALIBRATION and not g.suite.startswith(TRUTH)]
    parts = {
        CALIBRATION: [g for g in groups if g.suite == CALIBRATION],
        "candidates": candidates,
        **_by_suite(candidates),
        "candidates, steady": [g for g in candidates if g.steady],
        "ground truth": truth,
        **_by_suite(truth),
    }
    lines = []
    for name, part in parts.items():
        lines.append(f"{name:20} fitted   {summary(training_rows(part), device)}")
        if held_out:
            unseen = [g for g in part if g.held_out]
            lines.append(f"{name:20} held out {summary(unseen, device)}")
    return "\n".join(lines)


def fit(
    groups: list[Group],
    device: DeviceProfile,
    source: str,
    fixed: Collection[str] = FIXED,
    evaluations: int = EVALUATIONS,
) -> DeviceProfile:
    """Constants that minimise a soft loss of the log error over ``groups``, those that are
    ``fixed`` as they were, in at most so many evaluations, each with its derivatives."""
    widths = {name: WIDTH for name in device.models[FAMILY] if name not in fixed}
    return calibration.fit(groups, device, widths, source, steps=evaluations).device


def source_words(
    paths: Sequence[Path], rows: int, by: str = "bench/fit.py", on: str = "H200"
) -> str:
    """Where fitted constants come from, in words."""
    names = ", ".join(f"{p.name} {hashlib.sha256(p.read_bytes()).hexdigest()[:12]}" for p in paths)
    return f"fitted by {by} to {rows} timed rows on one {on} ({names})"


def main(given: Sequence[str] | None = None) -> None:
    """Fit, report, and write on request; leaves with 2 for wrong arguments or files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--held-out", action="store_true", help="look at what is held out, too")
    arguments = parser.parse_args(given)
    try:
        device = load_profile(arguments.device)
        groups = load_groups(arguments.results)
    except InvalidInput as error:
        parser.error(str(error))
    training = training_rows(groups)
    rows = row_count(training)
    print(f"before\n{report(groups, device, arguments.held_out)}")
    fitted = fit(training, device, source_words(arguments.results, rows))
    print(f"after\n{report(groups, fitted, arguments.held_out)}")
    for name, constant in fitted.models[FAMILY].items():
        print(f"{name:32} {device.constant(FAMILY, name):12.5g} -> {constant.value:12.5g}")
    if arguments.write:
        path = Path("solver/profiles") / f"{arguments.device}.json"
        write_constants(path, FAMILY, fitted.models[FAMILY])


if __name__ == "__main__":
    main()
