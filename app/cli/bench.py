"""bench solve, bench compile and bench plan: figures and plans, one JSON object each."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from app.cli.arguments import add_device, add_json, integer
from app.cli.session import NEGATIVE, OK, Session
from app.cli.show import show_record
from app.errors import EnvironmentLacks
from app.host import detect_host
from app.plan import make_plan
from kernels.table import bench_compile
from solver.bench import bench_solve
from solver.engine import TOP_K_MAX
from solver.families import sm90_gemm
from solver.problem import CACHES
from solver.suites import load_suite, suite_names

SUITE_HELP = f"{', '.join(suite_names())} or a CSV file with the columns m, n and k"
FAMILIES = (sm90_gemm.NAME,)
DOES_NOT_COUNT = ("failed", "spilled", "smem_mismatch", "register_mismatch")


def add_commands(commands: Any) -> None:
    """Register this module's commands."""
    bench = commands.add_parser("bench", help="measure the solver and the compiler, plan for a GPU")
    kinds = bench.add_subparsers(metavar="KIND", required=True)

    solve_ = kinds.add_parser("solve", help="time of an answer with its proof, uncached")
    solve_.add_argument("--suite", default="llm", metavar="NAME|FILE.csv", help=SUITE_HELP)
    add_device(solve_)
    solve_.add_argument(
        "--check",
        action="store_true",
        help="compare every pick with brute force and every control claim too",
    )
    add_json(solve_)
    solve_.set_defaults(run=solve)

    compile_ = kinds.add_parser("compile", help="compile the family and hold it to the solver")
    compile_.add_argument("--family", default=FAMILIES[0], choices=FAMILIES)
    compile_.add_argument(
        "--sample", type=integer("sample", 1, 10**6), metavar="N", help="a sample; all"
    )
    compile_.add_argument("--seed", type=integer("seed", 0, 2**31 - 1), default=0, metavar="N")
    add_json(compile_)
    compile_.set_defaults(run=compile_command)

    plan_ = kinds.add_parser("plan", help="a plan file for `python -m kernels.bench`")
    plan_.add_argument("--suite", default="llm", metavar="NAME|FILE.csv", help=SUITE_HELP)
    plan_.add_argument(
        "--best",
        type=integer("best", 0, TOP_K_MAX),
        default=0,
        metavar="N",
        help="also the first N configurations of each problem, to find the best among",
    )
    plan_.add_argument("--cache", default="cold", choices=CACHES)
    plan_.add_argument("--out", required=True, type=Path, metavar="FILE")
    add_device(plan_)
    add_json(plan_)
    plan_.set_defaults(run=plan)


def solve(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright bench solve``."""
    problems = load_suite(arguments.suite)
    device = arguments.device or detect_host().device
    with session.progress("solving") as bar:
        result = bench_solve(problems, device, check=arguments.check, progress=bar)
    result = {"suite": arguments.suite, **result}
    session.emit(result, lambda console: _show_solve(console, result))
    right = result.get("equal_to_brute_force", len(problems)) == len(problems)
    refused = result.get("controls_refused", len(problems)) == len(problems)
    return OK if result["optimal"] == len(problems) and right and refused else NEGATIVE


def _show_solve(console: Console, result: dict[str, Any]) -> None:
    table = Table("m", "n", "k", "configurations", "pick, ms", "answer, ms", box=box.SIMPLE)
    for row in result["by_shape"]:
        times = (f"{row['pick_ms']:.2f}", f"{row['total_ms']:.2f}")
        sizes = (str(row[name]) for name in ("m", "n", "k"))
        table.add_row(*sizes, f"{row['configurations']:,}", *times)
    console.print(table)
    show_record(console, f"suite {result['suite']}", result)


def compile_command(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright bench compile``; exits 1 where a figure is not the solver's."""
    result = bench_compile(arguments.sample, arguments.seed)
    session.emit(result, lambda console: show_record(console, "compiled", result))
    return NEGATIVE if any(result[name] for name in DOES_NOT_COUNT) else OK


def plan(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright bench plan``."""
    problems = load_suite(arguments.suite)
    device = arguments.device or detect_host().device
    with session.progress("planning") as bar:
        document = make_plan(
            arguments.suite,
            problems,
            device=device,
            best=arguments.best,
            cache=arguments.cache,
            progress=bar,
        )
    try:
        arguments.out.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    except OSError as error:
        raise EnvironmentLacks(f"{arguments.out} can't be written: {error}") from error
    record = {"out": str(arguments.out), "rows": len(document["rows"]), "device": device}
    session.emit(record, lambda console: show_record(console, "planned", record))
    return OK
