"""Suites on the command line: what is said of them, and --shapes."""

from __future__ import annotations

import argparse

from solver.errors import InvalidInput
from solver.problem import Problem
from solver.suites import OPTIONAL, load_suite, suite_names

SUITE_HELP = (
    f"{', '.join(suite_names())} or a CSV file with the columns m, n, k and any of "
    f"{', '.join(OPTIONAL)}"
)


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """--shapes, which ``load_shapes`` reads."""
    parser.add_argument("--shapes", required=True, metavar="NAME|FILE.csv", help=SUITE_HELP)


def load_shapes(arguments: argparse.Namespace) -> tuple[Problem, ...]:
    """The problems that --shapes names. Raises InvalidInput (field ``shapes``) as ``load_suite``
    does of ``suite``, which is not what the caller wrote."""
    try:
        return load_suite(arguments.shapes)
    except InvalidInput as error:
        raise InvalidInput("shapes", error.message) from error
