"""Hangs planted in the kernel, and what is said of each.

    python -m bench.gpu_hangs --out bench/results/h200/hangs.json

Runs every plant of ``bench.hang_plants`` in its debug build, each in a process of its own that is
ended with its kernel, and holds the report against what the plant must have said of it. Needs
neither z3 nor pydantic.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.evidence import START_S, begin, parser_of, progress_bar
from bench.files import write
from bench.hang_plants import PLANTS, fields_of
from kernels.hang import Hang
from kernels.process import Outcome, OutcomeKind, run_in_process
from kernels.verify import failure_of
from kernels.watch import WATCH_S, watch

PROCESSES = 4  # kernels that hang on one GPU at a time


def watch_plant(name: str) -> Hang:
    """Run one plant; for a process of its own, in which the kernel hangs on."""
    plant = PLANTS[name]
    return watch(plant.problem, plant.config, patched=plant.patched())


def watched(name: str) -> Outcome:
    """The outcome of ``watch_plant`` in a fresh process, which is then ended."""
    return run_in_process(watch_plant, (name,), START_S + WATCH_S)


def row(name: str, outcome: Outcome) -> dict[str, Any]:
    """Whether a plant's report is what it must be, and the report."""
    if outcome.kind is not OutcomeKind.OK:
        reason, details = failure_of(outcome)
        return {"right": False, "reason": reason, "details": details}
    told = outcome.value.to_dict()
    right = fields_of(told) == PLANTS[name].expected()
    return {"right": right, "elapsed_s": round(outcome.elapsed_s, 1), **told}


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every report is right; 1: one is not; 3: no GPU that the kernels run on."""
    parser = parser_of("gpu_hangs", __doc__)
    parser.add_argument("--workers", type=int, default=PROCESSES, help="processes on the GPU")
    chosen, record, _ = begin(parser, arguments)
    rows: dict[str, Any] = {}
    with progress_bar() as bar, ThreadPoolExecutor(chosen.workers) as pool:
        task = bar.add_task("hangs", total=len(PLANTS), failed="")
        for name, outcome in zip(PLANTS, pool.map(watched, PLANTS), strict=True):
            rows[name] = row(name, outcome)
            failed = sum(not each["right"] for each in rows.values())
            bar.update(task, advance=1, failed=f"{failed} wrong" if failed else "")
    record |= {"plants": rows, "right": all(each["right"] for each in rows.values())}
    print(json.dumps(record, indent=1))
    write(chosen.out, record)
    return 0 if record["right"] else 1


if __name__ == "__main__":
    sys.exit(main())
