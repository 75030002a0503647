"""Put measured races into what ships, and how far advice by them, and by the model, is off.

    python -m bench.norm_races bench/results/h200/norm_grid.json …/norm_further.json

Races that are held out of every fit stay out. Of the first record, the grid, the rest is asked for
as advice is, by the model, and by races of other degrees on both sides or on one: measured over
predicted gains against each rival, and times of the rival and of rings, of which a tenth lie below
and a tenth above what is written. To be run after ``bench.norm_fit --write``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.norm_fit import load_races
from kernels.files import replace_whole
from solver.device import DeviceProfile, load_profile
from solver.errors import InvalidInput
from solver.families.norm_activation import NormConfig
from solver.families.norm_activation_raced import FILE, forget
from solver.families.norm_activation_rivals import BASES, DIVIDED, MODEL, RIVALS, Basis, compare
from solver.norm_record import NormRace

OUTSIDE = 0.1
"""Of the problems, the part that lies below a range, and the part above."""
DIGITS = 4
PATH = Path("solver/families") / FILE


def races(paths: Sequence[Path], device: DeviceProfile) -> dict[str, Any]:
    """The cold races of all records that may be fitted to. Raises InvalidInput for other files."""
    known: dict[NormConfig, int] = {}
    found = [race for race in load_races(paths, device) if race.cold and not race.held_out]
    return {
        "device": device.name,
        "races": [_race(race, known) for race in found],
        "configs": [config.to_dict() for config in known],
    }


def off(grid: Path, device: DeviceProfile) -> dict[str, Any]:
    """Ranges of the grid's record, by the races that ship."""
    fitted = [race for race in load_races([grid], device) if not race.held_out]
    return {basis: _off(fitted, device, basis) for basis in BASES}


def _race(race: NormRace, known: dict[NormConfig, int]) -> dict[str, Any]:
    return {
        "problem": race.problem.to_dict(),
        "warps_per_sm": race.warps_per_sm,
        "configs": [known.setdefault(config, len(known)) for config in race.configs],
        "median_us": [float(f"{time:.6g}") for time in race.measured_us],
    }


def _off(grid: Iterable[NormRace], device: DeviceProfile, basis: Basis) -> dict[str, list[float]]:
    """Low, median and high of each figure."""
    ratios: dict[str, list[float]] = {name: [] for name in (*RIVALS, "ring", "time")}
    for race in grid:
        for rival, kinds in RIVALS.items():
            found = compare(
                race.problem,
                device,
                "cold",
                race.warps_per_sm,
                rival,
                raced=basis != MODEL,
                unseen=True,
            )
            like, divided = _least(race, *kinds), _least(race, DIVIDED)
            if found.basis != basis or found.gain is None or not (like and divided):
                continue
            ratios[rival].append(like / divided / found.gain)
            if rival == "like_warps":
                ratios["time"].append(like / found.rival.time_us)
                ring = _least(race, "ring")
                alternative = found.rival.time_us / found.kernels["ring"].time_us
                ratios["ring"].append(like / ring / alternative)
    return {name: _range(each) for name, each in ratios.items()}


def _least(race: NormRace, *kinds: str) -> float:
    """Least measured time of kinds that every race of the grid has."""
    return float(race.measured_us[np.isin(race.kinds, kinds)].min())


def _range(ratios: Sequence[float]) -> list[float]:
    return [round(float(x), DIGITS) for x in np.quantile(ratios, (OUTSIDE, 0.5, 1 - OUTSIDE))]


def text(content: dict[str, Any]) -> str:
    """The file, a race or a configuration on a line."""
    lists = {name: content[name] for name in ("configs", "races")}
    parts = [f'"{name}": {json.dumps(content[name])}' for name in content if name not in lists]
    for name, each in lists.items():
        lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in each)
        parts.append(f'"{name}": [\n{lines}\n]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; 0, or 2 where the records can't be read."""
    parser = argparse.ArgumentParser(prog="python -m bench.norm_races", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, help="the grid's record, then others")
    parser.add_argument("--device", default="h200")
    chosen = parser.parse_args(arguments)
    device = load_profile(chosen.device)
    try:
        content = races(chosen.results, device)
    except InvalidInput as error:
        print(f"bench.norm_races: {error}", file=sys.stderr)
        return 2
    replace_whole(PATH, text(content).encode())
    forget()
    content["off"] = off(chosen.results[0], device)
    replace_whole(PATH, text(content).encode())
    forget()
    print(f"{len(content['races'])} races; off: {content['off']}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
