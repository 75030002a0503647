"""Fit norm_activation's constants to measured rows and report errors and regrets.

    python -m bench.norm_fit bench/results/h200/norm_grid.json --write

Rows are those of ``kernels.norm.bench``. Least squares on the logarithm of predicted over measured
time with a soft loss, so that a throttled row pulls little, from round figures on
(``solver/calibration/norm_start.py``), or from the profile's constants where it has some. What is
held out (``solver.split``) is never fitted, and is reported with ``--held-out`` alone: look when
the model is frozen. A row is priced with the blocks that an SM held of it. ``--write`` puts the
constants into the profile; ``python -m bench.derive_profiles`` must follow.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.files import write_constants
from bench.fit import source_words
from solver.calibration.fit import Fit, fit_family
from solver.calibration.norm_start import norm_start
from solver.calibration.rows import Floats
from solver.device import DeviceProfile, load_profile
from solver.errors import InvalidInput
from solver.families import norm_activation as family
from solver.norm_record import NormRace, races_of

STEPS = 40
DECIDED = 0.1
"""Of what was not known of a constant, the part that rows must tell for it to count as measured."""
UNDECIDED = "; no row decides it"
NEARNESS = 8.0
"""Errors count with the race's least time over a row's own to this power, measured or predicted:
picks and advice rest on rows that are near the fastest, and on those that seem to be."""
REGRET_ROWS = 5
"""Rows a race needs for its regret to say something."""


def load_races(paths: Sequence[Path], device: DeviceProfile) -> list[NormRace]:
    """The races of result files. Raises InvalidInput for another file."""
    return [
        race for path in paths for race in races_of(json.loads(path.read_text("utf-8")), device)
    ]


def log_errors(groups: Sequence[NormRace], device: DeviceProfile) -> Floats:
    """log(predicted / measured) of all rows, group after group."""
    return np.concatenate([np.log(g.predicted_us(device) / g.measured_us) for g in groups])


def fit(groups: Sequence[NormRace], device: DeviceProfile, source: str, steps: int = STEPS) -> Fit:
    """Constants fitted to the groups that are not held out. Raises InvalidInput where none is."""
    training = [group for group in groups if not group.held_out]
    if not training:
        raise InvalidInput("results", "have no row that may be fitted")
    start = norm_start(device)
    sizes = [len(group.measured_us) for group in training]

    def fit_to(weights: Floats) -> Fit:
        return fit_family(
            family.NAME,
            lambda trial: log_errors(training, trial) * weights,
            sizes,
            start.device,
            start.widths,
            source,
            steps=steps,
        )

    measured = np.concatenate([_nearness(group.measured_us) for group in training])
    first = fit_to(measured).device
    predicted = np.concatenate([_nearness(group.predicted_us(first)) for group in training])
    found = fit_to(np.maximum(measured, predicted))
    return replace(found, device=_told_apart(found, start.device))


def _nearness(times_us: Floats) -> Floats:
    near: Floats = (times_us.min() / times_us) ** NEARNESS
    return near


def _told_apart(found: Fit, start: DeviceProfile) -> DeviceProfile:
    """The fitted profile, in which what the rows hardly decide is not called measured."""
    table = dict(found.device.models[family.NAME])
    for name, estimate in found.estimates.items():
        if estimate.determined < DECIDED:
            begun = start.models[family.NAME][name]
            words = begun.source.removesuffix(UNDECIDED) + UNDECIDED
            table[name] = replace(table[name], provenance=begun.provenance, source=words)
    return replace(found.device, models={**found.device.models, family.NAME: table})


def report(groups: Sequence[NormRace], device: DeviceProfile) -> str:
    """Errors of rows by kind, degree and warps an SM, and regrets of races."""
    if not groups:
        return "no rows"
    off = np.abs(np.expm1(log_errors(groups, device)))
    kinds = np.concatenate([g.kinds for g in groups])
    lines = [_errors("all", off)]
    lines += [_errors(kind, off[kinds == kind]) for kind in family.KINDS]
    by: dict[str, Callable[[NormRace], object]] = {
        "degree": lambda g: g.problem.degree,
        "width": lambda g: g.problem.width,
        "dtype": lambda g: g.problem.dtype,
        "warps an SM": lambda g: g.warps_per_sm or "all",
    }
    for name, value in by.items():
        words = np.concatenate([[str(value(g))] * len(g.measured_us) for g in groups])
        for word in dict.fromkeys(words.tolist()):
            races = [g for g in groups if str(value(g)) == word]
            line = _errors(f"{name} {word}", off[words == word])
            lines.append(f"{line}; {_regrets(races, device)}")
    lines.append(f"{'regret':18} {_regrets(groups, device)}")
    natural = [g.rows.reserved_smem_bytes == 0 for g in groups]
    right = [g.counted == g.rows.resident for g in groups]
    agree = sum(int((one & free).sum()) for one, free in zip(right, natural, strict=True))
    known = sum(int(free.sum()) for free in natural)
    lines.append(f"{'resident blocks':18} {agree} of {known} rows as the model counts them")
    return "\n".join(lines)


def _errors(name: str, off: Floats) -> str:
    if not len(off):
        return f"{name:18} no rows"
    return f"{name:18} {len(off):5} rows: mean {off.mean():.3f}, p95 {np.percentile(off, 95):.3f}"


def _regrets(groups: Sequence[NormRace], device: DeviceProfile) -> str:
    found = [g.regret(g.predicted_us(device)) for g in groups if len(g.measured_us) >= REGRET_ROWS]
    if not found:
        return "no race"
    return f"{len(found)} races: regret {np.mean(found):.3f}, worst {max(found):.3f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, report, and write on request; 0, or 2 where the rows can't be fitted."""
    parser = argparse.ArgumentParser(prog="python -m bench.norm_fit", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--write", action="store_true", help="put the constants into the profile")
    parser.add_argument("--held-out", action="store_true", help="look at what is held out, too")
    parser.add_argument("--steps", type=int, default=STEPS, help="Jacobians at most")
    chosen = parser.parse_args(arguments)
    device = load_profile(chosen.device)
    try:
        groups = load_races(chosen.results, device)
        training = [group for group in groups if not group.held_out]
        count = sum(len(group.measured_us) for group in training)
        found = fit(
            groups, device, source_words(chosen.results, count, "bench/norm_fit.py"), chosen.steps
        )
    except InvalidInput as error:
        print(f"bench.norm_fit: {error}", file=sys.stderr)
        return 2
    print(f"before, fitted rows\n{report(training, norm_start(device).device)}")
    print(f"after {found.steps} steps, fitted rows\n{report(training, found.device)}")
    if chosen.held_out:
        unseen = [group for group in groups if group.held_out]
        print(f"held out\n{report(unseen, found.device)}")
    begun = norm_start(device).device
    for name, estimate in found.estimates.items():
        before = begun.constant(family.NAME, name)
        print(
            f"{name:28} {before:10.4g} -> {estimate.value:10.4g}  [{estimate.low:.4g}, "
            f"{estimate.high:.4g}], determined {estimate.determined:.2f}"
        )
    if chosen.write:
        path = Path("solver/profiles") / f"{chosen.device}.json"
        write_constants(path, family.NAME, found.device.models[family.NAME])
    return 0


if __name__ == "__main__":
    sys.exit(main())
