"""Calibrations played over the recorded ground truth, as if this GPU had not been measured before.

    python -m bench.calibration_replay --device h200 [--held-out]

Candidates are drawn as ``kernels.calibrate`` draws them, but their times are read from the table.
Starts: ``datasheet``, what is known without any measurement (``solver.calibration.start``), with
and without the recorded microbenchmarks, and with constants of some kinds alone fitted;
``derived``, the shipped profile of the device's datasheet with the constants of a measured SM;
``planted``, the committed profile with some constants spoiled. Goes on with what is missing of its
record.
Only rows that constants may be fitted to are fitted to; errors are told over the others of these
and, with ``--held-out``, over what is held out: a look to be counted (docs/accuracy.md).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from bench.files import write
from bench.records import read_record
from solver.accuracy import FITTED, HELD_OUT, part_figures, score
from solver.calibration.design import PROBLEMS, ROWS, Candidates, choose, draw_problems, trainable
from solver.calibration.fit import fit
from solver.calibration.prior import KIND, Kind, widths
from solver.calibration.rows import RowGroup, taken, with_constants
from solver.calibration.start import from_datasheet, told_by, with_told
from solver.device import DeviceProfile, load_profile
from solver.errors import InvalidInput
from solver.ground_truth import GroundTruthGroup, load_ground_truth
from solver.model_version import MODEL_VERSION

NAME = "calibration_replay.json"
SEEDS = (1, 2, 3, 4, 5)
ROWS_EACH = 24
"""Candidates of each cold problem, as ``kernels.calibrate`` has them."""

PLANTED = {"hbm_bytes_per_us": 0.7, "l2_bytes_per_us": 1.4, "launch_us": 1.5, "mma_overhead": 1.15}
"""A mis-calibration: factors on the committed constants."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a replay begins: the profile, the widths of its constants, in a word."""

    name: str
    device: DeviceProfile
    widths: Mapping[str, float]


def starts(committed: DeviceProfile, sheet: DeviceProfile, ceilings: Path | None) -> list[Start]:
    """Every start there is for a device; the one with microbenchmarks where they are recorded."""
    bare = from_datasheet(sheet)
    found = [Start("datasheet", bare, widths(bare, scratch=True))]
    if ceilings is not None:
        told = told_by(json.loads(ceilings.read_text("utf-8"))["ceilings"], bare)
        started = with_told(bare, told)
        found.append(
            Start("datasheet and ceilings", started, widths(bare, scratch=True, told=told))
        )
    found.append(Start("derived", sheet, widths(sheet, scratch=False)))
    spoiled = {
        name: factor * committed.constant("sm90_gemm", name) for name, factor in PLANTED.items()
    }
    planted = with_constants(committed, spoiled, "planted")
    found.append(Start("planted", planted, widths(planted, scratch=False)))
    for kinds in ((Kind.PART, Kind.SYSTEM), (Kind.ARCHITECTURE,)):
        some = {n: w for n, w in widths(bare, scratch=True).items() if KIND[n] in kinds}
        found.append(Start(f"datasheet, {' and '.join(kinds)} alone fitted", bare, some))
    return found


def recorded_pool(
    table: Sequence[GroundTruthGroup], seed: int
) -> list[tuple[Candidates, GroundTruthGroup, np.ndarray[Any, Any]]]:
    """Candidates with the recorded group that each is of, and their rows in it."""
    groups = {(group.suite, group.problem): group for group in table}
    rng = np.random.default_rng(seed)
    pool = []
    for suite, problem in draw_problems(PROBLEMS, seed, held_out=False):
        group = groups[suite, problem]
        size = len(group.measured_us)
        rows = np.sort(rng.permutation(size)[:ROWS_EACH])
        columns = {name: column[rows] for name, column in group.columns.items()}
        whole = Candidates(suite, problem, group.cold, columns)
        kept = trainable(whole)
        if len(kept):
            pool.append((kept, group, rows[_kept(whole, kept)]))
    return pool


def _kept(whole: Candidates, kept: Candidates) -> np.ndarray[Any, Any]:
    """Which rows of ``whole`` are in ``kept``: rows of one problem are all different."""

    def rows(of: Candidates) -> list[tuple[int, ...]]:
        return list(zip(*(column.tolist() for column in of.columns.values()), strict=True))

    known = set(rows(kept))
    return np.array([row in known for row in rows(whole)])


def measured_rows(
    pool: Sequence[tuple[Candidates, GroundTruthGroup, np.ndarray[Any, Any]]],
    chosen: Sequence[tuple[int, int]],
) -> list[RowGroup]:
    """The chosen rows with their recorded times."""
    by_group: dict[int, list[int]] = {}
    for place, row in chosen:
        by_group.setdefault(place, []).append(row)
    return [
        taken(pool[place][1], pool[place][2][np.array(rows)]) for place, rows in by_group.items()
    ]


def told_of(
    table: Sequence[GroundTruthGroup], device: DeviceProfile, sides: Sequence[str]
) -> dict[str, Any]:
    """Mean errors by side, of the paper's rows and of the others."""
    scored = [score(group, device, {}) for group in table]
    names = ("rows", "mean_ape", "p95_ape", "max_ape")

    def figures(cold: bool, side: str) -> dict[str, Any]:
        found = part_figures([s for s in scored if s.group.cold is cold], side)
        return {name: found[name] for name in names}

    return {side: {"paper": figures(False, side), "llm": figures(True, side)} for side in sides}


def replay(
    table: Sequence[GroundTruthGroup], start: Start, seed: int, sides: Sequence[str]
) -> dict[str, Any]:
    """One calibration: what it fitted to, how long that took here, and its errors."""
    begun = time.perf_counter()
    pool = recorded_pool(table, seed)
    chosen = choose([each for each, _, _ in pool], start.device, start.widths, ROWS, seed)
    groups = measured_rows(pool, chosen)
    fitted = fit(groups, start.device, start.widths, "replayed")
    spent = time.perf_counter() - begun
    return {
        "seed": seed,
        "rows": fitted.rows,
        "problems": len(groups),
        "kernels": len({pool[g][0].key(r) for g, r in chosen}),
        "steps": fitted.steps,
        "seconds_of_one_core": round(spent, 1),
        **told_of(table, fitted.device, sides),
        "constants": {name: e.to_dict() for name, e in fitted.estimates.items()},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay every start with every seed; leaves with 2 for wrong arguments or files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--datasheet", default="h200_datasheet", help="profile of its datasheet")
    parser.add_argument("--results", type=Path, default=Path("bench/results"))
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--held-out", action="store_true", help="look at what is held out, too")
    chosen = parser.parse_args(arguments)
    folder = chosen.results / chosen.device
    path, ceilings = folder / "ground_truth.csv.gz", folder / "ceilings.json"
    if min(chosen.seeds) < 0:
        parser.error(f"--seeds: must be at least 0, got {min(chosen.seeds)}")
    try:
        committed, sheet = load_profile(chosen.device), load_profile(chosen.datasheet)
        table = load_ground_truth(path)
    except InvalidInput as error:
        parser.error(str(error))
    sides = (FITTED, HELD_OUT) if chosen.held_out else (FITTED,)
    every = starts(committed, sheet, ceilings if ceilings.exists() else None)
    out = chosen.out or folder / NAME
    facts: dict[str, Any] = {
        "device": chosen.device,
        "datasheet": chosen.datasheet,
        "model_version": MODEL_VERSION,
        "profile_sha256": committed.sha256,
        "ground_truth_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "planted": PLANTED,
        "rows": ROWS,
        "seeds": list(chosen.seeds),
        "sides": list(sides),
    }
    before = read_record(out) or {}
    same = all(before.get(name) == value for name, value in facts.items())
    known = before["starts"] if same else {}
    record = facts | {"committed": told_of(table, committed, sides), "starts": known}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("calibrations", total=len(every) * len(chosen.seeds))
        for start in every:
            if start.name in known:
                progress.advance(bar, len(chosen.seeds))
                continue
            runs = []
            for seed in chosen.seeds:
                runs.append(replay(table, start, seed, sides))
                progress.advance(bar)
            record["starts"][start.name] = {
                "before": told_of(table, start.device, sides),
                "calibrations": runs,
            }
            print(start.name, _words(record, start.name, sides), flush=True)
            write(out, record)


def _words(record: Mapping[str, Any], name: str, sides: Sequence[str]) -> str:
    found = record["starts"][name]
    words = []
    for side in sides:
        for part in ("paper", "llm"):
            best = record["committed"][side][part]["mean_ape"]
            before = found["before"][side][part]["mean_ape"]
            after = [run[side][part]["mean_ape"] for run in found["calibrations"]]
            times = " ".join(f"{error:.2%}" for error in after)
            words.append(f"{side} {part}: {before:.1%} -> {times} (committed {best:.2%})")
    return "; ".join(words)


if __name__ == "__main__":
    main()
