"""bench solve, strategies, constraints and memory: figures of the solver, one JSON object each."""

from __future__ import annotations

import argparse
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Column, Table

from app.cli.arguments import add_device, add_json, add_wishes, bounded, device_of
from app.cli.documents import wishes_of
from app.cli.session import NEGATIVE, OK, Session
from app.cli.shapes import SUITE_HELP
from app.cli.show import show_record
from solver.bench import bench_solve
from solver.bench_constraints import bench_constraints
from solver.bench_memory import bench_memory
from solver.suites import load_suite


def add_kinds(kinds: Any) -> None:
    """Register this module's kinds of bench."""
    solve_ = _kind(kinds, "solve", solve, "time of an answer with its proof, uncached")
    add_wishes(solve_)
    solve_.add_argument(
        "--check",
        action="store_true",
        help="compare every answer with brute force, and try two false claims of each",
    )
    _kind(kinds, "strategies", strategies, "one joint solve against pruning by simulation first")
    constraints_ = _kind(
        kinds, "constraints", constraints, "random constraint sets against brute force"
    )
    constraints_.add_argument(
        "--sets", type=bounded("sets", 1, 10**6), default=500, metavar="N", help="how many; 500"
    )
    constraints_.add_argument("--seed", type=bounded("seed", 0, 2**31 - 1), default=0, metavar="N")
    _kind(kinds, "memory", memory, "shared memory as a limit and as a penalty")


def _kind(kinds: Any, name: str, run: Any, words: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = kinds.add_parser(name, help=words)
    parser.add_argument("--suite", default="llm", metavar="NAME|FILE.csv", help=SUITE_HELP)
    add_device(parser)
    add_json(parser)
    parser.set_defaults(run=run)
    return parser


def solve(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright bench solve``; exits 1 where an answer is not proved, or not right."""
    problems = load_suite(arguments.suite)
    objective, held = wishes_of(arguments)
    with session.progress("solving") as bar:
        result = bench_solve(
            problems,
            device_of(arguments),
            objective=objective,
            constraints=held,
            check=arguments.check,
            progress=bar,
        )
    result = {"suite": arguments.suite, **result}
    session.emit(result, lambda console: _show_solve(console, result))
    count = len(problems)
    counts = ("optimal", "equal_to_brute_force", "controls_refused")
    return OK if all(result.get(name, count) == count for name in counts) else NEGATIVE


def _show_solve(console: Console, result: dict[str, Any]) -> None:
    table = Table("m", "n", "k", "configurations", "pick, ms", "answer, ms", box=box.SIMPLE)
    for row in result["by_shape"]:
        times = (f"{row['pick_ms']:.2f}", f"{row['total_ms']:.2f}")
        sizes = (str(row[name]) for name in ("m", "n", "k"))
        table.add_row(*sizes, f"{row['configurations']:,}", *times)
    console.print(table)
    show_record(console, f"suite {result['suite']}", result)


def strategies(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright bench strategies``."""
    from solver.strategies import bench_strategies  # here: it imports Z3

    problems = load_suite(arguments.suite)
    with session.progress("comparing") as bar:
        result = bench_strategies(problems, device_of(arguments), progress=bar)
    result = {"suite": arguments.suite, **result}
    session.emit(result, lambda console: _show_strategies(console, result))
    return OK


def _show_strategies(console: Console, result: dict[str, Any]) -> None:
    names = Column("strategy", no_wrap=True)  # whole, however long the times beside it are
    heads = (names, "shapes", "optimum", "gap", "worst", "simulate", "solve", "both", "p99")
    table = Table(
        *heads, box=box.SIMPLE, pad_edge=False, caption="times in ms, medians but for p99"
    )
    for name, row in result["strategies"].items():
        if row["shapes"]:
            gaps = (f"{row['geomean_gap']:.2%}", f"{row['worst_gap']:.1%}")
            keys = ("simulate_p50_ms", "solve_p50_ms", "p50_ms", "p99_ms")
            times = (f"{row[key]:.1f}" for key in keys)
            table.add_row(name, str(row["shapes"]), f"{row['optimum']:.0%}", *gaps, *times)
        else:
            table.add_row(name, "0")
    console.print(table)
    show_record(console, f"suite {result['suite']}", result)


def constraints(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright bench constraints``; exits 1 where brute force disagrees."""
    problems = load_suite(arguments.suite)
    with session.progress("constraining") as bar:
        result = bench_constraints(
            problems,
            device_of(arguments),
            sets=arguments.sets,
            seed=arguments.seed,
            progress=bar,
        )
    result = {"suite": arguments.suite, **result}
    session.emit(result, lambda console: show_record(console, f"suite {arguments.suite}", result))
    right = result["equal_to_brute_force"] == result["satisfiable"]
    cores = {result["minimal_cores"], result["least_relaxations"]} == {result["unsatisfiable"]}
    return OK if right and cores else NEGATIVE


def memory(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright bench memory``."""
    problems = load_suite(arguments.suite)
    with session.progress("weighing") as bar:
        result = bench_memory(problems, device_of(arguments), progress=bar)
    result = {"suite": arguments.suite, **result}
    session.emit(result, lambda console: _show_memory(console, result))
    return OK


def _show_memory(console: Console, result: dict[str, Any]) -> None:
    heads = ("shared memory", "KiB or µs/KiB", "time, geomean", "worst", "KiB, median", "largest")
    table = Table(*heads, box=box.SIMPLE)
    for row in result["rows"]:
        times = (f"{row[name]:.3f}" for name in ("time_ratio_geomean", "time_ratio_worst"))
        sizes = (f"{row[name]:.0f}" for name in ("smem_kib_p50", "smem_kib_max"))
        value = "" if row["value"] is None else f"{row['value']:g}"
        table.add_row(row["kind"], value, *times, *sizes)
    console.print(table)
