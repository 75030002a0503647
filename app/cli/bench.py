"""bench compile, protocol and plan: what the compiler makes, and plans for a GPU host."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from app.cli import bench_accuracy, bench_fused, bench_solver
from app.cli.arguments import add_device, add_json, bounded, device_of
from app.cli.bench_accuracy import add_results
from app.cli.documents import check_writable, write_json
from app.cli.session import NEGATIVE, OK, Session
from app.cli.shapes import SUITE_HELP
from app.cli.show import show_record
from app.plan import make_plan
from kernels.table import bench_compile
from solver.errors import InvalidInput
from solver.families import norm_activation, sm90_gemm
from solver.problem import CACHES
from solver.question import TOP_K_MAX
from solver.suites import load_suite

FAMILIES = (sm90_gemm.NAME,)
PROTOCOLS = [sm90_gemm.NAME, norm_activation.NAME]
DOES_NOT_COUNT = ("failed", "spilled", "smem_mismatch", "register_mismatch")


def add_commands(commands: Any) -> None:
    """Register this module's commands."""
    bench = commands.add_parser("bench", help="measure the solver and the compiler, plan for a GPU")
    kinds = bench.add_subparsers(metavar="KIND", required=True)

    bench_solver.add_kinds(kinds)
    bench_accuracy.add_kind(kinds)
    bench_fused.add_kind(kinds)

    compile_ = kinds.add_parser("compile", help="compile the family and hold it to the solver")
    compile_.add_argument("--family", default=FAMILIES[0], choices=FAMILIES)
    compile_.add_argument(
        "--sample", type=bounded("sample", 1, 10**6), metavar="N", help="a sample; all"
    )
    compile_.add_argument("--seed", type=bounded("seed", 0, 2**31 - 1), default=0, metavar="N")
    add_json(compile_)
    compile_.set_defaults(run=compile_command)

    protocol_ = kinds.add_parser(
        "protocol", help="read the rings' protocols off the kernels and prove them"
    )
    protocol_.add_argument(
        "--family", choices=PROTOCOLS, help=f"one of {', '.join(PROTOCOLS)}; both"
    )
    protocol_.add_argument(
        "--sample", type=bounded("sample", 1, 10**6), metavar="N", help="a sample of keys; all"
    )
    protocol_.add_argument(
        "--plan",
        type=Path,
        metavar="FILE",
        help="the kernels of a plan of `python -m bench.norm_grid`, with --family norm_activation",
    )
    protocol_.add_argument("--seed", type=bounded("seed", 0, 2**31 - 1), default=0, metavar="N")
    add_json(protocol_)
    protocol_.set_defaults(run=protocol)

    plan_ = kinds.add_parser("plan", help="a plan file for `python -m kernels.bench`")
    plan_.add_argument(
        "--suite",
        metavar="NAME|FILE.csv",
        help=f"{SUITE_HELP}; llm. With --regret: of the ground truth's shapes only this suite's",
    )
    plan_.add_argument(
        "--best",
        type=bounded("best", 0, TOP_K_MAX),
        metavar="N",
        help="also N candidates for each problem's best, up to 16 of them of different tiles; 0",
    )
    plan_.add_argument("--cache", choices=CACHES, help="cold")
    plan_.add_argument(
        "--regret",
        action="store_true",
        help="instead: races of the pick with the model's next ones, what a verification would "
        "race, the ground truth's fastest and peers' picks, over its shapes",
    )
    add_results(plan_)
    plan_.add_argument("--out", required=True, type=Path, metavar="FILE")
    add_device(plan_)
    add_json(plan_)
    plan_.set_defaults(run=plan)


def compile_command(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright bench compile``; exits 1 where a figure is not the solver's."""
    result = bench_compile(arguments.sample, arguments.seed)
    session.emit(result, lambda console: show_record(console, "compiled", result))
    return NEGATIVE if any(result[name] for name in DOES_NOT_COUNT) else OK


def protocol(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright bench protocol``; exits 1 where a kernel does otherwise than is proved."""
    from app.norm_protocol import check_norm_protocol  # here: they import Z3
    from app.protocol import check_protocol

    families = [arguments.family] if arguments.family else PROTOCOLS
    if arguments.plan is not None and families != [norm_activation.NAME]:
        raise InvalidInput("plan", f"goes with --family {norm_activation.NAME}")
    results: dict[str, dict[str, Any]] = {}
    for family in families:
        with session.progress(f"reading {family}") as bar:
            if family == norm_activation.NAME:
                results[family] = check_norm_protocol(
                    arguments.sample, arguments.seed, bar, arguments.plan
                )
            else:
                results[family] = check_protocol(arguments.sample, arguments.seed, bar)

    def show(console: Console) -> None:
        for family, result in results.items():
            shown = {n: len(v) if isinstance(v, list) else v for n, v in result.items()}
            show_record(console, f"protocol of {family}", shown)

    session.emit(results, show)
    wrong = any(result["mismatches"] or result["faults"] for result in results.values())
    return NEGATIVE if wrong else OK


def plan(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright bench plan``."""
    device = device_of(arguments)
    check_writable(arguments.out)
    if arguments.regret:
        for name in ("best", "cache"):
            if getattr(arguments, name) is not None:
                raise InvalidInput(name, "must not be given with --regret, which decides it")
        from app.recorded import read_recorded  # here: no other command needs them
        from app.regret_plan import make_regret_plan

        recorded = read_recorded(device, arguments.results)
        with session.progress("planning") as bar:
            document = make_regret_plan(recorded, device, bar, arguments.suite)
    else:
        if arguments.results is not None:
            raise InvalidInput("results", "goes with --regret alone")
        suite = "llm" if arguments.suite is None else arguments.suite
        problems = load_suite(suite)
        with session.progress("planning") as bar:
            document = make_plan(
                suite,
                problems,
                device=device,
                best=arguments.best or 0,
                cache=arguments.cache or "cold",
                progress=bar,
            )
    write_json(arguments.out, document)
    record = {"out": str(arguments.out), "rows": len(document["rows"]), "device": device}
    session.emit(record, lambda console: show_record(console, "planned", record))
    return OK
