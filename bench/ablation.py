"""What each term of the model is worth: off, the others fitted again, the errors and regrets told.

    python -m bench.ablation bench/results/h200/ground_truth.csv.gz

Every term is taken out by the value of its constants at which it does nothing; what is left is
fitted to the training rows from the profile's constants on, in a few evaluations, as is the whole
model, which the others are compared with. Writes ``ablation.json`` beside the table after each
term, and goes on with what is missing when it is started again; several processes work at once.
Without ``--held-out`` only fitted rows are looked at (docs/accuracy.md). ``python -m bench.report``
shows it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bench.files import write
from bench.fit import fit, load_groups, training_rows
from bench.records import read_record
from solver.accuracy import FITTED, HELD_OUT, measured_regret, part_figures, score
from solver.calibration.prior import FIXED
from solver.calibration.rows import FAMILY, with_constants
from solver.device import DeviceProfile, load_profile
from solver.errors import InvalidInput
from solver.ground_truth import load_ground_truth
from solver.model_version import MODEL_VERSION

NAME = "ablation.json"
WHOLE = "nothing: the whole model"
EVALUATIONS = 5
NO_BOUND = 1e15  # of a rate: what it bounds takes no time
NORM_OF_MAXIMUM = 24.0  # a norm of this order is the largest of its terms but for 5 %

TERMS: dict[str, dict[str, float]] = {
    WHOLE: {},
    "clock under power": {"clock_power_exponent": 0.0, "clock_burst_exponent": 0.0},
    "the clock's fall at once": {"clock_burst_exponent": 0.0},
    "power of memory and L2": {"clock_memory_tflops": 0.0, "clock_l2_tflops": 0.0},
    "the clock takes time to fall": {"clock_settle_us": 1e-3},
    "narrow wgmma": {"mma_min_n": 8.0},
    "wgmma's overhead": {"mma_overhead": 1.0},
    "wgmma's issue": {"mma_issue_cycles": 0.0},
    "wgmma's drain": {"mma_drain_cycles": 0.0},
    "the SM's own path": {"load_bytes_per_cycle": NO_BOUND},
    "floor of loads": {"load_floor_cycles": 1.0},
    "broken lines": {"load_broken_bytes_per_cycle": NO_BOUND},
    "odd pitch in the L2": {"l2_odd_pitch_penalty": 0.0},
    "narrow rows of B": {"load_narrow_penalty": 0.0, "l2_narrow_penalty": 0.0},
    "L2": {"l2_bytes_per_us": NO_BOUND, "l2_outside_weight": 0.0},
    "sharing in the L2": {"l2_share_exponent": 0.0, "l2_step_exponent": 0.0},
    "CTAs in step": {"l2_step_exponent": 0.0},
    "B's weight in the L2": {"l2_b_weight": 1.0},
    "what the L2 keeps": {"l2_kept_fraction": 0.0},
    "rows outside the problem": {"l2_outside_weight": 0.0},
    "paths overlap softly": {"load_norm": NORM_OF_MAXIMUM},
    "latency of loads": {"load_latency_cycles": 0.0},
    "latency of misses": {"miss_latency_cycles": 0.0},
    "loads that come late": {"load_jitter_cycles": 0.0},
    "slots held by work in flight": {"release_lag_fraction": 0.0},
    "epilogue": {"epilogue_cycles": 0.0, "epilogue_chunk_cycles": 0.0},
    "epilogue, fixed part": {"epilogue_cycles": 0.0},
    "epilogue, by piece": {"epilogue_chunk_cycles": 0.0},
    "epilogue by elements": {"epilogue_unaligned_cycles": 0.0},
    "split: spill": {"split_epilogue_cycles": 0.0, "split_tile_bytes_per_cycle": NO_BOUND},
    "split: reduction": {
        "split_reduce_latency_cycles": 0.0,
        "split_reduce_bytes_per_cycle": NO_BOUND,
    },
    "split: sums meet other work": {"split_inner_factor": 1.0},
    "split: partials in memory": {"hbm_split_fraction": 0.0},
    "memory": {"hbm_bytes_per_us": NO_BOUND},
    "memory by few SMs": {"hbm_sms_exponent": 0.0},
    "sharers that lie apart": {"hbm_apart_fraction": 0.0},
    "refetched from memory": {"hbm_refetch_fraction": 0.0},
    "writes of C": {"hbm_write_fraction": 0.0},
    "launch": {"launch_us": 0.0},
    "set-up of warpgroups": {"launch_warpgroup_us": 0.0},
    "launch of clusters": {"launch_cluster_us": 0.0},
    "both SMs of a TPC": {"launch_pair_us": 0.0},
    "launches that don't overlap": {"launch_serial_us": 0.0},
    "aligned copies": {"copy_launch_us": 0.0, "copy_bytes_per_us": NO_BOUND},
}
"""Constants by the term that is off without them, and the values with which it is."""


@dataclass(frozen=True, slots=True)
class Task:
    """One term to take out; ``sides`` says which rows are told of."""

    term: str
    table: Path
    device: str
    evaluations: int
    sides: tuple[str, ...]


def without(term: str, device: DeviceProfile) -> DeviceProfile:
    """The profile with a term off."""
    return with_constants(device, TERMS[term], f"{term}: off")


def run(task: Task) -> dict[str, Any]:
    """Take a term out, fit the rest to the training rows, and tell errors and regrets."""
    off = without(task.term, load_profile(task.device))
    training = training_rows(load_groups([task.table]))
    fixed = {*FIXED, *TERMS[task.term]}
    fitted = fit(training, off, "ablation", fixed, task.evaluations)
    scored = [score(group, fitted, {}) for group in load_ground_truth(task.table)]
    figures: dict[str, Any] = {}
    for side in task.sides:
        regret = measured_regret(scored, side).get("model")
        figures[side] = {
            "paper": _errors([s for s in scored if not s.group.cold], side),
            "llm": _errors([s for s in scored if s.group.cold], side),
            "regret": regret and {name: regret[name] for name in ("geomean", "worst")},
        }
    return figures


def _errors(scored: Sequence[Any], side: str) -> dict[str, Any]:
    figures = part_figures(scored, side)
    return {name: figures[name] for name in ("rows", "mean_ape", "p95_ape", "max_ape")}


def facts_of(table: Path, device: str, evaluations: int, sides: Sequence[str]) -> dict[str, Any]:
    """What all terms of a record have in common; one of other facts is begun anew."""
    return {
        "ground_truth_sha256": hashlib.sha256(table.read_bytes()).hexdigest(),
        "profile_sha256": load_profile(device).sha256,
        "device": device,
        "model_version": MODEL_VERSION,
        "evaluations": evaluations,
        "sides": list(sides),
    }


def left_of(record: Mapping[str, Any] | None, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The terms that a record has already, where it is of the same facts."""
    if record is None or any(record.get(name) != value for name, value in facts.items()):
        return {}
    return {name: record["terms"][name] for name in TERMS if name in record["terms"]}


def ablate(
    table: Path, device: str, evaluations: int, sides: tuple[str, ...], processes: int, out: Path
) -> dict[str, Any]:
    """The record, written after each term."""
    facts = facts_of(table, device, evaluations, sides)
    terms = left_of(read_record(out), facts)
    tasks = [Task(term, table, device, evaluations, sides) for term in TERMS if term not in terms]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    context = multiprocessing.get_context("spawn")
    with (
        Progress(*columns, TimeRemainingColumn(), console=console) as progress,
        ProcessPoolExecutor(processes, mp_context=context) as pool,
    ):
        bar = progress.add_task("terms", total=len(TERMS), completed=len(terms))
        waiting = {pool.submit(run, task): task.term for task in tasks}
        try:
            for future in as_completed(waiting):
                terms[waiting[future]] = future.result()
                ordered = {name: terms[name] for name in TERMS if name in terms}
                write(out, facts | {"terms": ordered})
                progress.advance(bar)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return facts | {"terms": {name: terms[name] for name in TERMS}}


def ablation_table(record: Mapping[str, Any] | None) -> str | None:
    """The record as a table for docs/results.md, the terms worth most first; None without one."""
    if record is None or WHOLE not in record["terms"]:
        return None
    side = HELD_OUT if HELD_OUT in record["sides"] else FITTED
    is_held_out = side == HELD_OUT
    terms = {name: figures[side] for name, figures in record["terms"].items()}
    whole = terms.pop(WHOLE)
    words = "held-out" if is_held_out else "fitted"
    lines = [
        "## What each term is worth\n",
        f"Errors over {words} rows of the ground truth, and regret among the measured rows of "
        f"{'held-out' if is_held_out else 'other'} shapes, with each term off and the rest "
        f"fitted again ({record['evaluations']} evaluations; `python -m bench.ablation`).\n",
        "| off | paper: mean | max | LLM and further: mean | p95 | regret: geomean | worst |",
        f"|{'---|' * 7}",
        _line(WHOLE, whole),
        *(
            _line(name, terms[name])
            for name in sorted(terms, key=lambda name: -_worth(terms[name], whole))
        ),
    ]
    return "\n".join(lines)


def _worth(figures: Mapping[str, Any], whole: Mapping[str, Any]) -> float:
    """By how much the mean errors rise together."""
    return sum(
        (figures[part]["mean_ape"] or 0) - (whole[part]["mean_ape"] or 0)
        for part in ("paper", "llm")
    )


def _line(name: str, figures: Mapping[str, Any]) -> str:
    paper, llm = figures["paper"], figures["llm"]
    errors = (paper["mean_ape"], paper["max_ape"], llm["mean_ape"], llm["p95_ape"])
    cells = ["-" if error is None else f"{error:.1%}" for error in errors]
    regret = figures["regret"]
    cells += [f"{regret[n]:.3f}" for n in ("geomean", "worst")] if regret else ["-", "-"]
    return f"| {name} | {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Take out term after term; leaves with 2 for wrong arguments or files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("table", type=Path, help="ground_truth.csv.gz")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--evaluations", type=int, default=EVALUATIONS, metavar="N")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--held-out", action="store_true", help="look at what is held out, too")
    chosen = parser.parse_args(arguments)
    for name in ("evaluations", "processes"):
        if getattr(chosen, name) < 1:
            parser.error(f"--{name}: must be at least 1, got {getattr(chosen, name)}")
    try:
        load_profile(chosen.device).model(FAMILY)
        load_ground_truth(chosen.table)
    except InvalidInput as error:
        parser.error(str(error))
    sides = (FITTED, HELD_OUT) if chosen.held_out else (FITTED,)
    out = chosen.table.with_name(NAME)
    record = ablate(chosen.table, chosen.device, chosen.evaluations, sides, chosen.processes, out)
    print(ablation_table(json.loads(json.dumps(record))))


if __name__ == "__main__":
    main()
