"""The kernel under NVIDIA's compute-sanitizer: ``python tests/gpu/sanitize.py [--out FILE]``.

A tool's clean run counts only where the same tool has reported a planted fault of its kind in
this same kernel. Plants are launches that claim more memory than there is (memcheck), or the
kernel's source with one synchronisation or one write taken out (racecheck, initcheck). A plant
that a tool misses makes the result "not run" for that kind.

Prints one JSON object; exit code 0 where nothing was found in clean launches, 1 where
something was, 3 where there is no compute-sanitizer.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
FOUND = 86  # exit code that the checker gives where it found something
TIMEOUT_S = 400
CLEAN_CASES = 40


@dataclass(frozen=True)
class Patch:
    """Text taken out of a header; it must be there exactly once."""

    header: str
    before: str
    after: str


@dataclass(frozen=True)
class Plant:
    """A fault planted for one tool."""

    tool: str
    what: str
    patch: Patch | None = None


PLANTS = {
    "element_store": Plant("memcheck", "element-wise store past the end of C"),
    "tma_store": Plant("memcheck", "TMA store past the end of C"),
    "tma_load": Plant("memcheck", "TMA load past the end of A"),
    "workspace": Plant("memcheck", "split-K partial tile past the end of the workspace"),
    "staging_race": Plant(
        "racecheck",
        "staging read without the barrier after it was written",
        Patch(
            "sm90_gemm_epilogue.cuh",
            "          ptx::named_barrier(1 + warpgroup, kWarpgroupThreads);\n"
            "          store_elements<Shape>",
            "          store_elements<Shape>",
        ),
    ),
    "unwritten_partial": Plant(
        "initcheck",
        "split-K partial tiles read although never written",
        Patch(
            "sm90_gemm_epilogue.cuh",
            "ptx::store_global(own + (block * kQuads + quad) * kWarpgroupThreads * 4,\n"
            "                        &acc[block][4 * quad]);",
            "(void)own;",
        ),
    ),
}


def launch_clean() -> None:
    """Launch a sample of every kind of branch, with memory sized to the element."""
    import branches

    every = branches.cases()
    for problem, config in every[:: max(1, len(every) // CLEAN_CASES)]:
        launch(problem, config)


def launch_plant(name: str) -> None:
    """Launch one planted fault."""
    import branches

    from kernels import compile as compiler
    from solver.problem import Problem

    patch = PLANTS[name].patch
    if patch is not None:
        headers = dict(compiler.headers())
        if headers[patch.header].count(patch.before) != 1:
            raise SystemExit(f"{patch.header} no longer holds the text that {name} takes out")
        headers[patch.header] = headers[patch.header].replace(patch.before, patch.after)
        compiler.headers = lambda: headers
    problem, config = Problem(192, 192, 256), branches.SMALL
    if name == "element_store":
        launch(replace(problem, n=191), config, short_c=64 * 191)
    elif name == "tma_store":
        launch(problem, config, short_c=64 * 192)
    elif name == "tma_load":
        launch(problem, config, short_a=64 * 256)
    elif name == "workspace":
        launch(problem, replace(config, split_k=2), short_workspace=True)
    elif name == "staging_race":
        launch(replace(problem, n=191), config, patched=True)
    else:
        launch(problem, replace(config, split_k=2), patched=True)


def launch(
    problem: Any,
    config: Any,
    short_a: int = 0,
    short_c: int = 0,
    short_workspace: bool = False,
    patched: bool = False,
) -> None:
    """One launch whose A and C lack this many elements at their end, without any pool."""
    import cupy as cp
    import numpy as np

    from kernels.compile import build_kernel, compile_kernel
    from kernels.inputs import normal
    from kernels.launch import GemmLaunch, LoadedKernel, Workspace
    from kernels.launch_plan import plan_launch
    from solver.families import sm90_gemm as family

    cp.cuda.set_allocator(None)
    stream = cp.cuda.get_current_stream()
    sms = cp.cuda.Device().attributes["MultiProcessorCount"]
    plan = plan_launch(problem, config, sms)
    key = family.compile_key(config, problem.dtype)
    kernel = LoadedKernel.load(build_kernel(key) if patched else compile_kernel(key))
    m, n, k = problem.m, problem.n, problem.k
    a = cp.asarray(normal(np, m, k, problem.dtype, 1, 0).ravel()[: m * k - short_a])
    b = cp.asarray(normal(np, n, k, problem.dtype, 1, 1))
    c = cp.empty(m * n - short_c, cp.uint16)
    workspace = Workspace(
        replace(plan, workspace_bytes=plan.workspace_bytes // 2) if short_workspace else plan
    )
    GemmLaunch(plan, kernel, a.data.ptr, b.data.ptr, c.data.ptr, workspace).launch(stream)
    stream.synchronize()


def find_sanitizer() -> str | None:
    """The checker's path: on PATH, or in the CUDA toolkit."""
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    found = shutil.which("compute-sanitizer")
    for home in homes:
        candidate = Path(home, "bin", "compute-sanitizer")
        if found is None and home and candidate.exists():
            found = str(candidate)
    return found


def under(sanitizer: str, tool: str, *arguments: str) -> tuple[str, str]:
    """Run this script under a tool: found | clean | broken, and the tool's last words."""
    command = [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND)]
    if tool == "memcheck":
        command += ["--report-api-errors", "no"]  # probing the driver for entry points is none
    command += [sys.executable, __file__, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return "broken", f"no end after {TIMEOUT_S} s"
    words = [line for line in done.stdout.splitlines() if line.startswith("=========")]
    in_kernel = any("sm90_gemm" in line for line in words)
    last = words[-1].strip("= ") if words else (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode == FOUND and in_kernel:
        first = next(line for line in words if line.strip("= "))
        return "found", f"{first.strip('= ')}; {last}"
    if done.returncode == 0:
        return "clean", last
    return "broken", f"exit code {done.returncode}: {last}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--launch", help=argparse.SUPPRESS)  # what runs under the checker
    chosen = parser.parse_args()
    if chosen.launch:
        launch_clean() if chosen.launch == "clean" else launch_plant(chosen.launch)
        return 0
    sanitizer = find_sanitizer()
    report: dict[str, Any] = {"sanitizer": sanitizer, "plants": {}, "clean": {}}
    code = 0
    if sanitizer is None:
        report["note"] = "not run: no compute-sanitizer on this host"
        code = 3
    else:
        for name, plant in PLANTS.items():
            outcome, words = under(sanitizer, plant.tool, "--launch", name)
            report["plants"][name] = {
                "tool": plant.tool,
                "what": plant.what,
                "found": outcome == "found",
                "words": words,
            }
        for tool in dict.fromkeys(plant.tool for plant in PLANTS.values()):
            seen = [n for n, p in report["plants"].items() if p["tool"] == tool and p["found"]]
            if not seen:
                report["clean"][tool] = "not run: the tool missed every plant"
                continue
            outcome, words = under(sanitizer, tool, "--launch", "clean")
            report["clean"][tool] = {"outcome": outcome, "words": words, "counts_for": seen}
            code = max(code, outcome != "clean")
    text = json.dumps(report, indent=1)
    print(text)
    if chosen.out is not None:
        chosen.out.write_text(text + "\n", "utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
