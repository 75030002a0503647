"""advise: whether to divide a kernel's warps into producers and consumers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape

from app.advice import ASKED, PROBLEM, work_of
from app.cli.arguments import (
    add_cache,
    add_device,
    add_json,
    add_norm_problem,
    add_warps_per_sm,
)
from app.cli.documents import read_json
from app.cli.layout import Body, pairs
from app.cli.session import OK, Session
from app.host import detect_host
from app.ops import NORM, OPS
from app.schemas.advice import OPS as ADVISED
from app.schemas.advice import AdviseRequest
from app.schemas.faults import describe
from solver.advice.advise import SOURCES
from solver.advice.ncu import FIELD, MAX_CHARS
from solver.errors import InvalidInput
from solver.families import norm_activation as family
from solver.families.norm_activation_advice import MEASURE
from solver.families.norm_activation_rivals import DEFAULT_RIVAL, RIVALS

VERDICTS = {
    "specialise": "divide the warps",
    "no": "don't divide the warps",
    "undecided": "undecided: measure it",
}


MISSING = {MEASURE: "the kinds raced on the GPU: warpwright verify --op norm_activation"}


def add_commands(commands: Any) -> None:
    """Register this module's command."""
    advise_ = commands.add_parser(
        "advise", help="whether to divide a kernel's warps into producers and consumers"
    )
    about = advise_.add_mutually_exclusive_group(required=True)
    about.add_argument(
        "--figures",
        type=Path,
        metavar="FILE.json",
        help="figures of a kernel, or a request or an answer that has them",
    )
    about.add_argument(
        "--ncu",
        type=Path,
        metavar="FILE.csv",
        help="what ncu --csv --page raw, or --page details, printed",
    )
    about.add_argument("--op", metavar="|".join(ADVISED), help="a family of kernels")
    advise_.add_argument("--kernel", help="with --ncu: a launch's ID, a kernel's name or a part")
    dtypes = tuple(family.ELEMENT_BYTES)
    advise_.add_argument("--dtype", metavar="|".join(dtypes), help=f"{dtypes[0]}, with --op")
    add_norm_problem(advise_)
    add_warps_per_sm(advise_)
    advise_.add_argument(
        "--rival",
        metavar="|".join(RIVALS),
        help=f"with --op: what divided warps are held against; {DEFAULT_RIVAL}",
    )
    add_cache(advise_, "x (with --op) is")
    add_device(advise_)
    add_json(advise_)
    advise_.set_defaults(run=advise, cache=None)


def advise(arguments: argparse.Namespace, session: Session) -> int:
    """``warpwright advise``; exits 0 whatever the verdict is."""
    values: dict[str, Any] = {
        name: value
        for name in ("op", *PROBLEM, "cache", *ASKED, "kernel", "device")
        if (value := getattr(arguments, name)) is not None
    }
    if arguments.figures is not None:
        values["figures"] = _figures(read_json("figures", arguments.figures))
    if arguments.ncu is not None:
        values[FIELD] = _read_text(arguments.ncu)
    try:
        request = AdviseRequest.model_validate(values)
    except ValidationError as error:
        raise InvalidInput(*describe(error.errors()[0], AdviseRequest)) from None
    function, given = work_of(request, detect_host().device)
    body = function(*given)
    session.emit(body, lambda console: show(console, body))
    return OK


def _figures(values: Any) -> Any:
    """The figures, or those of a request or an answer."""
    if isinstance(values, dict) and isinstance(values.get("figures"), dict):
        return values["figures"]
    return values


def _read_text(path: Path) -> str:
    """An export's text, of no more characters than one may have."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return file.read(MAX_CHARS + 1)
    except (OSError, ValueError) as error:
        raise InvalidInput(FIELD, f"can't be read: {error}") from error


def show(console: Console, body: Body) -> None:
    """The verdict, the three steps, and what to expect."""
    rows = [("verdict", VERDICTS[body["verdict"]])]
    rows += [(f"  {reason['reason']}", reason["words"]) for reason in body["reasons"]]
    if body["missing"]:
        known = [MISSING.get(name, name) for name in body["missing"]]
        rows.append(("would decide", ", ".join(known)))
    rows += [
        (f"{step['step'].replace('_', ' ')}: {step['outcome']}", step["words"])
        for step in body["steps"]
    ]
    if (present := body["present_us"]) is not None:
        how = "measured" if present["measured"] else f"by {SOURCES[body['source']]}"
        rows.append(("takes now", f"{_range(present)} µs, {how}"))
    rows += [
        (f"best {each['kind']}", f"{each['time_us']:.4g} µs by {SOURCES[body['source']]}")
        for each in body["kernels"]
    ]
    rows.append(("gain of divided warps", _gain(body["gain"])))
    rows.append(("gain of the alternative", _gain(body["alternative"]["gain"])))
    rows.append(("the alternative", body["alternative"]["words"]))
    rows.append(("bear in mind", body["caveat"]))
    rows += [("note", words) for words in body["notes"]]
    console.print(pairs(escape(_title(body)), [(name, escape(words)) for name, words in rows]))


def _title(body: Body) -> str:
    about = "a kernel by its figures"
    if (launch := body["launch"]) is not None:
        name = "".join(each if each.isprintable() else "?" for each in launch["kernel"])
        about = f"launch {launch['id']}, {name}"
    if (problem := body["problem"]) is not None:
        op = OPS[NORM]
        about = op.problem_words(op.problem(**problem))
        if (warps := body["warps_per_sm"]) is not None:
            about += f" with {warps} warps on an SM"
    return f"{about}, on {body['device']['title']}"


def _gain(gain: Body | None) -> str:
    return "not known" if gain is None else f"{_range(gain)} times as fast"


def _range(value: Body) -> str:
    low, expected, high = (value[name] for name in ("low", "expected", "high"))
    return f"{expected:.4g}" if low == high else f"{expected:.4g} ({low:.4g} to {high:.4g})"
