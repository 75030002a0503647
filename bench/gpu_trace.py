"""The GPU's own timeline beside the model's, over many configurations.

    python -m bench.gpu_trace GROUND_TRUTH.csv.gz --out bench/results/h200/trace.json

Traces a seeded sample of the ground truth's configurations, and two that are shown whole: how far
predicted event times and MATH wait are off, and what tracing costs. Kernels are compiled first, in
parallel. ``--raw FILE`` keeps what the launches recorded, from which ``--read FILE`` makes the
result anew, without a GPU. ``--plan FILE`` traces a plan's configurations (``kernels.bench``)
instead: twins of ``bench.cluster_plan``, say.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from bench.evidence import begin, crew_parser_of, record
from bench.files import write
from bench.trace_raw import Raw, load, save
from bench.trace_sample import Traced, chosen, planned
from bench.trace_summary import result_of, row_of
from kernels.bench import compile_variant, precompile
from kernels.process import Outcome, OutcomeKind
from kernels.protocol import TRACE
from kernels.sources import Variant, traced_hash
from kernels.trace_launch import TraceTask, launch_traced
from kernels.verify import failure_of
from solver.errors import InvalidInput
from solver.families import sm90_gemm as family

DEADLINE_S = 60.0
SAMPLE = 200


class TraceFindings:
    """Launches by configuration, and why others gave none."""

    def __init__(self, wanted: Sequence[Traced]) -> None:
        self._wanted = {traced.task: traced for traced in wanted if traced.role == "sample"}
        self._shown = [traced for traced in wanted if traced.role != "sample"]
        self.rows_failed: list[dict[str, Any]] = []
        self.raw: Raw = []

    @property
    def failed(self) -> int:
        """Configurations that gave no trace."""
        return len(self.rows_failed)

    def add(self, arguments: tuple[Any, ...], outcome: Outcome) -> None:
        """Take in the outcome of one ``launch_traced``."""
        task: TraceTask = arguments[0]
        for traced in self._of(task):
            if outcome.kind is OutcomeKind.OK:
                self.raw.append((traced, outcome.value))
            else:
                reason, details = failure_of(outcome)
                self.rows_failed.append(
                    {**traced.to_dict(), "reason": str(reason), "details": details}
                )

    def _of(self, task: TraceTask) -> list[Traced]:
        sample = [self._wanted[task]] if task in self._wanted else []
        return [*(traced for traced in self._shown if traced.task == task), *sample]

    def to_dict(self) -> dict[str, Any]:
        """The rows and what they come to."""
        return made_of(self.raw, self.rows_failed)


def made_of(raw: Raw, failed: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """The record of launches: their rows, and what they come to."""
    rows = [*(row_of(traced, launched) for traced, launched in raw), *failed]
    return {"traced_hash": traced_hash(), "protocol": TRACE.to_dict(), **result_of(rows)}


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every configuration was traced; 1: some were not; 2: wrong arguments or files; 3: no GPU
    or no family."""
    parser = crew_parser_of("gpu_trace", __doc__, workers=1)
    parser.add_argument("truth", type=Path, nargs="?", help="the ground truth's table")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="configurations (%(default)s)")
    parser.add_argument("--plan", type=Path, help="trace a plan's configurations instead")
    parser.add_argument("--raw", type=Path, help="keep the launches' records there (.npz)")
    parser.add_argument("--read", type=Path, help="no GPU: make the result of such a file")
    early = parser.parse_args(arguments)
    if early.read is not None:
        return _again(parser, early)
    if (early.truth is None) == (early.plan is None):
        parser.error("one of the ground truth's table, --plan and --read is needed")
    options, facts, device = begin(parser, arguments)
    try:
        wanted = (
            planned(options.plan, device)
            if options.plan is not None
            else chosen(options.truth, device, options.sample, options.seed)
        )
    except InvalidInput as error:
        parser.error(str(error))
    tasks = list(dict.fromkeys(traced.task for traced in wanted))
    keys = {family.compile_key(t.config, t.problem.dtype, t.problem.kernel_layout) for t in tasks}
    with Progress(console=Console(stderr=True)) as progress:
        precompile(
            sorted(keys),
            progress,
            [partial(compile_variant, variant=v) for v in (Variant.SHIPPED, Variant.TRACED)],
        )
    findings = TraceFindings(wanted)
    calls = [(task,) for task in tasks]
    code = record(options, facts, launch_traced, [calls], DEADLINE_S, findings)
    if options.raw is not None:
        beside = json.loads(options.out.read_text("utf-8"))
        names = (*facts, "seed", "complete", "elapsed_s")
        about = {name: beside[name] for name in names} | {"traced_hash": traced_hash()}
        save(options.raw, about, findings.raw, findings.rows_failed)
    return code


def _again(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    try:
        facts, raw, failed = load(options.read)
    except InvalidInput as error:
        parser.error(str(error))
    if facts.get("traced_hash") != traced_hash():
        parser.error(f"{options.read} is of a traced build whose sources are not these")
    write(options.out, facts | made_of(raw, failed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
