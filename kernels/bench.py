"""Runs a plan on the GPU beside us: ``python -m kernels.bench plan.json --out result.json``.

Needs neither z3 nor pydantic. Kernels are compiled first, in parallel; rows then run one by
one in a worker process, which is replaced when a row hangs or kills it. With ``--triton``,
``--cublaslt`` and ``--sustained`` each pick and best is measured against more than cuBLAS's
default; these take a few seconds a row, or half a minute.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kernels.bare_host import exit_code
from kernels.bench_plan import Plan, read_plan
from kernels.bench_result import ResultFile, package_versions
from kernels.bench_runner import NO_EXTRAS, Extras, Runner
from kernels.compile import compile_kernel
from kernels.errors import CompilerAbsent, KernelError
from kernels.files import check_place, read_json
from kernels.protocol import BENCH, CHOICE, REGRET, SAMPLE, SUSTAINED, VERIFY
from kernels.rivals import COLUMNS
from kernels.sources import Variant, copy_hash, source_hash
from kernels.verify import require_gpu
from solver.errors import InvalidInput
from solver.families.sm90_gemm import CompileKey

COMPILER_NICENESS = 10
COMPILER_DIED = "the compiler's process died"
"""Why keys have no kernel that were waiting when some compilation killed its process."""


def compile_shipped(key: CompileKey) -> str | None:
    """Compile the kernel that ships into the cache; None, or why it failed."""
    return compile_variant(key, Variant.SHIPPED)


def compile_variant(key: CompileKey, variant: Variant) -> str | None:
    """Compile into the cache; None, or why it failed."""
    try:
        compile_kernel(key, variant=variant)
    except CompilerAbsent:
        raise
    except KernelError as error:
        return str(error)
    return None


class Named(Protocol):
    """A compile key of any family."""

    @property
    def name(self) -> str: ...


def precompile(
    keys: Sequence[Named],
    progress: Progress,
    builds: Sequence[Callable[[Any], str | None]] = (compile_shipped,),
) -> dict[str, str]:
    """``compile_all`` with a bar."""
    bar = progress.add_task("compile", total=len(keys) * len(builds))
    return compile_all(keys, lambda: progress.advance(bar), builds)


def compile_all(
    keys: Sequence[Named],
    advance: Callable[[], None],
    builds: Sequence[Callable[[Any], str | None]] = (compile_shipped,),
) -> dict[str, str]:
    """Compile every key into the cache, in parallel; why those that failed did, by key name.

    Each of ``builds`` compiles one: None, or why it failed. ``advance`` hears of each that is done,
    and ends it all by raising.

    Raises CompilerAbsent where there is no compiler.
    """
    failures: dict[str, str] = {}
    context = multiprocessing.get_context("spawn")
    workers = max(1, min(os.cpu_count() or 1, len(keys) * len(builds)))
    # A service that sweeps or calibrates goes on answering meanwhile: its processes come first.
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=os.nice, initargs=(COMPILER_NICENESS,)
    ) as pool:
        waiting = {pool.submit(build, key): key for key in keys for build in builds}
        try:
            for future in as_completed(waiting):
                try:
                    reason = future.result()
                except BrokenProcessPool:
                    reason = COMPILER_DIED
                if reason is not None:
                    failures[waiting[future].name] = reason
                advance()
        except BaseException:  # what waits is not begun
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failures


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """Have SIGTERM end the run like Ctrl-C does, so that the result file is finished."""

    def stop(_signal: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def read_ceilings(path: Path) -> dict[str, Any]:
    """The ceilings of a record of ``bench.gpu_ceilings``. Raises InvalidInput."""
    record = read_json(path, "ceilings")
    ceilings = record.get("ceilings") if isinstance(record, dict) else None
    if not isinstance(ceilings, dict):
        raise InvalidInput("ceilings", f"{path} is no record of ceilings")
    return ceilings


def run_plan(
    plan: Plan,
    out: Path,
    sms: int | None,
    console: Console,
    extras: Extras = NO_EXTRAS,
    ceilings: dict[str, Any] | None = None,
) -> ResultFile:
    """Run every row of a plan and write ``out``, with ``ceilings`` beside the rows where given.

    Raises WarpwrightError where nothing can run.
    """
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
    bars = Progress(*columns, console=console)
    bar = bars.add_task("measure", total=len(plan.jobs()), failed="")
    runner = Runner(device, sms, failures, extras, lambda word: bars.update(bar, description=word))
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
                "regret": REGRET.to_dict(),
                "learnt": {"choice": CHOICE.to_dict(), "report": VERIFY.to_dict()},
                **_extra_protocols(extras),
            },
            **({} if ceilings is None else {"ceilings": ceilings}),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        complete = False
        try:
            with bars:
                for job in plan.jobs():
                    result.add(runner.run(job))
                    failed = f"{result.failed} failed" if result.failed else ""
                    bars.update(bar, advance=1, failed=failed)
            complete = True
        finally:
            result.write(complete)
    finally:
        runner.close()
    return result


def _extra_protocols(extras: Extras) -> dict[str, Any]:
    """How what was asked for besides is timed."""
    rivals = {
        COLUMNS[rival]: {
            "description": "the fastest of its candidates, each of which gave our result but for "
            "rounding, by a race under choice, then interleaved with ours under report",
            "choice": CHOICE.to_dict(),
            "report": BENCH.to_dict(),
        }
        for rival in extras.rivals
    }
    return rivals | ({"sustained": SUSTAINED.to_dict()} if extras.sustained else {})


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every row passed; 1: some failed; 2: bad plan or option; 3: no GPU, family or compiler;
    130: interrupted, with the rows so far written."""
    parser = argparse.ArgumentParser(prog="python -m kernels.bench", description=__doc__)
    parser.add_argument("plan", type=Path, help="plan made by `warpwright bench plan`")
    parser.add_argument("--out", type=Path, required=True, help="result file (JSON)")
    parser.add_argument("--sms", type=int, help="launch on at most this many SMs")
    parser.add_argument(
        "--triton", action="store_true", help="also time Triton's persistent kernel, autotuned"
    )
    parser.add_argument(
        "--cublaslt",
        action="store_true",
        help="also time the best of cuBLASLt's first eight algorithms",
    )
    parser.add_argument(
        "--sustained",
        action="store_true",
        help="also time products of 2^40 operations and more for a second at a time",
    )
    parser.add_argument(
        "--ceilings", type=Path, help="record of bench.gpu_ceilings to keep beside the rows"
    )
    chosen = parser.parse_args(arguments)
    if chosen.sms is not None and chosen.sms < 1:
        parser.error(f"--sms: must be at least 1, got {chosen.sms}")
    console = Console(stderr=True)

    def work() -> bool:
        plan = read_plan(chosen.plan)
        check_place(chosen.out)
        ceilings = None if chosen.ceilings is None else read_ceilings(chosen.ceilings)
        rivals = tuple(rival for rival in COLUMNS if getattr(chosen, rival))
        extras = Extras(rivals, chosen.sustained)
        with terminated_as_interrupt():
            result = run_plan(plan, chosen.out, chosen.sms, console, extras, ceilings)
        return not result.failed

    return exit_code(work, console, "interrupted; the rows so far are in the result file")


if __name__ == "__main__":
    sys.exit(main())
