"""profile: Nsight Compute on the fastest kernel of each kind, side by side."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from app.cli.arguments import add_json, add_norm_problem, add_warps_per_sm
from app.cli.layout import Body
from app.cli.session import OK, Session
from app.ops import NORM
from kernels.host import find_gpu
from kernels.norm.cells import Cell
from kernels.norm.device import norm_profile
from kernels.norm.profile import profile_cells
from kernels.profiler import find_ncu
from solver.errors import InvalidInput
from solver.families import norm_activation as family
from solver.families.norm_activation import NormConfig, NormProblem
from solver.families.norm_activation_advice import LEAST_WARPS, MOST_WARPS
from solver.families.norm_activation_crowding import reserved_smem_bytes
from solver.families.norm_activation_forecast import forecasts
from solver.limits import check_choice, check_integer
from solver.words import listing

SHOWN = (
    ("time under the profiler, µs", "time_us", "{:.1f}"),
    ("warps resident on an SM", "resident_warps", "{:.1f}"),
    ("SM busy", "compute_fraction", "{:.1%}"),
    ("cycles with an issue", "issue_fraction", "{:.1%}"),
    ("stalled on loads", "long_scoreboard_fraction", "{:.1%}"),
    ("stalled at a barrier", "barrier_fraction", "{:.1%}"),
    ("memory throughput", "memory_fraction", "{:.1%}"),
    ("sectors that L2 had", "l2_hit_fraction", "{:.1%}"),
)


def add_commands(commands: Any) -> None:
    """Register this module's command."""
    profile_ = commands.add_parser(
        "profile",
        help="Nsight Compute on the fastest kernel of each kind of norm_activation, on this "
        "machine's GPU",
    )
    profile_.add_argument("--op", required=True, metavar=NORM, help="what is profiled")
    dtypes = tuple(family.ELEMENT_BYTES)
    profile_.add_argument("--dtype", metavar="|".join(dtypes), help=dtypes[0])
    add_norm_problem(profile_)
    add_warps_per_sm(profile_)
    add_json(profile_)
    profile_.set_defaults(run=profile)


def profile(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright profile``; exits 3 where ncu is absent or may not read counters."""
    check_choice("op", arguments.op, (NORM,))
    problem, warps = _problem_of(arguments), arguments.warps_per_sm
    if warps is not None:
        check_integer("warps_per_sm", warps, LEAST_WARPS, MOST_WARPS)
    find_ncu()  # before anything that takes time
    gpu = find_gpu()
    device = norm_profile(gpu)
    found = forecasts(problem, device, "cold", warps)

    def cell(config: NormConfig) -> Cell:
        reserved = reserved_smem_bytes(problem, config, warps, device) or 0
        return Cell("profile", problem, config, reserved, warps)

    cells = [cell(each.config) for each in found.values()]
    with session.waiting(f"profiling {listing(list(found))} on {gpu.name}"):
        profiled = profile_cells(cells, device)
    body = {
        "device": gpu.name,
        "problem": problem.to_dict(),
        "warps_per_sm": warps,
        "kernels": [
            {**forecast.to_dict(), "predicted_us": forecast.time_us, "profiled": figures}
            for forecast, figures in zip(found.values(), profiled, strict=True)
        ],
    }
    session.emit(body, lambda console: _show(console, body["kernels"]))
    return OK


def _problem_of(arguments: argparse.Namespace) -> NormProblem:
    """The problem of the arguments; what is omitted is as NormProblem has it."""
    given = {field.name: getattr(arguments, field.name) for field in fields(NormProblem)}
    for name in ("rows", "width"):
        if given[name] is None:
            raise InvalidInput(name, f"is required with op {NORM}")
    return NormProblem.asked(**{name: value for name, value in given.items() if value is not None})


def _show(console: Console, kernels: Sequence[Body]) -> None:
    table = Table(title="The fastest kernel of each kind by the model", box=box.SIMPLE)
    table.add_column("")
    for kernel in kernels:
        table.add_column(kernel["kind"], justify="right")
    table.add_row("predicted, µs", *(f"{kernel['predicted_us']:.1f}" for kernel in kernels))
    for words, name, form in SHOWN:
        values = [kernel["profiled"][name] for kernel in kernels]
        table.add_row(words, *("-" if value is None else form.format(value) for value in values))
    console.print(table)
