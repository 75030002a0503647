"""Arguments that several commands share, and a parser whose errors are the project's own."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NoReturn

from app.cli.session import writing
from app.host import detect_host
from app.ops import GEMM, NORM, OPS
from app.schemas.faults import shown
from app.schemas.limits import OFFSET_MAX, OFFSETS_WORDS
from solver.device import device_names
from solver.errors import InvalidInput
from solver.families import norm_activation as norm
from solver.families.norm_activation_advice import LEAST_WARPS, MOST_WARPS
from solver.limits import check_integer, shortened
from solver.problem import CACHES, ELEMENT_BYTES, LAYOUTS, MAX_EXTENT, OUT_BYTES, Problem
from solver.question import DIVERGENCE_MAX, MODELS, PROOFS

LONGEST_INTEGER = 20  # digits; a longer one is in no range and would fill a message


class Parser(argparse.ArgumentParser):
    """Raises InvalidInput where argparse would print and leave; takes no shortened option."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "allow_abbrev": False})

    def _print_message(self, message: str, file: Any = None) -> None:
        # For --help and --version: argparse drops what can't be written and leaves with 0.
        with writing():
            print(message, end="", file=file)

    def error(self, message: str) -> NoReturn:
        """Called by argparse for what it can't parse."""
        raise InvalidInput("arguments", f"{message}; see {self.prog} --help")


def integer(field: str, low: int, high: int) -> Callable[[str], int]:
    """An argparse type: a decimal integer. Whether it is in range is the solver's to say, which
    knows the other fields; a text that is none is refused here."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            raise InvalidInput(
                field, f"must be an integer between {low} and {high}, got {shown(text)}"
            )
        if len(text.lstrip("+-0")) > LONGEST_INTEGER:
            raise InvalidInput(field, f"must be between {low} and {high}, got {shortened(text)}")
        return int(text)

    return parse


def bounded(field: str, low: int, high: int) -> Callable[[str], int]:
    """An argparse type: a decimal integer of which the solver knows nothing."""
    whole = integer(field, low, high)

    def parse(text: str) -> int:
        value = whole(text)
        check_integer(field, value, low, high)
        return value

    return parse


def number(field: str, low: float, high: float) -> Callable[[str], float]:
    """An argparse type: a decimal number, in range or not as ``integer``."""

    def parse(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise InvalidInput(
                field, f"must be a number between {low:g} and {high:g}, got {shown(text)}"
            ) from None

    return parse


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON alone on standard output")


def add_problem(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """M N K, how the operands lie in memory, and --json; ``optional``: M N K may be left out."""
    for name, words in (
        ("m", "rows of A and C"),
        ("n", "columns of B and C"),
        ("k", "columns of A, rows of B"),
    ):
        size = integer(name, 1, MAX_EXTENT)
        nargs: Any = {"nargs": "?"} if optional else {}
        parser.add_argument(name, metavar=name.upper(), type=size, help=words, **nargs)
    parser.add_argument("--dtype", default="bf16", metavar="|".join(ELEMENT_BYTES))
    parser.add_argument(
        "--out-dtype", metavar="|".join(OUT_BYTES), help="C's type; that of A and B"
    )
    parser.add_argument(
        "--layout",
        default="tn",
        metavar="|".join(LAYOUTS),
        help="first letter A as MxK, second B as KxN; t row-major, n column-major (tn)",
    )
    for name in "abc":
        pitch, offset = f"ld{name}", f"{name}_offset"
        most = OFFSETS_WORDS if name == "c" else OFFSET_MAX
        parser.add_argument(
            f"--{pitch}",
            type=integer(pitch, 1, MAX_EXTENT),
            metavar="N",
            help=f"elements from a row or column of {name.upper()} to the next; packed",
        )
        parser.add_argument(
            f"--{name}-offset",
            type=integer(offset, 0, OFFSET_MAX),
            default=0,
            metavar="N",
            help=f"elements from a 16-byte boundary to {name.upper()}'s first, at most {most}; 0",
        )
    if not optional:
        parser.add_argument("--op", type=_products_alone, help=argparse.SUPPRESS)
    add_json(parser)


def _products_alone(op: str) -> str:
    """An argparse type: the op of commands that know no other; without it another op's name would
    be taken for M."""
    if op != GEMM:
        raise InvalidInput(
            "op",
            f"must be {GEMM} here, got {shown(op)}: other ops are of optimize, verify, advise, "
            "profile and bench",
        )
    return op


def add_norm_problem(parser: argparse.ArgumentParser) -> None:
    """What a problem of norm_activation has besides --dtype."""
    for name, low, high, words in (
        ("rows", 1, norm.MAX_ROWS, "rows of x and y"),
        ("width", 1, norm.MAX_WIDTH, "elements of a row"),
        ("degree", 0, norm.MAX_DEGREE, "of activation poly"),
    ):
        size = integer(name, low, high)
        parser.add_argument(f"--{name}", type=size, metavar="N", help=f"{words}, with --op {NORM}")
    for name, choices in (("norm", norm.NORMS), ("activation", norm.ACTIVATIONS)):
        parser.add_argument(
            f"--{name}", metavar="|".join(choices), help=f"{choices[0]}, with --op {NORM}"
        )


def add_warps_per_sm(parser: argparse.ArgumentParser) -> None:
    """--warps-per-sm: what else is on the SM beside a problem of norm_activation."""
    parser.add_argument(
        "--warps-per-sm",
        type=integer("warps_per_sm", LEAST_WARPS, MOST_WARPS),
        metavar="N",
        help=f"so many warps fit on an SM, the rest is taken up, with --op {NORM}; all that fit",
    )


def add_any_problem(parser: argparse.ArgumentParser) -> None:
    """A problem of any op: --op, M N K and what goes with them, or --rows and --width."""
    add_problem(parser, optional=True)
    parser.add_argument("--op", metavar="|".join(OPS), help=f"what it is of; {GEMM}")
    add_norm_problem(parser)


def leave_defaults(parser: argparse.ArgumentParser, *kept: str) -> None:
    """Leave every default but those of ``kept`` to the request that the arguments make: only it
    knows which of them go with its op."""
    names = (action.dest for action in parser._actions)
    parser.set_defaults(**{name: None for name in names if name not in ("help", "json", *kept)})


def add_device(parser: argparse.ArgumentParser) -> None:
    """--device."""
    parser.add_argument(
        "--device",
        metavar="NAME",
        help=f"the host's GPU, else h200; one of {', '.join(device_names())}",
    )


def device_of(arguments: argparse.Namespace) -> str:
    """What --device names, the host's where it was not given; an empty name is no device's."""
    return detect_host().device if arguments.device is None else str(arguments.device)


def add_model(parser: argparse.ArgumentParser) -> None:
    """--model, and --divergence that goes with one of them."""
    parser.add_argument("--model", default="calibrated", metavar="|".join(MODELS))
    parser.add_argument(
        "--divergence",
        type=number("divergence", 1, DIVERGENCE_MAX),
        default=1.0,
        metavar="FACTOR",
        help="model paper: a factor on compute time for threads of a warp that diverge",
    )


PRODUCTS_INPUTS = "A and B are"
ANY_INPUTS = f"A and B (with --op {NORM}: x) are"


def add_cache(parser: argparse.ArgumentParser, inputs: str = PRODUCTS_INPUTS) -> None:
    """--cache, which says where the ``inputs`` are."""
    parser.add_argument(
        "--cache",
        default="cold",
        metavar="|".join(CACHES),
        help=f"where {inputs} before the launch: in device memory, or in the L2; cold",
    )


def add_question(parser: argparse.ArgumentParser, *, any_op: bool = False) -> None:
    """M N K and what is asked about them: device, model, what is best, what is allowed;
    ``any_op``: or another op's problem."""
    (add_any_problem if any_op else add_problem)(parser)
    add_device(parser)
    add_model(parser)
    add_cache(parser, ANY_INPUTS if any_op else PRODUCTS_INPUTS)
    parser.add_argument("--proof", default="full", metavar="|".join(PROOFS))
    add_wishes(parser)


def add_wishes(parser: argparse.ArgumentParser) -> None:
    """--objective and --constraints."""
    parser.add_argument(
        "--objective",
        metavar="JSON|@FILE",
        help="what is best, as `objective` of POST /v1/optimize; time, then MATH wait",
    )
    parser.add_argument(
        "--constraints",
        metavar="JSON|@FILE",
        help="what is allowed, as `constraints` of POST /v1/optimize; all that is legal",
    )


def add_config(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """--config."""
    parser.add_argument(
        "--config",
        required=required,
        metavar="JSON|@FILE",
        help="a configuration, as `config` of an answer has it"
        + ("" if required else "; the pick"),
    )


def problem_of(arguments: argparse.Namespace) -> Problem:
    """The problem that the arguments name."""
    return Problem(**{field.name: getattr(arguments, field.name) for field in fields(Problem)})
