"""The ground truth of a GPU: thousands of (problem, configuration) pairs timed on it.

    python -m kernels.sweep --ground-truth --out sweep/
    CUDA_VISIBLE_DEVICES=1 python -m kernels.sweep --ground-truth --out sweep/ --shard 1/2
    python -m kernels.sweep --merge --out sweep/

Needs neither z3 nor pydantic. Killed at any moment, it goes on when started again with the same
options. What is measured and what comes out: docs/ground-truth.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kernels.bare_host import exit_code
from kernels.bench import terminated_as_interrupt
from kernels.process import Worker
from kernels.protocol import SAMPLE
from kernels.sources import commit as own_commit
from kernels.sweep_file import Shard, ShardFile
from kernels.sweep_host import compile_failures, host_facts
from kernels.sweep_mend import mend
from kernels.sweep_merge import TABLE, merge
from kernels.sweep_runner import Figures, SweepRunner, read_device_facts
from kernels.verify import require_gpu
from solver.device import load_profile
from solver.errors import InvalidInput
from solver.families import sm90_gemm
from solver.limits import check_integer
from solver.model_version import MODEL_VERSION
from solver.sweep_design import DESIGN_ROWS, SEED, Design, Visit, make_design

DESIGN_MAX = 1000
SEED_MAX = 2**31 - 1
SHARDS_MAX = 64

PROTOCOL = {
    "description": "CUDA events around replays of a CUDA graph; a time is the mean per launch of "
    "one replay, the aligned copies of operands included, median and p95 are over replays. "
    "Outputs are not checked here: the kernels are, elsewhere (docs/kernels.md). Rows of one "
    "problem follow one another in a seeded order, and begin once the power cap no longer holds "
    "the clock down for what ran before (2 s at most); repeats come after all first measurements, "
    "in another order. The clock and the power are read while the last replays run.",
    "sample": SAMPLE.to_dict(),
    "cache": "SAMPLE with the cache state that the row names",
}
WHOLE = Shard()


@dataclass(frozen=True, slots=True)
class Sweep:
    """What was asked for. ``commit`` names it where this is no checkout.

    Raises InvalidInput for a value out of its limits.
    """

    out: Path
    design_rows: int = DESIGN_ROWS
    seed: int = SEED
    shard: Shard = WHOLE
    commit: str | None = None

    def __post_init__(self) -> None:
        check_integer("design", self.design_rows, 1, DESIGN_MAX)
        check_integer("seed", self.seed, 0, SEED_MAX)


def parse_shard(text: str) -> Shard:
    """A shard from its text, e.g. 0/2. Raises InvalidInput (field ``shard``)."""
    match = re.fullmatch(r"([0-9]{1,3})/([0-9]{1,3})", text)
    if match is None:
        raise InvalidInput("shard", f"must be i/n, e.g. 0/2 for the first of two; got {text!r}")
    index, count = int(match[1]), int(match[2])
    if not 1 <= count <= SHARDS_MAX:
        raise InvalidInput("shard", f"n must be between 1 and {SHARDS_MAX}, got {count}")
    if index >= count:
        raise InvalidInput("shard", f"i must be between 0 and {count - 1}, got {index}")
    return Shard(index, count)


def sweep_facts(sweep: Sweep, design: Design, gpu: Any, device: dict[str, Any]) -> dict[str, Any]:
    """What all rows of a sweep have in common."""
    return {
        **host_facts(gpu, device),
        "profile": design.device,
        "profile_sha256": load_profile(design.device).sha256,
        "commit": sweep.commit or own_commit(),
        "model_version": MODEL_VERSION,
        "family": sm90_gemm.NAME,
        "protocol": PROTOCOL,
        "seed": design.seed,
        "design_rows": design.design_rows,
        "design_sha256": design.sha256,
    }


def left_of(visits: Sequence[Visit], done: set[tuple[int, int]]) -> list[Visit]:
    """The visits without what is measured already, in the same order."""
    left = [
        Visit(visit.turn, tuple(row for row in visit.rows if (row, visit.turn) not in done))
        for visit in visits
    ]
    return [visit for visit in left if visit.rows]


def run_sweep(sweep: Sweep, console: Console) -> dict[str, Any]:
    """Measure what is left of a shard; where it is the only one, write the table.

    Returns what is there now: ``out``, ``planned``, ``measured``, ``failed``, ``complete``,
    ``table`` (None where other shards belong to it). Raises WarpwrightError where nothing can run.
    """
    gpu, device = require_gpu()
    with console.status("choosing rows"):
        design = make_design(device, sweep.design_rows, sweep.seed)
    visits = design.visits(sweep.shard.index, sweep.shard.count)
    planned = sum(len(visit.rows) for visit in visits)
    with Worker() as worker:
        facts = sweep_facts(sweep, design, gpu, read_device_facts(worker))
        with ShardFile(sweep.out, sweep.shard, facts, planned) as file:
            _measure(design, left_of(visits, file.done), planned, file, sweep, worker, console)
            measured, failed = len(file.done), file.failed
    alone = sweep.shard.count == 1
    if alone:
        merge(sweep.out)
    return {
        "out": str(sweep.out),
        "planned": planned,
        "measured": measured,
        "failed": failed,
        "complete": measured == planned,
        "table": str(sweep.out / TABLE) if alone else None,
    }


def _measure(
    design: Design,
    visits: Sequence[Visit],
    planned: int,
    file: ShardFile,
    sweep: Sweep,
    worker: Worker,
    console: Console,
) -> None:
    """Compile and measure what is left, with bars."""
    keys = sorted({design.rows[row].key for visit in visits for row in visit.rows})
    # Shards that start together each begin with kernels of their own, and find the others' made.
    first, count = sweep.shard.index, sweep.shard.count
    keys = [key for part in range(count) for key in keys[(first + part) % count :: count]]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]}"),
    )
    with Progress(*columns[:4], console=console) as progress:
        failures = compile_failures(keys, progress)
    with Progress(*columns, console=console) as bars:
        bar = bars.add_task("measure", total=planned, completed=len(file.done), failed="")

        def done(row: int, turn: int, figures: Figures) -> None:
            file.add(row, turn, design.rows[row], figures)
            failed = f"{file.failed} failed" if file.failed else ""
            bars.update(bar, advance=1, failed=failed)

        SweepRunner(design.rows, design.device, failures, done, worker).run(visits)


Whole = Callable[[str, int, int], Callable[[str], int]]
"""What reads a field's integer between two limits."""


def add_arguments(
    parser: argparse.ArgumentParser, whole: Whole = lambda _field, _low, _high: int
) -> None:
    """The options that ``python -m kernels.sweep`` and ``warpwright sweep`` share."""
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--ground-truth",
        action="store_true",
        help="time the paper's protocol, the LLM suite and 60 further shapes on this GPU",
    )
    action.add_argument(
        "--merge", action="store_true", help="write the table of the shards in --out; needs no GPU"
    )
    action.add_argument(
        "--mend",
        action="store_true",
        help="measure short launches of --out's table again whose clock was held back",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder of what is measured"
    )
    parser.add_argument(
        "--shard", default="0/1", metavar="I/N", help="every N-th problem, from the I-th; 0/1"
    )
    parser.add_argument(
        "--design",
        type=whole("design", 1, DESIGN_MAX),
        default=DESIGN_ROWS,
        metavar="N",
        help=f"configurations of each cold problem beside the model's first ({DESIGN_ROWS})",
    )
    parser.add_argument(
        "--seed",
        type=whole("seed", 0, SEED_MAX),
        default=SEED,
        metavar="N",
        help=f"of the rows ({SEED})",
    )
    parser.add_argument("--commit", metavar="NAME", help="recorded where this is no checkout")
    parser.add_argument(
        "--partial", action="store_true", help="with --merge: take shards that are not complete"
    )


def perform(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Do what ``add_arguments``' options ask for; the record of it. Raises WarpwrightError."""
    if arguments.merge:
        record = merge(arguments.out, arguments.partial)
        names = ("rows", "failed", "repeated", "repeat_noise", "complete")
        shown = {name: record[name] for name in names}
        return {"out": str(arguments.out), **shown, "table": str(arguments.out / TABLE)}
    if arguments.partial:
        raise InvalidInput("partial", "goes with --merge alone")
    if arguments.mend:
        with terminated_as_interrupt():
            return mend(arguments.out, arguments.commit, console)
    sweep = Sweep(
        out=arguments.out,
        design_rows=arguments.design,
        seed=arguments.seed,
        shard=parse_shard(arguments.shard),
        commit=arguments.commit,
    )
    with terminated_as_interrupt():
        return run_sweep(sweep, console)


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every row was measured; 1: some failed; 2: bad arguments, or a folder of another sweep;
    3: no GPU, family or compiler, or the GPU failed; 130: interrupted, every row so far kept."""
    parser = argparse.ArgumentParser(prog="python -m kernels.sweep", description=__doc__)
    add_arguments(parser)
    chosen = parser.parse_args(arguments)
    console = Console(stderr=True)

    def work() -> bool:
        record = perform(chosen, console)
        console.print(", ".join(f"{name} {value}" for name, value in record.items()), markup=False)
        return not record["failed"]

    again = "interrupted; start it again with the same options to go on"
    return exit_code(work, console, again)


if __name__ == "__main__":
    sys.exit(main())
