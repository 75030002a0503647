"""Measures norm_activation on the GPU beside us: ``python -m kernels.norm.bench plan.json --out
result.json``.

Needs neither z3 nor pydantic. Kernels are compiled first, in parallel; then the cells of each race
are checked and timed in turn in a worker process. Where one hangs or kills it, each cell of the
race is launched alone, and those that pass are timed without the others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kernels.bare_host import exit_code
from kernels.bench import precompile, terminated_as_interrupt
from kernels.bench_result import ResultFile, package_versions
from kernels.errors import CompilerAbsent, GpuLost, KernelError
from kernels.files import check_place
from kernels.host import find_gpu
from kernels.norm import worker
from kernels.norm.cells import Cell, races, read_cells, read_plan
from kernels.norm.compile import NormKey, compile_key, compile_norm, source_hash
from kernels.norm.device import norm_profile
from kernels.nvrtc import version as nvrtc_version
from kernels.process import OutcomeKind, Worker
from kernels.protocol import NORM, Protocol
from kernels.sources import commit

START_S = 120.0
RACE_S = 120.0
CELL_S = 30.0


def compile_into_cache(key: NormKey, *, arch: str) -> str | None:
    """Compile into the cache; None, or why it failed."""
    try:
        compile_norm(key, arch)
    except CompilerAbsent:
        raise
    except KernelError as error:
        return str(error)
    return None


class Runner:
    """Runs races in a worker process, which is replaced when one hangs or kills it."""

    def __init__(self, failures: dict[str, str], protocol: Protocol) -> None:
        self._failures = failures
        self._protocol = protocol
        self._worker = Worker()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()

    def facts(self) -> dict[str, Any]:
        """What the record says of the GPU. Raises GpuLost where no process comes up."""
        outcome = self._worker.call(worker.facts, (), START_S)
        if outcome.kind is not OutcomeKind.OK:
            raise GpuLost(f"no GPU process comes up: {outcome.message}")
        facts: dict[str, Any] = outcome.value
        return facts

    def run(self, cells: Sequence[Cell]) -> list[dict[str, Any]]:
        """A row for each cell of a race, in order."""
        rows: dict[int, dict[str, Any]] = {}
        for index, cell in enumerate(cells):
            reason = self._failures.get(compile_key(cell.problem, cell.config).name)
            if reason is not None:
                rows[index] = {"status": "failed", "details": reason}
        self._measure(cells, [i for i in range(len(cells)) if i not in rows], rows)
        return [cells[i].to_dict() | rows[i] for i in range(len(cells))]

    def _measure(
        self, cells: Sequence[Cell], left: list[int], rows: dict[int, dict[str, Any]]
    ) -> None:
        if not left:
            return
        arguments = ([cells[i] for i in left], self._protocol)
        outcome = self._worker.call(worker.measure_race, arguments, START_S + RACE_S)
        if outcome.kind is OutcomeKind.OK:
            rows.update(zip(left, outcome.value, strict=True))
            return
        reason = f"{outcome.kind}: {outcome.message}"
        passed = []
        for index in left:
            alone = self._worker.call(worker.check_cell, (cells[index],), START_S + CELL_S)
            if alone.kind is OutcomeKind.OK and not alone.value:
                passed.append(index)
                continue
            details = alone.value or f"{alone.kind}: {alone.message}"
            rows[index] = {"status": "failed", "details": details}
        if len(passed) < len(left):
            self._measure(cells, passed, rows)
            return
        rows.update({index: {"status": "failed", "details": reason} for index in passed})


def run_plan(
    plan: Path, out: Path, protocol: Protocol, console: Console, made_at: str | None = None
) -> ResultFile:
    """Measure every cell of a plan and write ``out``; ``made_at`` is the commit that the record
    names, this checkout's where it says none. Raises WarpwrightError."""
    read_plan(plan)  # what is wrong with it is told wherever there is no GPU, too
    gpu = find_gpu()
    profile = norm_profile(gpu)
    cells = read_cells(plan, profile)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    keys = list({compile_key(cell.problem, cell.config): None for cell in cells})
    result = ResultFile(out, {})
    with Progress(*columns, console=console) as progress:
        failures = precompile(keys, progress, (partial(compile_into_cache, arch=profile.arch),))
        with Runner(failures, protocol) as runner:
            result.note(
                suite="norm_activation",
                device=gpu.name,
                profile=profile.name,
                driver=gpu.driver,
                nvrtc=nvrtc_version(),
                packages=package_versions(),
                commit=made_at or commit(),
                source_hash=source_hash(profile.arch),
                planned=len(cells),
                **runner.facts(),
                protocol={
                    "description": "CUDA events around replays of CUDA graphs; a time is the mean "
                    "per launch of one replay, percentiles are over replays; the cells of a race "
                    "in turn, in alternating order, on inputs that rotate over three times the L2",
                    **protocol.to_dict(),
                },
                date=datetime.now(UTC).isoformat(timespec="seconds"),
            )
            complete = False
            try:
                bar = progress.add_task("measure", total=len(cells))
                for members in races(cells):
                    for row in runner.run(members):
                        result.add(row)
                    progress.advance(bar, len(members))
                complete = True
            finally:
                result.write(complete)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every cell passed; 1: some failed; 2: bad plan; 3: no GPU, family or compiler; 130:
    interrupted, with the rows so far written."""
    parser = argparse.ArgumentParser(prog="python -m kernels.norm.bench", description=__doc__)
    parser.add_argument("plan", type=Path, help="plan made by `python -m bench.norm_grid`")
    parser.add_argument("--out", type=Path, required=True, help="result file (JSON)")
    parser.add_argument("--rounds", type=int, default=NORM.min_rounds, help="replays of each cell")
    parser.add_argument("--commit", help="commit of the copy that runs, where it is no checkout")
    parser.add_argument("--warm", action="store_true", help="one input set, in the L2 if it fits")
    chosen = parser.parse_args(arguments)
    if chosen.rounds < 1:
        parser.error(f"--rounds: must be at least 1, got {chosen.rounds}")
    protocol = replace(NORM, min_rounds=chosen.rounds, max_rounds=chosen.rounds)
    if chosen.warm:
        protocol = protocol.with_cache("warm")
    console = Console(stderr=True)

    def work() -> bool:
        check_place(chosen.out)
        with terminated_as_interrupt():
            return not run_plan(chosen.plan, chosen.out, protocol, console, chosen.commit).failed

    return exit_code(work, console, "interrupted; the rows so far are in the result file")


if __name__ == "__main__":
    sys.exit(main())
