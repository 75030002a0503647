"""The kernels under NVIDIA's compute-sanitizer.

    python -m bench.gpu_sanitize --out bench/results/h200/sanitizer.json

A tool's clean run counts only where the same tool has reported a planted fault of its kind in
these same kernels. Plants are launches that claim more memory than there is (memcheck) or that
read what was never written (initcheck), and the kernel's source with one synchronisation taken
out or one fault put in (racecheck, synccheck). Each plant says whether its tool saw it; a tool
that missed every one has the note "not run".

The clean launches take every branch of the kernel several times, on memory sized to the element
whose gaps are never written; C is written only where beta has it read.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from bench.branch_pairs import counted
from bench.evidence import ROOT, begin, parser_of, progress_bar
from bench.files import write
from bench.sanitize_plants import COPY, GEMM, PLANTS, clean_pairs
from kernels.bench import precompile

FOUND = 86  # exit code that the checker gives where it found something
CLEAN_TIMEOUT_S = 300
PLANT_TIMEOUT_S = 60  # a planted fault may hang the launch
CLEAN_PARTS = 4  # of each tool's clean launches, side by side
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
PROCESSES = 12  # checkers at a time


def find_sanitizer() -> str | None:
    """The checker's path: on PATH, or in the CUDA toolkit."""
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    found = shutil.which("compute-sanitizer")
    for home in homes:
        candidate = Path(home, "bin", "compute-sanitizer")
        if found is None and home and candidate.exists():
            found = str(candidate)
    return found


def under(
    sanitizer: str, tool: str, kernels: Sequence[str], launched: Sequence[str], timeout_s: int
) -> tuple[str, str]:
    """Launch a plant, or a part of what is clean, under a tool; see ``verdict``."""
    command = [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "20"]
    if tool == "memcheck":
        command += ["--report-api-errors", "no"]  # probing the driver for entry points is none
    command += [sys.executable, "-m", "bench.sanitize_plants", *launched]
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:  # the checker's own child too
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        ending = f"\nno end after {timeout_s} s" if code is None else ""
        return verdict(output.read() + ending, code, kernels)


def verdict(output: str, code: int | None, kernels: Sequence[str]) -> tuple[str, str]:
    """What a run under a checker comes to: found | clean | broken, and the checker's words.

    ``found`` is a report that names one of ``kernels``, whether or not the launch ended
    thereafter. ``code`` is None where it did not.
    """
    lines = output.strip().splitlines()
    words = [line.strip("= ") for line in lines if line.startswith("=========")]
    reports = [line for line in words[1:] if line and "SUMMARY" not in line]
    if any(kernel in line for line in reports for kernel in kernels):
        return "found", f"{reports[0]}; {words[-1]}"
    if code == 0 and words and not reports:
        return "clean", words[-1]
    ending = "killed" if code is None else f"exit code {code}"
    return "broken", f"{ending}: {' | '.join([*reports[:1], *lines[-3:]])}"


@dataclass(frozen=True, slots=True)
class Checked:
    """One run under a checker: of a plant by name, or of a part of a tool's clean launches."""

    tool: str
    plant: str | None
    outcome: str
    words: str
    elapsed_s: float


def checked(sanitizer: str) -> Iterator[Checked]:
    """Every plant and every tool's clean launches, several at a time, as they end."""

    def run(tool: str, plant: str | None, part: int) -> Checked:
        started = time.monotonic()
        if plant is None:
            launched = ("clean", str(part), str(CLEAN_PARTS))
            outcome = under(sanitizer, tool, (GEMM, COPY), launched, CLEAN_TIMEOUT_S)
        else:
            kernels = (PLANTS[plant].kernel,)
            outcome = under(sanitizer, tool, kernels, (plant,), PLANT_TIMEOUT_S)
        return Checked(tool, plant, *outcome, round(time.monotonic() - started, 1))

    jobs: list[tuple[str, str | None, int]] = [(p.tool, name, 0) for name, p in PLANTS.items()]
    jobs += [(tool, None, part) for part in range(CLEAN_PARTS) for tool in TOOLS]
    with progress_bar() as bar, ThreadPoolExecutor(PROCESSES) as pool:
        task = bar.add_task("sanitize", total=len(jobs), failed="")
        for done in as_completed([pool.submit(run, *job) for job in jobs]):
            bar.advance(task)
            yield done.result()


def report(runs: Sequence[Checked]) -> dict[str, Any]:
    """What the runs so far say: each plant, and each tool's clean launches."""
    plants = {
        run.plant: {
            "tool": run.tool,
            "kernel": PLANTS[run.plant].kernel,
            "what": PLANTS[run.plant].what,
            "outcome": run.outcome,
            "found": run.outcome == "found",
            "words": run.words,
            "elapsed_s": run.elapsed_s,
        }
        for run in runs
        if run.plant is not None
    }
    clean = clean_pairs()
    return {
        "launches": 2 * len(clean),
        "branches": counted(clean),
        "plants": plants,
        "clean": {tool: _clean(tool, runs, plants) for tool in TOOLS},
    }


def _clean(tool: str, runs: Sequence[Checked], plants: dict[str, Any]) -> dict[str, Any] | str:
    """A tool's clean launches; they count only where it saw a plant."""
    seen = [name for name, row in plants.items() if row["tool"] == tool and row["found"]]
    parts = [run for run in runs if run.plant is None and run.tool == tool]
    worst = [run for run in parts if run.outcome != "clean"]
    if not worst and not seen:
        return "not run: the tool missed every plant"
    if not worst and len(parts) < CLEAN_PARTS:
        return "not run: not all launches came to their end"
    return {
        "outcome": worst[0].outcome if worst else "clean",
        "words": (worst or parts)[0].words,
        "counts_for": seen,
        "elapsed_s": max(run.elapsed_s for run in parts),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """0: nothing was found in clean launches; 1: something was; 3: no compute-sanitizer or GPU."""
    chosen, facts, _ = begin(parser_of("gpu_sanitize", __doc__), arguments)
    sanitizer = find_sanitizer()
    record = {**facts, "sanitizer": sanitizer}
    code, started = 3, time.monotonic()
    if sanitizer is None:
        record["note"] = "not run: no compute-sanitizer on this host"
    else:
        _precompile()
        runs: list[Checked] = []
        for done in checked(sanitizer):
            runs.append(done)
            write(chosen.out, record | report(runs) | {"complete": False})
        record |= report(runs) | {"complete": True}
        ran = [tool for tool in record["clean"].values() if isinstance(tool, dict)]
        code = int(any(tool["outcome"] != "clean" for tool in ran))
    record["elapsed_s"] = round(time.monotonic() - started, 1)
    print(json.dumps(record, indent=1))
    write(chosen.out, record)
    return code


def _precompile() -> None:
    """Fill the kernel cache before any checker slows the compiler down."""
    keys = {pair.key for pair in [*clean_pairs(), *(plant.pair for plant in PLANTS.values())]}
    with Progress(console=Console(stderr=True)) as bar:
        failures = precompile(sorted(keys), bar)
    if failures:
        raise SystemExit(f"kernels that don't compile: {failures}")


if __name__ == "__main__":
    sys.exit(main())
