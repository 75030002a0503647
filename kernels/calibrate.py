"""Calibrate the model to the GPU of this host: some two hundred timed rows, under three minutes.

    python -m kernels.calibrate --out profile.json
    WARPWRIGHT_PROFILES=profiles python -m kernels.calibrate

Needs neither z3 nor pydantic. What is measured, when the result is refused, and what a stored
profile changes: docs/calibration.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kernels.bare_host import exit_code
from kernels.bench import terminated_as_interrupt
from kernels.calibration import ROWS_MAX, ROWS_MIN, SEED_MAX, Asked, Calibration, calibrate
from kernels.files import check_place
from kernels.process import Worker
from kernels.verify import require_gpu
from solver.calibration.design import ROWS as DESIGN_ROWS
from solver.calibration.design import SEED
from solver.calibration.profile import check_folder, store_profile
from solver.device import PROFILES_VARIABLE, profiles_folder
from solver.errors import InvalidInput

Whole = Callable[[str, int, int], Callable[[str], int]]
"""What reads a field's integer between two limits."""


def place_of(out: Path | None) -> Path:
    """Where a profile is stored: the file ``out``, else the folder WARPWRIGHT_PROFILES. Raises
    InvalidInput, also where nothing can be written there."""
    if out is not None:
        check_place(out)
        return out
    folder = profiles_folder()
    if folder is None:
        raise InvalidInput("out", f"must be given where {PROFILES_VARIABLE} names no folder")
    check_folder(folder)
    return folder


def add_arguments(
    parser: argparse.ArgumentParser, whole: Whole = lambda _field, _low, _high: int
) -> None:
    """The options that ``python -m kernels.calibrate`` and ``warpwright calibrate`` share."""
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"where the profile goes; else into the folder that {PROFILES_VARIABLE} names",
    )
    parser.add_argument(
        "--from-scratch",
        action="store_true",
        help="forget the present constants: begin from the datasheet and from microbenchmarks",
    )
    parser.add_argument("--dry-run", action="store_true", help="measure and judge, store nothing")
    parser.add_argument(
        "--rows",
        type=whole("rows", ROWS_MIN, ROWS_MAX),
        default=DESIGN_ROWS,
        metavar="N",
        help=f"rows to fit to ({DESIGN_ROWS})",
    )
    parser.add_argument(
        "--seed",
        type=whole("seed", 0, SEED_MAX),
        default=SEED,
        metavar="N",
        help=f"of the rows ({SEED})",
    )
    parser.add_argument("--commit", metavar="NAME", help="recorded where this is no checkout")


def perform(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Do what ``add_arguments``' options ask for; the record, with ``status`` (stored, judged or
    refused), ``reason``, ``details`` and ``out``. Raises WarpwrightError."""
    asked = Asked(arguments.from_scratch, arguments.seed, arguments.rows, arguments.commit)
    path = None if arguments.dry_run else place_of(arguments.out)
    _, device = require_gpu()
    if path is not None and path.is_dir():
        path /= f"{device}.json"
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        terminated_as_interrupt(),
        Progress(*columns, TimeElapsedColumn(), console=console) as progress,
        Worker() as worker,
    ):
        bars: dict[str, Any] = {}

        def tell(step: str, done: int, total: int) -> None:
            if step not in bars:
                bars[step] = progress.add_task(step, total=total)
            progress.update(bars[step], completed=done, total=total)

        calibration = calibrate(asked, worker, tell)
        for bar in bars.values():  # a fit that needed fewer steps than it may take is done too
            progress.update(bar, total=progress.tasks[bar].completed)
    return {**calibration.record, **kept(calibration, path)}


def kept(calibration: Calibration, path: Path | None) -> dict[str, Any]:
    """Store a profile that may be, at ``path``; what became of it."""
    refusal, text = calibration.refusal, calibration.text
    if refusal is not None or text is None:
        words = {"reason": refusal.reason, "details": refusal.details} if refusal else {}
        return {"status": "refused", **words, "out": None}
    if path is None:
        return {"status": "judged", "reason": None, "details": "", "out": None}
    store_profile(path, text)
    return {"status": "stored", "reason": None, "details": "", "out": str(path)}


def main(arguments: Sequence[str] | None = None) -> int:
    """0: stored, or judged where nothing was to be; 1: refused, with the reason; 2: bad arguments;
    3: no GPU, family or compiler, or the GPU failed; 130: interrupted, nothing stored."""
    parser = argparse.ArgumentParser(prog="python -m kernels.calibrate", description=__doc__)
    add_arguments(parser)
    chosen = parser.parse_args(arguments)
    console = Console(stderr=True)

    def work() -> bool:
        record = perform(chosen, console)
        print(json.dumps(record, indent=1))
        return bool(record["status"] != "refused")

    return exit_code(work, console, "interrupted; nothing was stored")


if __name__ == "__main__":
    sys.exit(main())
