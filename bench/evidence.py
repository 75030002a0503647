"""What the GPU evidence scripts share: worker processes side by side, and the record they leave.

Needs neither z3 nor pydantic, as everything that runs on a bare GPU host.
"""

from __future__ import annotations

import argparse
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.files import write
from kernels.bench_result import package_versions
from kernels.nvrtc import version as nvrtc_version
from kernels.process import Outcome, OutcomeKind, Worker
from kernels.sources import commit as own_commit
from kernels.sources import copy_hash, source_hash
from kernels.verify import Reason, failure_of, require_gpu
from solver.device import DeviceProfile, load_profile
from solver.errors import WarpwrightError

ROOT = Path(__file__).resolve().parents[1]
START_S = 180.0  # what the first call of a process may take longer: imports, CuPy's own kernels


@dataclass(frozen=True, slots=True)
class Crew:
    """Worker processes that share one GPU, each with calls of its own at a time.

    ``deadline_s`` is a call's; a process that passes it is killed and replaced, and after
    ``budget_s`` seconds no further call begins.
    """

    size: int
    deadline_s: float
    budget_s: float = float("inf")

    def run(
        self,
        function: Callable[..., Any],
        batches: Iterable[Sequence[tuple[Any, ...]]],
        done: Callable[[tuple[Any, ...], Outcome], None],
    ) -> bool:
        """Call ``function`` with the arguments of every batch; whether all of them were begun.

        The calls of a batch go to one process, in order. ``done`` hears of each with its
        outcome, one at a time.
        """
        waiting: queue.SimpleQueue[Sequence[tuple[Any, ...]]] = queue.SimpleQueue()
        for batch in batches:
            waiting.put(batch)
        workers = [Worker() for _ in range(self.size)]
        lock, stop, ends = threading.Lock(), threading.Event(), time.monotonic() + self.budget_s

        def serve(worker: Worker) -> bool:
            while True:
                try:
                    batch = waiting.get_nowait()
                except queue.Empty:
                    return True
                for arguments in batch:
                    if stop.is_set() or time.monotonic() > ends:
                        return False
                    deadline_s = self.deadline_s + (0 if worker.running else START_S)
                    outcome = worker.call(function, arguments, deadline_s)
                    if not stop.is_set():
                        with lock:
                            done(arguments, outcome)

        try:
            with ThreadPoolExecutor(self.size) as pool:
                try:
                    return all([*pool.map(serve, workers)])
                except BaseException:
                    stop.set()
                    for worker in workers:
                        worker.kill()
                    raise
        finally:
            for worker in workers:
                worker.close()


def failure(outcome: Outcome) -> dict[str, str] | None:
    """Why a call gave no result or a wrong one, as ``reason`` and ``details``; None where it
    gave a right one: a dictionary whose ``details`` are empty."""
    if outcome.kind is not OutcomeKind.OK:
        reason, details = failure_of(outcome)
        return {"reason": reason, "details": details}
    if outcome.value["details"]:
        return {"reason": Reason.WRONG_RESULT, "details": outcome.value["details"]}
    return None


def about(commit: str | None = None) -> dict[str, Any]:
    """What was run on what: device, versions, commit, hashes of the sources, command.

    ``commit`` names it where this is no checkout. Raises GpuAbsent and NoKernelFamily.
    """
    gpu, profile = require_gpu()
    return {
        "device": gpu.name,
        "profile": profile,
        "driver": gpu.driver,
        "nvrtc": nvrtc_version(),
        "packages": package_versions(),
        "commit": commit or own_commit(),
        "source_hash": source_hash(),
        "copy_hash": copy_hash(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python -m", f"bench.{Path(sys.argv[0]).stem}", *sys.argv[1:]]),
    }


class Findings(Protocol):
    """What a script makes of its calls' outcomes."""

    @property
    def failed(self) -> int:
        """Calls that found something wrong."""
        ...

    def add(self, arguments: tuple[Any, ...], outcome: Outcome) -> None:
        """Take in the outcome of one call."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Everything found so far, as JSON-ready values."""
        ...


def parser_of(name: str, words: str | None) -> argparse.ArgumentParser:
    """A script's arguments, as far as all have them."""
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{name}",
        description=words,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="result file (JSON)")
    parser.add_argument("--commit", help="recorded where this is no checkout")
    return parser


def crew_parser_of(name: str, words: str | None, workers: int) -> argparse.ArgumentParser:
    """``parser_of``, and what ``record`` needs besides; ``workers`` is the default."""
    parser = parser_of(name, words)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=workers, help="processes on the GPU")
    parser.add_argument("--budget-s", type=float, default=float("inf"), help="then begin no more")
    return parser


def begin(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> tuple[argparse.Namespace, dict[str, Any], DeviceProfile]:
    """What was chosen, ``about`` the device, and its profile.

    Leaves as argparse does: with exit code 2 for wrong arguments, 3 where there is no GPU or
    none that a kernel family runs on, and the reason on standard error.
    """
    chosen = parser.parse_args(arguments)
    try:
        facts = about(chosen.commit)
    except WarpwrightError as error:
        parser.exit(3, f"error: {error}\n")
    return chosen, facts, load_profile(facts["profile"])


def record(
    chosen: argparse.Namespace,
    facts: dict[str, Any],
    function: Callable[..., Any],
    batches: Sequence[Sequence[tuple[Any, ...]]],
    deadline_s: float,
    findings: Findings,
) -> int:
    """Call ``function`` for all batches and write the record, also of a run that is cut short.

    0: everything was right; 1: something was not, or the budget ran out first.
    """
    started, complete = time.monotonic(), False
    with progress_bar() as bar:
        task = bar.add_task(function.__name__, total=sum(map(len, batches)), failed="")

        def done(arguments: tuple[Any, ...], outcome: Outcome) -> None:
            findings.add(arguments, outcome)
            failed = f"{findings.failed} failed" if findings.failed else ""
            bar.update(task, advance=1, failed=failed)

        try:
            crew = Crew(chosen.workers, deadline_s, chosen.budget_s)
            complete = crew.run(function, batches, done)
        finally:
            elapsed_s = round(time.monotonic() - started, 1)
            beside = {**facts, "seed": chosen.seed, "complete": complete, "elapsed_s": elapsed_s}
            write(chosen.out, beside | findings.to_dict())
    return 0 if complete and not findings.failed else 1


def progress_bar() -> Progress:
    """A progress bar on standard error, with the number of failures beside it."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[failed]}"),
        console=Console(stderr=True),
    )
