"""The recorded measurements of a device, as files of a checkout: what is told of accuracy is read
from here, and measured nowhere.

Files of a folder, by default ``bench/results/DEVICE`` of the checkout that this runs from. Only
the ground truth must be there; what is missing of the others leaves its part of a figure empty.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.errors import EnvironmentLacks
from solver.errors import InvalidInput
from solver.ground_truth import GZIP_DAMAGED, GroundTruthGroup, load_ground_truth

CHECKOUT = Path(__file__).resolve().parents[1]
GROUND_TRUTH = "ground_truth.csv.gz"
GROUND_TRUTH_FACTS = "ground_truth.json"
REGRET = "regret.json"
NVMMH = "nvmmh.json.gz"
CEILINGS = "ceilings.json"
BEST_LLM = "best_llm.json"
NORM_GRID = "norm_grid.json"
TRITON_HOW = "triton_how"

Record = dict[str, Any]


def results_folder(device: str) -> Path:
    """Where a checkout keeps what was measured on a device."""
    return CHECKOUT / "bench" / "results" / device


def _read(path: Path, **members: type) -> Record | None:
    """A JSON object, compressed or not; None where there is no such file.

    Raises InvalidInput (field ``results``) for a file that is none, or has one of the ``members``
    not or as another type; lists are of objects.
    """
    if not path.is_file():
        return None
    try:
        data = path.read_bytes()
        record = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    except (*GZIP_DAMAGED, ValueError, RecursionError) as error:
        raise InvalidInput("results", f"{path} can't be read: {error}") from error
    if not isinstance(record, dict):
        raise InvalidInput("results", f"{path} is no JSON object")
    for name, kind in members.items():
        held = record.get(name)
        rows = held if isinstance(held, list) else ()
        if not isinstance(held, kind) or not all(isinstance(row, dict) for row in rows):
            raise InvalidInput("results", f"{path} is no record: its {name} can't be read")
    return record


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a folder holds. ``facts`` stand beside the ground truth; the others are None, or without
    entries, where they are missing. ``triton`` has rows of results with what Triton's autotuner
    took."""

    groups: tuple[GroundTruthGroup, ...]
    facts: Record
    regret: Record | None
    nvmmh: Record | None
    ceilings: Record | None
    best_llm: Record | None
    triton: tuple[Record, ...]


def read_recorded(device: str, folder: Path | None = None) -> Recorded:
    """Everything recorded of a device that figures of accuracy come from.

    Raises EnvironmentLacks where there is no ground truth, which names the command that makes it;
    InvalidInput for a file that can't be read, and for a table that is not the one beside which its
    facts were written.
    """
    folder = results_folder(device) if folder is None else folder
    path = folder / GROUND_TRUTH
    if not path.is_file():
        raise EnvironmentLacks(
            f"there is no ground truth of {device} ({path}): `warpwright sweep --ground-truth "
            f"--out sweep/` on a host with that GPU makes it, to be copied to {folder} "
            "(docs/ground-truth.md), or --results names the folder that has it"
        )
    files = [each for each in sorted(folder.glob("*.json")) if _may_name_triton(each)]
    results = [_read(each, rows=list) for each in files]
    groups, beside = load_ground_truth(path), path.with_name(GROUND_TRUTH_FACTS)
    facts = _read(beside, rows=int, failed=int) or {}
    timed = sum(len(group.role) for group in groups)
    if facts and facts["rows"] - facts["failed"] != timed:
        raise InvalidInput(
            "results",
            f"{path} has {timed} timed rows, {beside} counts {facts['rows'] - facts['failed']}: "
            "they are not of one sweep, or the table was cut off",
        )
    return Recorded(
        groups=groups,
        facts=facts,
        regret=_read(folder / REGRET, rows=list),
        nvmmh=_read(folder / NVMMH, rows=list),
        ceilings=_read(folder / CEILINGS, ceilings=dict),
        best_llm=_read(folder / BEST_LLM, rows=list),
        triton=tuple(
            row for result in results if result for row in result["rows"] if row.get(TRITON_HOW)
        ),
    )


def read_norm_grid(device: str, folder: Path | None = None) -> Record:
    """The measured grid of norm_activation, compressed or not.

    Raises EnvironmentLacks where there is none, which names the commands that make it; InvalidInput
    for a file that can't be read.
    """
    folder = results_folder(device) if folder is None else folder
    for name in (NORM_GRID, f"{NORM_GRID}.gz"):
        if (record := _read(folder / name)) is not None:
            return record
    raise EnvironmentLacks(
        f"there is no grid of norm_activation measured on {device} ({folder / NORM_GRID}): plan it "
        "with python -m bench.norm_grid --out plan.json, measure it on a host with that GPU with "
        f"python -m kernels.norm.bench plan.json --out {NORM_GRID} (docs/norm.md), and --results "
        "names the folder that has it"
    )


def read_ceilings(device: str, folder: Path | None = None) -> Record | None:
    """The device's measured ceilings; None where there are none."""
    return _read((results_folder(device) if folder is None else folder) / CEILINGS, ceilings=dict)


def _may_name_triton(path: Path) -> bool:
    """Results of ``kernels.bench`` over a suite."""
    return path.name.startswith(("best_", "picks_"))
