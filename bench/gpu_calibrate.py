"""Calibrations on this GPU, as evidence: from scratch, of a planted mis-calibration, and refused.

    python -m bench.gpu_calibrate --out bench/results/h200/calibration.json

1. From scratch: the present profile is what the datasheet tells. Time, rows, errors over fresh
   rows, and over the fitted rows of the recorded ground truth beside the committed profile's.
2. Planted: some constants of the committed profile are spoiled. Picks are verified until drift is
   reported; a calibration is stored; the same timings are looked at again.
3. Refused: a neighbour is at work before it begins, and one that comes while rows are measured.

Six minutes. Profiles go into a folder of this script's own; none that ships is changed.
``--held-out`` looks at what is held out too: to be counted (docs/accuracy.md). ``--read RECORD``
tells drift anew, without a GPU, from the ratios that a record has: after a change of its rule.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.calibration_replay import PLANTED, told_of
from bench.evidence import begin, parser_of, progress_bar
from bench.files import write
from kernels.calibrate import kept
from kernels.calibration import Asked, calibrate
from kernels.calibration_worker import groups_of
from kernels.ceilings import tensor_held
from kernels.drift import drift_of
from kernels.errors import KernelError
from kernels.process import Worker
from kernels.protocol import VERIFY
from kernels.verify import VerificationRequest, verify
from solver.accuracy import FITTED, HELD_OUT
from solver.calibration.design import ROWS as DESIGN_ROWS
from solver.calibration.fit import Fit
from solver.calibration.profile import calibrated_text, store_profile
from solver.calibration.rows import (
    FAMILY,
    RowGroup,
    mean_ape,
    measured_over_predicted,
    timed_row,
    with_constants,
)
from solver.calibration.start import from_datasheet
from solver.config import Config
from solver.device import (
    NOT_PARSED,
    PROFILES_VARIABLE,
    DeviceProfile,
    load_profile,
    parse_profile,
    shipped_text,
)
from solver.ground_truth import load_ground_truth
from solver.pick import best_rows
from solver.problem import Problem
from solver.space import tabulate
from solver.units import TICKS_PER_US

PROBLEMS = tuple(
    Problem(m, n, k)
    for m, n, k in (
        *((1, 4096, 4096), (16, 7168, 2048), (64, 4096, 4096), (128, 7168, 2048)),
        *((512, 4096, 4096), (1024, 4096, 4096), (2048, 2048, 2048), (4096, 4096, 4096)),
        *((256, 24576, 1536), (16, 4096, 14336)),
        *((1, 28672, 8192), (16, 10240, 8192), (64, 8192, 8192), (128, 4096, 14336)),
        *((512, 7168, 2048), (1024, 8192, 8192), (2048, 4096, 7168), (16, 24576, 1536)),
    )
)
VERIFY_DEADLINE_S = 120.0
NEIGHBOUR_S = 90.0
ROWS, FEW_ROWS = DESIGN_ROWS, 60


def stand_in(device: DeviceProfile, folder: Path, date: str, words: str) -> None:
    """Put a device's constants where the shipped ones would be read."""
    text = calibrated_text(device.name, Fit(device, {}, 0, 0), {}, {"date": date}, words)
    store_profile(folder / f"{device.name}.json", text)


def calibration(
    asked: Asked, out: Path | None, tell: Callable[[str, int, int], None], committed: DeviceProfile
) -> dict[str, Any]:
    """One calibration's record, what became of its profile in it, and how far the committed profile
    is off over the same fresh rows: this GPU may not be the one that the ground truth is of."""
    with Worker() as worker:
        found = calibrate(asked, worker, tell)
    beside = mean_ape(groups_of(found.fresh), committed) if found.fresh else None
    return found.record | kept(found, out) | {"error_committed": beside}


def verified(device: str, tell: Callable[[int], None]) -> list[dict[str, Any]]:
    """Picks by the present profile, run."""
    profile, found = load_profile(device), []
    with Worker() as worker:
        for done, problem in enumerate(PROBLEMS):
            (row,) = best_rows(tabulate(problem, profile, "calibrated"))
            request = VerificationRequest(problem, row.config, row.time / TICKS_PER_US)
            found.append(verify(request, VERIFY_DEADLINE_S, worker).to_dict())
            tell(done + 1)
    return found


def drift(verifications: Sequence[dict[str, Any]], device: str) -> dict[str, Any]:
    """What these timings say of the present profile."""
    rows = [_row(each) for each in verifications if each["median_us"]]
    ratios = measured_over_predicted(rows, load_profile(device))
    return told_drift(ratios)


def told_drift(ratios: Sequence[float]) -> dict[str, Any]:
    """What ratios of measured to predicted time tell, and they themselves."""
    return drift_of(ratios).to_dict() | {"ratios": list(ratios)}


def _row(verification: dict[str, Any]) -> RowGroup:
    problem, config = Problem(**verification["problem"]), Config.from_dict(verification["config"])
    return timed_row(problem, config, verification["protocol"]["cache"], verification["median_us"])


def busy(seconds: float) -> None:
    """In a process of its own: keep the tensor cores at work so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tensor_held()


class Neighbour:
    """Another process at work on the GPU, from ``start`` on, until the block ends."""

    def __init__(self) -> None:
        self._worker = Worker()
        call = (busy, (NEIGHBOUR_S,), NEIGHBOUR_S + 60)
        self._thread = threading.Thread(target=self._worker.call, args=call, daemon=True)

    def start(self) -> None:
        """Begin, once."""
        if not self._thread.ident:
            self._thread.start()

    def __enter__(self) -> Neighbour:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.halt()
        if self._thread.ident:
            self._thread.join()
        self._worker.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """0: what had to be stored was, and what had to be refused was; 1: not; 2: wrong arguments or
    files; 3: no GPU."""
    parser = parser_of("gpu_calibrate", __doc__)
    parser.add_argument("--results", type=Path, default=Path("bench/results"))
    parser.add_argument("--held-out", action="store_true", help="look at what is held out, too")
    parser.add_argument("--read", type=Path, help="no GPU: tell drift anew of such a record")
    early = parser.parse_args(arguments)
    if early.read is not None:
        return _again(parser, early)
    chosen, facts, _ = begin(parser, arguments)
    device, date = facts["profile"], facts["date"]
    committed = parse_profile(shipped_text(device))
    table = load_ground_truth(chosen.results / device / "ground_truth.csv.gz")
    sides = (FITTED, HELD_OUT) if chosen.held_out else (FITTED,)
    record: dict[str, Any] = {**facts, "verify_protocol": VERIFY.to_dict(), "planted": PLANTED}
    record["committed"] = told_of(table, committed, sides)

    with tempfile.TemporaryDirectory() as temporary, progress_bar() as bars:
        folder = Path(temporary)
        os.environ[PROFILES_VARIABLE] = temporary
        out = folder / f"{device}.json"

        def bar(name: str) -> Callable[[str, int, int], None]:
            task = bars.add_task(name, total=1, failed="")

            def tell(step: str, done: int, total: int) -> None:
                words = f"{name}: {step}"
                bars.update(task, description=words, completed=done, total=total)

            return tell

        def save() -> None:
            write(chosen.out, record)

        stand_in(from_datasheet(committed), folder, date, "the datasheet's")
        before = told_of(table, load_profile(device), sides)
        found = calibration(
            Asked(scratch=True, rows=ROWS, commit=chosen.commit),
            out,
            bar("from scratch"),
            committed,
        )
        record["from_scratch"] = found | {
            "ground_truth_before": before,
            "ground_truth": told_of(table, load_profile(device), sides),
            "profile": load_profile(device).calibration,
        }
        save()

        spoiled = {name: f * committed.constant(FAMILY, name) for name, f in PLANTED.items()}
        stand_in(with_constants(committed, spoiled, "planted"), folder, date, "planted")
        tell = bar("planted")
        timings = verified(device, lambda done: tell("verify", done, len(PROBLEMS)))
        found_drift = drift(timings, device)
        found = calibration(Asked(rows=ROWS, commit=chosen.commit), out, tell, committed)
        record["cured"] = found | {
            "drift_before": found_drift,
            "drift": drift(timings, device),
            "verified": sum(each["status"] == "passed" for each in timings),
            "ground_truth": told_of(table, load_profile(device), sides),
        }
        save()

        few = Asked(rows=FEW_ROWS, commit=chosen.commit)
        with Neighbour() as neighbour:
            neighbour.start()
            time.sleep(20)  # until it is at work
            record["shared"] = calibration(few, None, bar("a neighbour"), committed)
        with Neighbour() as neighbour:
            tell_of_late = bar("one that comes later")

            def late(step: str, done: int, total: int) -> None:
                if step == "measure":
                    neighbour.start()
                tell_of_late(step, done, total)

            try:
                record["shared_later"] = calibration(few, None, late, committed)
            except KernelError as error:
                record["shared_later"] = {"status": "failed", "details": str(error)}
    save()
    return _code(record)


def _again(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    try:
        record = json.loads(chosen.read.read_text("utf-8"))
        for told in ("drift_before", "drift"):
            record["cured"][told] = told_drift(record["cured"][told]["ratios"])
        code = _code(record)
    except NOT_PARSED as error:
        parser.error(f"{chosen.read} is no record of this script: {error!r}")
    write(chosen.out, record)
    return code


def _code(record: dict[str, Any]) -> int:
    """What a whole record comes to, as ``main`` returns it."""
    stored = all(record[name]["status"] == "stored" for name in ("from_scratch", "cured"))
    refused = all(record[name]["status"] == "refused" for name in ("shared", "shared_later"))
    now, then = record["cured"]["drift"], record["cured"]["drift_before"]
    drifted = then["found"] is True and now["found"] is False
    return 0 if stored and refused and drifted else 1


if __name__ == "__main__":
    sys.exit(main())
