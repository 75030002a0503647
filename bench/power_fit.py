"""Fit the constants of power to measured rows and report how far predictions are off.

    python -m bench.power_fit bench/results/h200/power.json --write

Rows are those of ``python -m kernels.power``. Least squares on the logarithms of predicted over
measured power and of predicted over measured energy per launch, with a soft loss, by the profile's
own times: what answers are made of is what is fitted. Rows that ``solver.split`` holds out are
never fitted; errors of both are reported, and written with ``--report``. The margin that caps leave
is the 95th percentile of what fitted rows draw beyond their prediction. ``--write`` puts the
constants into the profile, with the power limit that the record names.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.files import write, write_constants
from bench.fit import source_words
from kernels.bench_plan import problem_of
from solver.calibration.fit import Fit, fit_family, rounded
from solver.calibration.power_start import MARGIN, power_start
from solver.calibration.rows import Floats, Integers
from solver.config import Config
from solver.device import NOT_PARSED, DeviceProfile, load_profile
from solver.errors import InvalidInput
from solver.families.sm90_gemm_power import TABLE
from solver.ground_truth import CONFIG_FIELDS
from solver.problem import Problem
from solver.recurrence import end_ticks
from solver.row_price import framed_rows
from solver.split import held_out
from solver.table import PER_MILLE, SLOWDOWN, Works
from solver.units import JOULES_PER_TICK

STEPS = 40
DECIDED = 0.1
"""Of what was not known of a constant, the part that rows must tell for it to count as measured."""
UNDECIDED = "; no row decides it"
WITHIN = 95
"""The percentile of what rows draw beyond their prediction that is the margin."""
LEAST_MARGIN, MOST_MARGIN = 0.01, 1.0
"""However near rows are: no meter is nearer. And where energies stay exact (``solver.units``)."""


@dataclass(frozen=True, slots=True)
class PowerGroup:
    """Measured rows of one problem and cache state: columns, watts, joules per launch, [R] each."""

    problem: Problem
    cold: bool
    columns: dict[str, Integers]
    power_w: Floats
    energy_j: Floats

    def take(self, keep: Any) -> PowerGroup:
        """Some of its rows."""
        columns = {name: column[keep] for name, column in self.columns.items()}
        return replace(
            self, columns=columns, power_w=self.power_w[keep], energy_j=self.energy_j[keep]
        )


@dataclass(frozen=True, slots=True)
class PowerRecord:
    """The rows of records of one device, by its profile's name and as the driver calls it, and the
    power limit that they were measured under."""

    groups: tuple[PowerGroup, ...]
    device: str
    gpu: str
    limit_w: float


def load_record(paths: Sequence[Path]) -> PowerRecord:
    """The rows that passed. Raises InvalidInput (field ``results``) for another file."""
    found: dict[Any, list[dict[str, Any]]] = {}
    facts = set()
    for path in paths:
        try:
            record = json.loads(path.read_text("utf-8"))
            facts.add((record["profile"], record["device"], record["power_limit_w"]))
            if record["suite"] != "power":
                raise InvalidInput("results", f"{path} holds no rows of kernels.power")
            for row in record["rows"]:
                if row["status"] == "passed":
                    found.setdefault((problem_of(row), row["cache"]), []).append(row)
        except NOT_PARSED as error:
            words = f"{path} is no record of kernels.power: {error!r}"
            raise InvalidInput("results", words) from error
    if len(facts) != 1:
        raise InvalidInput("results", f"are of several devices or power limits: {sorted(facts)}")
    ((profile, gpu, limit_w),) = facts
    groups = tuple(_group(problem, cache, rows) for (problem, cache), rows in found.items())
    return PowerRecord(groups, profile, gpu.removeprefix("NVIDIA "), limit_w)


def _group(problem: Problem, cache: str, rows: list[dict[str, Any]]) -> PowerGroup:
    configs = [Config.from_dict(row["config"]) for row in rows]
    return PowerGroup(
        problem,
        cache == "cold",
        {name: np.array([getattr(c, name) for c in configs]) for name in CONFIG_FIELDS},
        np.array([row["power_w"] for row in rows]),
        np.array([row["energy_j"] for row in rows]),
    )


def predict(group: PowerGroup, device: DeviceProfile) -> tuple[Floats, Floats]:
    """(watts, joules per launch) of a group's rows where they are held. Shape [R] each."""
    works, time = _timed(group, device)
    energy = works.energy(slice(None), time)
    watts: Floats = energy / (time * works.power[SLOWDOWN] / PER_MILLE)
    return watts, energy * JOULES_PER_TICK


def _timed(group: PowerGroup, device: DeviceProfile) -> tuple[Works, Integers]:
    """Works of a group's rows, and the ticks that each takes by itself, [R]."""
    framed = framed_rows(group.problem, device, group.columns, cold=group.cold)
    works = framed.works
    return works, works.fixed + framed.setup + end_ticks(framed.pipeline) + works.store


def within_cap(groups: Sequence[PowerGroup], device: DeviceProfile) -> float:
    """The part of rows that draw no more than the least cap that they are within."""
    within = []
    for group in groups:
        works, time = _timed(group, device)
        within.append(group.power_w <= works.watts(slice(None), time))
    return float(np.concatenate(within).mean())


def log_errors(groups: Sequence[PowerGroup], device: DeviceProfile) -> tuple[Floats, Floats]:
    """log(predicted / measured) of power and of energy, group after group."""
    pairs = [(predict(group, device), group) for group in groups]
    power = np.concatenate([np.log(watts / group.power_w) for (watts, _), group in pairs])
    energy = np.concatenate([np.log(joules / group.energy_j) for (_, joules), group in pairs])
    return power, energy


def parts(groups: Sequence[PowerGroup]) -> tuple[list[PowerGroup], list[PowerGroup]]:
    """(what is fitted, what is held out), groups that have no row left out."""
    fitted: list[PowerGroup] = []
    unseen: list[PowerGroup] = []
    for group in groups:
        out = np.any(list(held_out(group.problem, group.columns).values()), axis=0)
        for into, keep in ((fitted, ~out), (unseen, out)):
            if keep.any():
                into.append(group.take(keep))
    return fitted, unseen


def fit(
    groups: Sequence[PowerGroup],
    device: DeviceProfile,
    limit_w: float,
    source: str,
    steps: int = STEPS,
) -> Fit:
    """Constants of power fitted to groups. Raises InvalidInput where there are none."""
    if not groups:
        raise InvalidInput("results", "have no row that may be fitted")
    start = power_start(device, limit_w, f"the limit the driver enforces, {source}")

    def errors(trial: DeviceProfile) -> Floats:
        # A group's residuals of both kinds stand together: they are one problem's.
        return np.concatenate([np.concatenate(log_errors([group], trial)) for group in groups])

    sizes = [2 * len(group.power_w) for group in groups]
    found = fit_family(TABLE, errors, sizes, start.device, start.widths, source, steps=steps)
    table = dict(found.device.models[TABLE])
    for name, estimate in found.estimates.items():
        if estimate.determined < DECIDED:
            begun = start.device.models[TABLE][name]
            words = begun.source.removesuffix(UNDECIDED) + UNDECIDED
            table[name] = replace(table[name], provenance=begun.provenance, source=words)
    value = max(rounded(margin(groups, found.device)), LEAST_MARGIN)
    if value > MOST_MARGIN:
        words = f"draw {value:.2f} times their prediction beyond it; at most {MOST_MARGIN} can be"
        raise InvalidInput("results", words)
    table[MARGIN] = replace(table[MARGIN], value=value, provenance="measured", source=source)
    models = {**found.device.models, TABLE: table}
    return replace(found, device=replace(found.device, models=models))


def margin(groups: Sequence[PowerGroup], device: DeviceProfile) -> float:
    """Percentile WITHIN of what rows draw beyond their prediction, as a part of that."""
    power, _ = log_errors(groups, device)
    return float(np.percentile(np.expm1(-power), WITHIN))


def report(groups: Sequence[PowerGroup], device: DeviceProfile) -> dict[str, Any]:
    """How far predictions are off: of power and of energy, as fractions of what was measured; and
    the parts of rows whose power is within the margin, and within what a cap holds of them."""
    if not groups:
        none = dict.fromkeys(("power", "energy", "within_margin", "within_cap"))
        return {"rows": 0, **none}
    found: dict[str, Any] = {"rows": sum(len(group.power_w) for group in groups)}
    for name, errors in zip(("power", "energy"), log_errors(groups, device), strict=True):
        off = np.abs(np.expm1(errors))
        found[name] = {
            "mean_ape": round(float(off.mean()), 5),
            "p95_ape": round(float(np.percentile(off, 95)), 5),
            "max_ape": round(float(off.max()), 5),
        }
        if name == "power":
            most = np.log1p(device.constant(TABLE, MARGIN))
            found["within_margin"] = round(float((-errors <= most).mean()), 4)
            found["within_cap"] = round(within_cap(groups, device), 4)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, report, and write on request; 0, or 2 where the rows can't be fitted."""
    parser = argparse.ArgumentParser(prog="python -m bench.power_fit", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="put the constants into the profile")
    parser.add_argument(
        "--profile", type=Path, help="profile file to put them into; the one that ships"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="errors as JSON")
    parser.add_argument("--steps", type=int, default=STEPS, help="Jacobians at most")
    chosen = parser.parse_args(arguments)
    try:
        record = load_record(chosen.results)
        device = load_profile(record.device)
        fitted, unseen = parts(record.groups)
        count = sum(len(group.power_w) for group in fitted)
        source = source_words(chosen.results, count, "bench/power_fit.py", record.gpu)
        found = fit(fitted, device, record.limit_w, source, chosen.steps)
    except InvalidInput as error:
        print(f"bench.power_fit: {error}", file=sys.stderr)
        return 2
    errors = {"fitted": report(fitted, found.device), "held_out": report(unseen, found.device)}
    print(json.dumps(errors, indent=1))
    for name, estimate in found.estimates.items():
        print(
            f"{name:24} {estimate.value:10.4g}  [{estimate.low:.4g}, {estimate.high:.4g}], "
            f"determined {estimate.determined:.2f}"
        )
    if chosen.report:
        estimates = {name: estimate.to_dict() for name, estimate in found.estimates.items()}
        facts = {"device": record.device, "power_limit_w": record.limit_w}
        write(chosen.report, {**facts, **errors, "estimates": estimates})
    if chosen.write:
        profile = chosen.profile or Path("solver/profiles") / f"{record.device}.json"
        write_constants(profile, TABLE, found.device.models[TABLE])
    return 0


if __name__ == "__main__":
    sys.exit(main())
