"""The kernels under NVIDIA's compute-sanitizer.

    python -m bench.gpu_sanitize --out FILE.json
    python -m bench.gpu_sanitize --family norm_activation --out FILE.json

A tool's clean run counts only where the same tool has reported a planted fault of its kind in
these same kernels; where a family's kernels fall into several scopes, in the same scope. Plants are
launches that claim more memory than there is (memcheck) or that read what was never written
(initcheck), and the kernel's source with one synchronisation taken out or one fault put in
(racecheck, synccheck). Each plant says whether its tool saw it; a tool that missed every one has
the note "not run".

The clean launches take every branch of the kernels, on memory sized to the element with gaps that
are never written; an output is written beforehand only where it is read (the GEMM's C with beta).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import Progress

from bench import sanitize_gemm, sanitize_norm
from bench.evidence import ROOT, begin, parser_of, progress_bar
from bench.files import write
from bench.sanitize_hazards import Hazard, hazards
from bench.sanitize_races import EXCUSED_OUTCOME
from bench.sanitize_suite import ANNOUNCED, ENDED, TOOLS, Suite, label
from bench.tools import find_tool
from kernels.bench import precompile

FOUND = 86  # exit code that the checker gives where it found something
CLEAN_TIMEOUT_S = 300
PRINTED = "1000"  # reports of a run: racecheck's are few and counted together
PROCESSES = 16  # checkers at a time
SUITES = {suite.family: suite for suite in (sanitize_gemm.SUITE, sanitize_norm.SUITE)}


def version_of(sanitizer: str) -> str:
    """Its own line of its version."""
    said = subprocess.run([sanitizer, "--version"], check=True, capture_output=True, text=True)
    return next((line for line in said.stdout.splitlines() if line.startswith("Version")), "")


class Verdict(NamedTuple):
    """What a run under a checker comes to: found | clean | broken, the checker's words, whether all
    that it launched ended, and the pairs that racecheck reports."""

    outcome: str
    words: str
    ended: bool = True
    hazards: tuple[Hazard, ...] = ()


def under(
    sanitizer: str, tool: str, kernels: Sequence[str], launched: Sequence[str], timeout_s: int
) -> Verdict:
    """Run a module with arguments (``launched``) under a tool; see ``verdict``."""
    limit = PRINTED if tool == "racecheck" else "20"
    command = [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", limit]
    if tool == "memcheck":
        command += ["--report-api-errors", "no"]  # probing the driver for entry points is none
    command += [sys.executable, "-m", *launched]
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


def verdict(output: str, code: int | None, kernels: Sequence[str]) -> Verdict:
    """What a run under a checker comes to.

    ``found`` is a report that names one of ``kernels``, whether or not the launch ended
    thereafter; the words say after which launch it came, where that was announced. ``code`` is None
    where the run did not end.
    """
    lines = output.strip().splitlines()
    ended = ENDED in lines
    words = [line.strip("= ") for line in lines if line.startswith("=========")]
    reports = [line for line in words[1:] if line and "SUMMARY" not in line]
    if any(kernel in line for line in reports for kernel in kernels):
        before = output.partition(reports[0])[0].splitlines()
        launches = [line for line in before if line.startswith(ANNOUNCED)]
        told = "; ".join([" | ".join(reports[:2]), words[-1], *launches[-1:]])
        return Verdict("found", told, ended, hazards(lines))
    if code == 0 and words and not reports and ended:
        return Verdict("clean", words[-1])
    ending = "killed" if code is None else f"exit code {code}"
    return Verdict("broken", f"{ending}: {' | '.join([*reports[:1], *lines[-3:]])}", ended)


@dataclass(frozen=True, slots=True)
class Checked:
    """One run under a checker: of a plant or a probe by name, or of a part of a scope's clean
    launches."""

    tool: str
    scope: str
    plant: str | None
    outcome: str
    words: str
    elapsed_s: float
    ended: bool = True
    hazards: tuple[Hazard, ...] = ()


def checked(suite: Suite, sanitizer: str) -> Iterator[Checked]:
    """Every plant, every probe and every tool's clean launches, several at a time, as they end."""
    named = {**suite.plants, **suite.probes}

    def run(tool: str, scope: str, plant: str | None, part: int) -> Checked:
        started = time.monotonic()
        launched: tuple[str, ...]
        if plant is None:
            launched = (suite.module, "clean", scope, str(part), str(suite.parts[scope]))
            found = under(sanitizer, tool, suite.kernels, launched, CLEAN_TIMEOUT_S)
        else:
            kernels = (named[plant].kernel,)
            launched = (suite.module, plant)
            found = under(sanitizer, tool, kernels, launched, suite.plant_timeout_s)
        elapsed_s = round(time.monotonic() - started, 1)
        return Checked(
            tool,
            scope,
            plant,
            found.outcome,
            found.words,
            elapsed_s,
            ended=found.ended,
            hazards=found.hazards,
        )

    jobs: list[tuple[str, str, str | None, int]] = [
        (plant.tool, plant.scope, name, 0) for name, plant in named.items()
    ]
    jobs += [
        (tool, scope, None, part)
        for scope, parts in suite.parts.items()
        for part in range(parts)
        for tool in suite.tools_of(scope)
    ]
    with progress_bar() as bar, ThreadPoolExecutor(PROCESSES) as pool:
        task = bar.add_task("sanitize", total=len(jobs), failed="")
        for done in as_completed([pool.submit(run, *job) for job in jobs]):
            bar.advance(task)
            yield done.result()


def report(suite: Suite, runs: Sequence[Checked]) -> dict[str, Any]:
    """What the runs so far say: each plant and probe, and the clean launches of each tool and
    scope."""
    plants, probes = (
        {
            run.plant: {
                "tool": run.tool,
                "scope": run.scope,
                "kernel": known[run.plant].kernel,
                "what": known[run.plant].what,
                "outcome": run.outcome,
                "found": run.outcome == "found",
                "words": run.words,
                "ended": run.ended,
                "elapsed_s": run.elapsed_s,
                **_hazards([run]),
            }
            for run in runs
            if run.plant is not None and run.plant in known
        }
        for known in (suite.plants, suite.probes)
    )
    launches, branches = suite.taken()
    clean: dict[str, Any] = {}
    for tool in TOOLS:
        for scope in (scope for scope in suite.parts if tool in suite.tools_of(scope)):
            own = [run for run in runs if (run.tool, run.scope) == (tool, scope)]
            clean[label(tool, scope)] = _clean(own, suite.parts[scope])
    known = {"launches": launches, "branches": branches, "plants": plants, "clean": clean}
    return known | ({"probes": probes} if suite.probes else {})


def _hazards(runs: Sequence[Checked]) -> dict[str, Any]:
    found = [hazard.to_dict() for run in runs for hazard in run.hazards]
    return {"hazards": found} if found else {}


def _clean(runs: Sequence[Checked], wanted: int) -> dict[str, Any] | str:
    """A tool's clean launches of a scope, of which ``wanted`` parts should be here; they count only
    where it saw a plant there."""
    seen = [run.plant for run in runs if run.plant is not None and run.outcome == "found"]
    parts = [run for run in runs if run.plant is None]
    worst = [run for run in parts if run.outcome != "clean"]
    if not worst and not seen:
        return "not run: the tool missed every plant"
    if not worst and len(parts) < wanted:
        return "not run: not all launches came to their end"
    return {
        "outcome": worst[0].outcome if worst else "clean",
        "words": (worst or parts)[0].words,
        "counts_for": seen,
        "elapsed_s": max(run.elapsed_s for run in parts),
        **_hazards(parts),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """0: nothing was found in clean launches; 1: something was; 3: no compute-sanitizer or GPU."""
    parser = parser_of("gpu_sanitize", __doc__)
    parser.add_argument("--family", choices=tuple(SUITES), default=sanitize_gemm.SUITE.family)
    parser.add_argument(
        "--sanitizer",
        default=find_tool("compute-sanitizer"),
        metavar="PATH",
        help="a compute-sanitizer other than the CUDA toolkit's",
    )
    chosen, facts, _ = begin(parser, arguments)
    suite, sanitizer = SUITES[chosen.family], chosen.sanitizer
    kept = {name: fact for name, fact in facts.items() if not name.endswith("_hash")}
    record = {**kept, "family": suite.family, **suite.hashes(), "sanitizer": sanitizer}
    if sanitizer is not None:
        record["sanitizer_version"] = version_of(sanitizer)
    code, started = 3, time.monotonic()
    if sanitizer is None:
        record["note"] = "not run: no compute-sanitizer on this host"
    else:
        compile_first(suite)
        runs: list[Checked] = []
        for done in checked(suite, sanitizer):
            runs.append(done)
            write(chosen.out, record | report(suite, runs) | {"complete": False})
        record |= report(suite, runs) | {"complete": True}
        write(chosen.out, record)
        record = suite.judge(record)
        ran = [result for result in record["clean"].values() if isinstance(result, dict)]
        code = int(any(result["outcome"] not in ("clean", EXCUSED_OUTCOME) for result in ran))
    record["elapsed_s"] = round(time.monotonic() - started, 1)
    print(json.dumps(record, indent=1))
    write(chosen.out, record)
    return code


def compile_first(suite: Suite) -> None:
    """Fill the kernel cache before any checker slows the compiler down."""
    with Progress(console=Console(stderr=True)) as bar:
        failures = precompile(suite.keys(), bar, (suite.build,))
    if failures:
        raise SystemExit(f"kernels that don't compile: {failures}")


if __name__ == "__main__":
    sys.exit(main())
