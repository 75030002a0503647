"""Measures what this GPU draws: ``python -m kernels.power plan.json --out power.json``, and whether
answers about energy hold: ``python -m kernels.power --answers answers.json --out held.json``.

Needs neither z3 nor pydantic. Plans are made by ``python -m bench.power_plan``. Ended at any
moment, by ``--budget-s`` too, it goes on with what is missing when started again with the same
options. What is measured and what comes out: docs/energy.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from kernels.bare_host import exit_code
from kernels.bench import terminated_as_interrupt
from kernels.files import check_place
from kernels.power.run import ROUNDS, Options, measure_answers, measure_rows
from kernels.sweep import parse_shard
from solver.errors import InvalidInput

LEAST_ROUNDS = 6  # holds of which the median has an interval of 95 %


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every row was measured, every answer holds; 1: some failed; 2: bad plan, or a file of
    another one; 3: no GPU, family, compiler or energy counter; 130: interrupted, with what was
    measured kept."""
    parser = argparse.ArgumentParser(prog="python -m kernels.power", description=__doc__)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("plan", nargs="?", type=Path, help="plan of rows")
    given.add_argument("--answers", type=Path, help="plan of answers, to be held and judged")
    parser.add_argument("--out", type=Path, required=True, help="record (JSON)")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th row; 0/1")
    parser.add_argument(
        "--rounds",
        type=int,
        default=ROUNDS,
        help=f"with --answers: holds of each, {LEAST_ROUNDS} at least; {ROUNDS}",
    )
    parser.add_argument(
        "--budget-s", type=float, metavar="S", help="begin no row that would end after so long"
    )
    parser.add_argument("--commit", help="commit of the copy that runs, where it is no checkout")
    chosen = parser.parse_args(arguments)
    console = Console(stderr=True)

    def work() -> bool:
        if chosen.rounds < LEAST_ROUNDS:
            raise InvalidInput("rounds", f"must be at least {LEAST_ROUNDS}, got {chosen.rounds}")
        if chosen.budget_s is not None and not chosen.budget_s > 0:
            raise InvalidInput("budget-s", f"must be above 0, got {chosen.budget_s:g}")
        options = Options(
            chosen.out, parse_shard(chosen.shard), chosen.rounds, chosen.budget_s, chosen.commit
        )
        check_place(chosen.out)
        with terminated_as_interrupt():
            if chosen.answers is not None:
                return measure_answers(chosen.answers, options, console)
            return measure_rows(chosen.plan, options, console)

    again = "interrupted; start it again with the same options to go on"
    return exit_code(work, console, again)


if __name__ == "__main__":
    sys.exit(main())
