"""Runs a plan on the GPU beside us: ``python -m kernels.bench plan.json --out result.json``.

Needs neither z3 nor pydantic. Kernels are compiled first, in parallel; rows then run one by
one in a worker process, which is replaced when a row hangs or kills it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import secrets
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kernels.bench_plan import Plan, PlanRow, read_plan
from kernels.bench_result import ResultFile, failed_row, package_versions, passed_row
from kernels.compile import compile_kernel
from kernels.errors import CompilerAbsent, KernelError
from kernels.process import OutcomeKind, Worker
from kernels.protocol import BENCH, CHOICE, SAMPLE
from kernels.sources import copy_hash, source_hash
from kernels.verify import Reason, failure_of, require_gpu
from kernels.worker import Task, TaskResult, device_facts, run_task
from solver.device import load_profile
from solver.errors import IllegalConfig, InvalidInput, InvalidProblem, WarpwrightError
from solver.families import sm90_gemm as family
from solver.families import sm90_gemm_legality as legality
from solver.families.sm90_gemm import CompileKey

ROW_DEADLINE_S = 60.0
START_DEADLINE_S = 120.0


def _compile(key: CompileKey) -> str | None:
    """Compile into the cache; None, or why it failed."""
    try:
        compile_kernel(key)
    except CompilerAbsent:
        raise
    except KernelError as error:
        return str(error)
    return None


def precompile(keys: Sequence[CompileKey], progress: Progress) -> dict[str, str]:
    """Compile every key in parallel; why those that failed did, by key name.

    Raises CompilerAbsent where there is no compiler.
    """
    failures: dict[str, str] = {}
    bar = progress.add_task("compile", total=len(keys))
    context = multiprocessing.get_context("spawn")
    workers = max(1, min(os.cpu_count() or 1, len(keys)))
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        waiting = {pool.submit(_compile, key): key for key in keys}
        for future in as_completed(waiting):
            try:
                reason = future.result()
            except BrokenProcessPool:
                reason = "the compiler's process died"
            if reason is not None:
                failures[waiting[future].name] = reason
            progress.advance(bar)
    return failures


class Runner:
    """Runs the jobs of one plan and turns outcomes into records."""

    def __init__(self, device: str, sms: int | None, failures: dict[str, str]) -> None:
        self._device = device
        self._sms = sms
        self._failures = failures
        self._worker = Worker()

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def device_facts(self) -> dict[str, Any]:
        """What the worker reads off the device. Raises KernelError where it can't start."""
        outcome = self._worker.call(device_facts, (), START_DEADLINE_S)
        if outcome.kind is not OutcomeKind.OK:
            raise KernelError(f"the GPU process does not start: {failure_of(outcome)[1]}")
        facts: dict[str, Any] = outcome.value
        return facts

    def _run(self, row: PlanRow, choosing: bool) -> TaskResult | tuple[Reason, str]:
        problem, config = row.problem, row.config
        try:
            legality.check(config, problem, load_profile(self._device))
        except (IllegalConfig, InvalidProblem) as error:
            return Reason.ILLEGAL, str(error)
        key = family.compile_key(config, problem.dtype, problem.kernel_layout)
        reason = self._failures.get(key.name)
        if reason is not None:
            return Reason.COMPILE_FAILED, reason
        sample = row.role == "sample"
        protocol = CHOICE if choosing else SAMPLE if sample else BENCH
        task = Task(
            problem=problem,
            config=config,
            device=self._device,
            seed=secrets.randbits(63),
            protocol=protocol.with_cache(row.cache),
            sms=self._sms,
            check=row.check and not choosing,
            cublas=not (sample or choosing),
        )
        deadline_s = ROW_DEADLINE_S + (0 if self._worker.running else START_DEADLINE_S)
        outcome = self._worker.call(run_task, (task,), deadline_s)
        if outcome.kind is not OutcomeKind.OK:
            return failure_of(outcome)
        result: TaskResult = outcome.value
        return result

    def _record(self, row: PlanRow) -> dict[str, Any]:
        result = self._run(row, choosing=False)
        if isinstance(result, TaskResult):
            return passed_row(row, result)
        return failed_row(row, *result)

    def run(self, job: Sequence[PlanRow]) -> dict[str, Any]:
        """The record of a job. Of several candidates the fastest of one pass is measured
        afresh, next to cuBLAS, and that is what is reported."""
        if len(job) == 1:
            return self._record(job[0])
        tried = [(row, self._run(row, choosing=True)) for row in job]
        candidates = [
            {
                "config": row.config.to_dict(),
                "predicted_us": row.predicted_us,
                "median_us": result.median_us if isinstance(result, TaskResult) else None,
                "failure": None if isinstance(result, TaskResult) else ": ".join(result),
            }
            for row, result in tried
        ]
        timed = [
            (result.median_us, index)
            for index, (_, result) in enumerate(tried)
            if isinstance(result, TaskResult) and result.median_us is not None
        ]
        record = self._record(job[min(timed)[1] if timed else 0])
        return record | {"candidates": candidates}


@contextmanager
def _terminated_as_interrupt() -> Iterator[None]:
    """Have SIGTERM end the run like Ctrl-C does, so that the result file is finished."""

    def stop(_signal: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_plan(plan: Plan, out: Path, sms: int | None, console: Console) -> ResultFile:
    """Run every row of a plan and write ``out``. Raises WarpwrightError where nothing can run."""
    gpu, device = require_gpu()
    running = source_hash()
    if plan.source_hash not in (None, running):
        console.print(
            f"[yellow]the plan was made for kernels {plan.source_hash:.12}, "
            f"these are {running:.12}; the result records both"
        )
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[failed]}"),
    )
    with Progress(*columns[:4], console=console) as progress:
        failures = precompile(plan.keys(), progress)
    runner = Runner(device, sms, failures)
    result = ResultFile(out, {})
    try:
        facts = runner.device_facts()
        from kernels.nvrtc import version as nvrtc_version

        result.note(
            suite=plan.suite,
            cache=plan.cache,
            device=gpu.name,
            profile=device,
            driver=gpu.driver,
            nvrtc=nvrtc_version(),
            packages=package_versions(),
            commit=plan.commit,
            source_hash=running,
            copy_hash=copy_hash(),
            plan_source_hash=plan.source_hash,
            sms=min(sms, facts["sms"]) if sms else facts["sms"],
            l2_bytes=facts["l2_bytes"],
            planned=len(plan.jobs()),
            protocol={
                "description": "CUDA events around replays of a CUDA graph; a time is the mean "
                "per launch of one replay, the aligned copies of operands named in copies "
                "included, percentiles are over replays; cuBLAS interleaved in one process, "
                "the ratio is of paired replays",
                "pick": BENCH.to_dict(),
                "best": {"choice": CHOICE.to_dict(), "report": BENCH.to_dict()},
                "sample": SAMPLE.to_dict(),
            },
            date=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        complete = False
        try:
            with Progress(*columns, console=console) as progress:
                bar = progress.add_task("measure", total=len(plan.jobs()), failed="")
                for job in plan.jobs():
                    result.add(runner.run(job))
                    failed = f"{result.failed} failed" if result.failed else ""
                    progress.update(bar, advance=1, failed=failed)
            complete = True
        finally:
            result.write(complete)
    finally:
        runner.close()
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every row passed; 1: some failed; 2: bad plan; 3: no GPU, family or compiler; 130:
    interrupted, with the rows so far written."""
    parser = argparse.ArgumentParser(prog="python -m kernels.bench", description=__doc__)
    parser.add_argument("plan", type=Path, help="plan made by `warpwright bench plan`")
    parser.add_argument("--out", type=Path, required=True, help="result file (JSON)")
    parser.add_argument("--sms", type=int, help="launch on at most this many SMs")
    chosen = parser.parse_args(arguments)
    if chosen.sms is not None and chosen.sms < 1:
        parser.error(f"--sms: must be at least 1, got {chosen.sms}")
    console = Console(stderr=True)
    try:
        plan = read_plan(chosen.plan)
        with _terminated_as_interrupt():
            result = run_plan(plan, chosen.out, chosen.sms, console)
    except InvalidInput as error:
        console.print(f"error: {error}", markup=False)
        return 2
    except WarpwrightError as error:
        console.print(f"error: {error}", markup=False)
        return 3
    except KeyboardInterrupt:
        console.print("interrupted; the rows so far are in the result file")
        return 130
    return 1 if result.failed else 0


if __name__ == "__main__":
    sys.exit(main())
